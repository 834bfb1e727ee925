"""Marks and levels, and that the text of every script comes back exactly."""

import itertools

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from latentry.sampling.grid import grid_of, texts_at
from latentry.sampling.marks import marks_of
from planted_corpus import PlantedTokens, tokens_of

SCRIPTS = {
    "chinese": "我们在海上看见了一条白色的鲸鱼，它很大。",
    "emoji": "ok 👩‍👩‍👧‍👦 and 🙂🙂 then 🇯🇵 end of it",
    "right to left": "שלום לכם, مرحبا بالعالم الكبير",
    "spaces": "two  spaces   three\tand\n\nnew\r\nlines   ",
    "combining": "e\u0301a\u0300 na\u0308ive \u200bzero width",
}


def byte_tokens(text: str) -> list[tuple[int, int, int]]:
    """Every byte is a token, with the character offsets of the tokenizers library."""
    vocabulary = {symbol: index + 1 for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    encoded = tokenizer.encode(text)
    return [(token, *span) for token, span in zip(encoded.ids, encoded.offsets, strict=True)]


def spans_of(token_set: PlantedTokens, starts: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    places = starts[:, None] + np.arange(window)
    begin = token_set.text_start.reshape(-1)[starts, None].astype(np.int64)
    return token_set.text_start.reshape(-1)[places] - begin, token_set.text_end.reshape(-1)[places] - begin


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("window", [3, 7])
def test_windows_of_byte_tokens_cover_the_source_and_marks_come_out_again(script: str, window: int) -> None:
    text = SCRIPTS[script]
    token_set = tokens_of([text], 200, byte_tokens)
    grid = grid_of(token_set, window)
    texts = texts_at(token_set, grid.starts, window)
    bounds = [(int(token_set.text_start.flat[s]), int(token_set.text_end.flat[s + window - 1])) for s in grid.starts]
    assert texts == [text[a:b] for a, b in bounds]
    assert all(later[0] <= sooner[1] for sooner, later in itertools.pairwise(bounds)), "no character is lost between windows"
    activations = np.random.default_rng(1).random((len(texts), window)).astype(np.float32)
    flat, offsets = marks_of(activations, *spans_of(token_set, grid.starts, window))
    for row, source in enumerate(texts):
        edges = flat[offsets[row] : offsets[row + 1]].tolist()
        assert edges == sorted(edges)
        assert edges and edges[0] >= 0 and edges[-1] <= len(source)
        marked = source
        for place, sign in [*zip(edges, "«»" * (len(edges) // 2), strict=True)][::-1]:
            marked = marked[:place] + sign + marked[place:]
        assert marked.replace("«", "").replace("»", "") == source
        assert "«»" not in marked


def test_marks_begin_at_three_tenths_of_the_peak_and_adjacent_ones_merge_over_the_space() -> None:
    start, end = np.array([[0, 2, 4, 6, 8, 10]]), np.array([[1, 3, 5, 7, 9, 11]])
    flat, offsets = marks_of(np.array([[10, 3.5, 0, 2.9, 0, 3]], dtype=np.float32), start, end)
    assert flat.tolist() == [0, 3, 10, 11]
    assert offsets.tolist() == [0, 4]


def test_marked_pieces_of_one_character_make_one_mark_and_silent_rows_none() -> None:
    activations = np.array([[0, 0, 0], [1, 0, 1], [0, 0, 0]], dtype=np.float32)
    flat, offsets = marks_of(activations, np.zeros((3, 3), dtype=int), np.ones((3, 3), dtype=int))
    assert flat.tolist() == [0, 1]
    assert offsets.tolist() == [0, 0, 2, 2]
