"""Rows of tokens: what every position says of itself, with tokenizers built here whose tokens are known."""

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers.models import BPE, WordLevel
from transformers import PreTrainedTokenizerFast

from latentry.corpora.token_set import TokenSet
from latentry.corpora.tokenise import NO_DOCUMENT, Rows, load_tokenizer, rows_of
from latentry.errors import CorpusError
from latentry.records import Document
from planted_folders import token_folder

TEXTS = [
    "A plain line.  Two spaces,\nnew line\n\n  and a tail ",
    "日本語の文章です。漢字かな交じり",
    "🙂👩\u200d👩\u200d👧 flags 🇫🇷 and 👍🏽",
    "שלום עולם، مرحبا بالعالم",
    "e\u0301 a\u0308 \u200b zero\r\nCRLF\ttab",
]
END, START = "<|end|>", "<|start|>"


def byte_level(*, begins: bool = False, words: int = 0) -> PreTrainedTokenizerFast:
    """Every byte a token, `<|end|>` being id 0; with `words`, merges learnt from the texts on top; with `begins`, a BOS before each text."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=258 + words, special_tokens=[END, START], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if begins:
        template = processors.TemplateProcessing(single=f"{START} $A", special_tokens=[(START, tokenizer.token_to_id(START))])
        tokenizer.post_processor = template
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=START)


def word_level(**special: str) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1, "[END]": 2, "[UNK]": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", **special)


def rows(texts: list[str], tokenizer: PreTrainedTokenizerFast, **changes) -> Rows:
    settings = {"context": 16, "n_tokens": 64, "tokens_per_document": None, "separator": None, "special_tokens": ()}
    documents = [Document(name=str(number), text=text) for number, text in enumerate(texts)]
    return rows_of(documents, tokenizer, **(settings | changes))


def pieces(found: Rows, document: int) -> list[tuple[int, int]]:
    at = found.document.reshape(-1) == document
    return list(zip(found.text_start.reshape(-1)[at].tolist(), found.text_end.reshape(-1)[at].tolist(), strict=True))


@pytest.mark.parametrize("words", [0, 60])
@pytest.mark.parametrize("text", TEXTS)
def test_a_run_of_tokens_cut_from_the_text_by_its_offsets_is_what_the_tokenizer_decodes(text, words):
    tokenizer = byte_level(words=words)
    found = rows([text] * 40, tokenizer, n_tokens=16 * 20)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    spans = pieces(found, 0)
    assert len(spans) == len(ids)
    covered = "".join(
        text[start:end] for start, end in zip([0, *[end for _, end in spans[:-1]]], [end for _, end in spans], strict=True) if end > start
    )
    assert covered == text
    for first in range(0, len(ids), 3):
        for last in range(first + 1, len(ids) + 1, 4):
            decoded = tokenizer.decode(ids[first:last], clean_up_tokenization_spaces=False)
            if "\ufffd" not in decoded:
                assert text[spans[first][0] : spans[last - 1][1]].strip() == decoded.strip()


@pytest.mark.parametrize("text", TEXTS)
def test_bytes_of_one_character_all_stand_at_that_character(text):
    spans = pieces(rows([text] * 40, byte_level(), n_tokens=16 * 20), 0)
    by_hand = [(place, place + 1) for place, character in enumerate(text) for _ in character.encode()]
    assert spans == by_hand


def test_white_space_before_a_word_is_no_part_of_its_token_unless_it_is_all_of_it():
    text = "sea  sea\n\n sea"
    tokenizer = byte_level(words=0)
    merged = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    merged.train_from_iterator([text, " sea", "\n\n"] * 9, trainers.BpeTrainer(special_tokens=[END, START], show_progress=False))
    found = rows([text] * 30, PreTrainedTokenizerFast(tokenizer_object=merged, eos_token=END), context=8, n_tokens=16)
    cut = [text[start:end] for start, end in pieces(found, 0)]
    assert [piece for piece in cut if piece.strip()] == ["sea", "sea", "sea"]
    assert all(piece == piece.lstrip() or not piece.strip() for piece in cut)


def test_documents_follow_each_other_with_one_separator_that_belongs_to_none():
    found = rows(["a b a", "b", "a a"], word_level(eos_token="[END]"), context=9, n_tokens=9)
    assert found.tokens.tolist() == [[0, 1, 0, 2, 1, 2, 0, 0, 2]]
    assert found.document.tolist() == [[0, 0, 0, NO_DOCUMENT, 1, NO_DOCUMENT, 2, 2, NO_DOCUMENT]]
    assert found.special.tolist() == [[0, 0, 0, 1, 0, 1, 0, 0, 1]]


def test_id_0_is_a_token_like_any_other_until_it_is_special():
    plain = rows(["a b a b"] * 9, word_level(eos_token="[END]"), context=8, n_tokens=16)
    assert not plain.special[plain.tokens == 0].any()
    assert (plain.tokens == 0).sum() >= 4
    as_end = rows(["b b"] * 9, word_level(eos_token="a"), context=8, n_tokens=16)
    assert (as_end.tokens == 0).any()
    assert as_end.special[as_end.tokens == 0].all()
    assert (as_end.document[as_end.tokens == 0] == NO_DOCUMENT).all()


def test_a_named_separator_stands_in_place_of_eos_and_is_special_too():
    found = rows(["a a a"] * 9, word_level(eos_token="[END]"), separator="b", context=8, n_tokens=16)
    assert set(np.unique(found.tokens)) == {0, 1}
    assert np.array_equal(found.special.astype(bool), found.tokens == 1)


def test_rows_begin_with_bos_only_when_the_tokenizer_adds_one_itself():
    adds, does_not = rows(TEXTS * 9, byte_level(begins=True)), rows(TEXTS * 9, byte_level())
    bos = byte_level().convert_tokens_to_ids(START)
    assert (adds.tokens[:, 0] == bos).all()
    assert (adds.document[:, 0] == NO_DOCUMENT).all()
    assert adds.special[:, 0].all()
    assert (adds.tokens[:, 1:] != bos).all()
    assert bos not in does_not.tokens


def test_a_bos_of_id_0_begins_rows_too():
    tokenizer = byte_level(begins=True)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single=f"{END} $A", special_tokens=[(END, 0)])
    both_ends = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, eos_token=START, bos_token=END)
    found = rows(TEXTS * 9, both_ends)
    assert (found.tokens[:, 0] == 0).all()
    assert found.special[:, 0].all()


def test_with_bos_no_token_of_the_text_is_lost_between_rows():
    adds, does_not = rows(TEXTS * 9, byte_level(begins=True)), rows(TEXTS * 9, byte_level())
    body = adds.tokens[:, 1:].reshape(-1)
    assert np.array_equal(body, does_not.tokens.reshape(-1)[: len(body)])


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("n_tokens", [16, 17, 100, 120, 127])
def test_the_budget_is_met_within_one_context(n_tokens, begins):
    found = rows(TEXTS * 9, byte_level(begins=begins), n_tokens=n_tokens)
    assert found.tokens.shape[1] == 16
    assert abs(found.tokens.size - n_tokens) < 16


def test_a_corpus_that_is_too_short_says_what_it_gives_and_what_to_change():
    with pytest.raises(CorpusError, match=r"gives 5 tokens from 2 documents, `tokens\.n_tokens` asks for 100; lower it"):
        rows(["a b", "b"], word_level(eos_token="[END]"), n_tokens=100)


def test_a_corpus_of_just_enough_tokens_is_enough():
    assert rows(["a " * 15], word_level(eos_token="[END]"), n_tokens=16).tokens.shape == (1, 16)


@pytest.mark.parametrize("texts", [[], [""], ["", "  ", "\n"]])
def test_a_corpus_without_text_says_so(texts):
    with pytest.raises(CorpusError, match="the corpus has no text"):
        rows(texts, word_level(eos_token="[END]"))


@pytest.mark.parametrize("token", [END, START])
def test_the_literal_text_of_a_special_token_in_a_document_is_masked_by_its_id(token):
    tokenizer = byte_level()
    text = f"one {token} two"
    found = rows([text] * 30, tokenizer)
    inside = (found.document == 0) & (found.tokens == tokenizer.convert_tokens_to_ids(token))
    assert inside.sum() == 1
    assert found.special[inside].all()
    at = int(np.flatnonzero(inside.reshape(-1))[0])
    assert text[found.text_start.reshape(-1)[at] : found.text_end.reshape(-1)[at]] == token


def test_tokens_named_special_are_masked_wherever_they_stand():
    found = rows(["a b a b"] * 40, word_level(eos_token="[END]"), special_tokens=("b",))
    assert np.array_equal(found.special.astype(bool), np.isin(found.tokens, [1, 2, 3]))


@pytest.mark.parametrize("named", [{"separator": "<|none|>"}, {"special_tokens": ("<|none|>",)}])
@pytest.mark.parametrize("tokenizer", [byte_level(), word_level(eos_token="[END]")], ids=["byte-level", "word-level"])
def test_a_separator_or_special_token_that_the_tokenizer_lacks_is_told(tokenizer, named):
    with pytest.raises(CorpusError, match=rf"tokens\.{next(iter(named))}: .*<\|none\|>"):
        rows(TEXTS * 9, tokenizer, **named)


def test_a_tokenizer_without_eos_needs_a_separator():
    with pytest.raises(CorpusError, match=r"tokens\.separator: the tokenizer has no EOS"):
        rows(["a b"] * 40, word_level())


def test_each_document_gives_no_more_than_its_share_and_only_its_beginning():
    text = "a b a b b b b"
    found = rows([text] * 20, word_level(eos_token="[END]"), tokens_per_document=4, context=5, n_tokens=50)
    assert found.tokens.tolist() == [[0, 1, 0, 1, 2]] * 10
    assert [text[start:end] for start, end in pieces(found, 3)] == ["a", "b", "a", "b"]


def test_only_documents_with_a_token_in_the_rows_are_kept_and_numbers_are_their_places():
    found = rows(["", "a b", "", "b a b", "a a a a a a a a a"], word_level(eos_token="[END]"), context=8, n_tokens=8)
    assert [document.name for document in found.documents] == ["1", "3", "4"]
    assert found.document.max() == 2


def test_more_documents_than_one_batch_come_in_their_order():
    found = rows([f"{'a ' * (number % 3 + 1)}" for number in range(150)], word_level(eos_token="[END]"), context=10, n_tokens=440)
    lengths = [int((found.document == number).sum()) for number in range(140)]
    assert lengths == [number % 3 + 1 for number in range(140)]


def test_a_slow_tokenizer_is_refused_and_a_fast_one_comes_back(tmp_path):
    byte_level().save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path)("A plain")["input_ids"] == byte_level()("A plain")["input_ids"]


@pytest.mark.usefixtures("project")
def test_the_token_set_reads_what_was_written(tmp_path):
    tokens, special = np.arange(12).reshape(3, 4), np.eye(3, 4)
    found = TokenSet(token_folder(tmp_path / "tokens", tokens, special, texts=["日本 🙂\r\n", ""]))
    assert (found.n_contexts, found.context) == (3, 4)
    assert np.array_equal(found.tokens, tokens)
    assert np.array_equal(found.special, special.astype(bool))
    assert found.special.dtype == bool
    assert found.texts == ["日本 🙂\r\n", ""]
