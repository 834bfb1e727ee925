"""From a text through a tokenizer of each common kind to what a judge reads: the very same characters, marks around the right ones.

The tokenizers are built here as their models build them: GPT-2 (byte level), NeoX (the same with runs of spaces as added
tokens), Llama (SentencePiece's BPE: a space before the text, byte fallback) and Gemma (the same without that space).
"""

import unicodedata
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from latentry.corpora.tokenise import tokenised
from latentry.errors import CorpusError
from latentry.prompts import marked, neutral, unmarked
from latentry.records import Document, Kind, Split
from latentry.sampling.grid import grid_of
from latentry.sampling.tables import WINDOWS, Drawn, examples_table
from planted_corpus import PlantedTokens, tokens_of

LEARNT = [
    "the whale swam  round the ship, and the sea was calm",
    "naïve café — “quoted” text",
    "日本語の文章です。漢字",
    "שלום עולם مرحبا",
] * 4
END = "</s>"
SAMPLES = {
    "double spaces": "two  spaces   three    four     and     five",
    "chinese": "我们在海上看见了一条白色的鲸鱼，它很大。然后它游走了",
    "emoji": "ok 👩‍👩‍👧‍👦 and 🙂🙂 then 🇯🇵 👍🏽 end of it all",
    "right to left": "שלום לכם, مرحبا بالعالم الكبير ثم وداعا",
    "newlines": "one\n\ntwo\r\nthree\n    indented\n\tand a tab\n",
    "bytes": "ȹ Ꮎ 𝕏 ⁂ ☃ ﷽ ᚠᛇᚻ and e\u0301a\u0300 combined, zero\u200bwidth",
}


def _byte_level() -> Tokenizer:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=340, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(LEARNT, trainer)
    return tokenizer


def _neox() -> Tokenizer:
    tokenizer = _byte_level()
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(2, 9)])
    return tokenizer


def _sentencepiece(normalizer: normalizers.Normalizer) -> Tokenizer:
    trained = Tokenizer(BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    trained.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>", END, *(f"<0x{byte:02X}>" for byte in range(256))], limit_alphabet=40, show_progress=False
    )
    trained.train_from_iterator(LEARNT, trainer)
    trained.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return trained


def _llama() -> Tokenizer:
    return _sentencepiece(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]))


def _gemma() -> Tokenizer:
    return _sentencepiece(normalizers.Replace(" ", "▁"))


KINDS: dict[str, Callable[[], Tokenizer]] = {"gpt-2": _byte_level, "neox": _neox, "llama": _llama, "gemma": _gemma}


@cache
def tokenizer_of(kind: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=KINDS[kind](), eos_token=END)


def pieces_of(text: str, kind: str) -> list[tuple[int, int, int]]:
    """Id, first character and one past the last of each token, as the stage `tokens` has them."""
    ((_, pieces),) = tokenised([Document(name="one", text=text)], tokenizer_of(kind), None)
    return [tuple(piece) for piece in pieces.tolist()]


def token_set_of(text: str, kind: str) -> PlantedTokens:
    """One row that holds the whole text."""
    pieces = pieces_of(text, kind)
    return tokens_of([text], len(pieces) + 1, lambda _: pieces)


def examples_of(token_set: PlantedTokens, window: int, seed: int) -> list[dict]:
    """Every window of the grid as a row, with activations at random."""
    grid, rng = grid_of(token_set, window), np.random.default_rng(seed)
    n = grid.n_windows
    activations = np.where(rng.random((n, window)) < 0.4, rng.random((n, window)), 0).astype(np.float32)
    drawn = Drawn(
        latent=0,
        split=Split.EXPLAIN,
        kind=Kind.ACTIVATING,
        contrast="",
        sources=(WINDOWS,),
        part=np.zeros(n, dtype=np.int64),
        supplier=np.full(n, -1),
        window=np.arange(n),
        starts=grid.starts,
        decile=np.ones(n, dtype=np.int8),
        activations=activations,
    )
    return examples_table([drawn], grid, token_set).to_pylist()


def check(text: str, kind: str, window: int, seed: int) -> None:
    token_set = token_set_of(text, kind)
    starts, done = grid_of(token_set, window).starts, 0
    for row, start in zip(examples_of(token_set, window, seed), starts.tolist(), strict=True):
        begin, end = int(token_set.text_start.flat[start]), int(token_set.text_end.flat[start + window - 1])
        shown = row["text"]
        assert shown == text[begin:end]
        if kind != "neox" or unicodedata.is_normalized("NFC", text):
            assert not text[done:begin].strip(), "between two windows stands nothing but white space"
        done = max(done, end)
        assert unmarked(marked(shown, row["marks"])) == neutral(shown)
        assert len(neutral(shown)) == len(shown)
        check_marks(row)


def check_marks(row: dict) -> None:
    """A character is marked exactly if a token of at least three tenths of the peak holds it, or it stands between two such tokens in a row."""
    text, spans, activations = row["text"], pairs(row["spans"]), row["activations"]
    strong = [a > 0 and a >= 0.3 * max(activations) for a in activations]
    expected = np.zeros(len(text), dtype=bool)
    for token, (start, end) in enumerate(spans):
        if strong[token]:
            expected[start:end] = True
            if token + 1 < len(spans) and strong[token + 1]:
                expected[start : spans[token + 1][1]] = True
    found = np.zeros(len(text), dtype=bool)
    for start, end in pairs(row["marks"]):
        found[start:end] = True
    assert np.array_equal(found, expected), (text, np.flatnonzero(found != expected), row["marks"], spans)


def pairs(flat: list[int]) -> list[tuple[int, int]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("window", [1, 5])
def test_what_is_read_is_the_source_with_marks_around_the_right_characters(kind: str, sample: str, window: int) -> None:
    check(SAMPLES[sample], kind, window, seed=1)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(
    text=st.text(st.one_of(st.sampled_from("ab  \n\t<>|é日🙂👍🏽שل‍▁Ġ"), st.characters(exclude_categories=["Cs"])), min_size=1, max_size=40),
    window=st.integers(1, 6),
)
def test_any_text_comes_back_and_removing_the_marks_returns_it(kind: str, text: str, window: int) -> None:
    try:
        check(text, kind, window, seed=len(text))
    except CorpusError as error:  # shorter than a window, or nothing but what is special
        assert "no document has" in str(error) or "has no text" in str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_of_these_kinds_are_what_they_are_called(kind: str) -> None:
    """That the tests above see what they are meant to: pieces of bytes, runs of spaces, a space before the text."""
    ids = tokenizer_of(kind)("🙂  ☃", add_special_tokens=False)["input_ids"]
    names = tokenizer_of(kind).convert_ids_to_tokens(ids)
    if kind in ("llama", "gemma"):
        assert "<0xF0>" in names
        assert (names[0] in ("▁", "<0x20>")) == (kind == "llama")
    else:
        assert sum(len(name) == 1 for name in names) >= 4
        assert any(name in ("  ", "ĠĠ") for name in names) == (kind == "neox") or kind == "gpt-2"


def test_a_combining_mark_that_the_normaliser_joins_to_its_letter_is_in_that_letters_token() -> None:
    assert [(start, end) for _, start, end in pieces_of("e\u0301 a", "neox")][-1] == (3, 4)
    assert max(end for _, start, end in pieces_of("e\u0301 a", "neox") if start == 0) == 2
