"""Rows of tokens: what every position says of itself, with tokenizers built here whose tokens are known."""

import sys
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tokenizers import Tokenizer, processors, trainers
from tokenizers.models import WordLevel
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from known_tokenizers import END, START, TEXTS, byte_level, word_level
from latentry.contracts import TOKENS
from latentry.corpora.token_shards import NO_DOCUMENT, write_tokens
from latentry.corpora.tokenise import load_tokenizer, tokenised
from latentry.errors import CorpusError
from latentry.records import Document
from latentry.sections import TokenSettings
from latentry.store import Work

ARRAYS = ("tokens", "document", "text_start", "text_end", "special")


@pytest.fixture
def rows(tmp_path_factory):
    """Writes the tokens of some texts in shards of a few contexts, and gives every array whole, with the documents."""

    def written(texts: list[str], tokenizer: PreTrainedTokenizerFast, **changes) -> SimpleNamespace:
        folder = tmp_path_factory.mktemp("tokens")
        documents = [Document(name=str(number), text=text) for number, text in enumerate(texts)]
        asked = TokenSettings(**({"context": 16, "n_tokens": 64} | changes))
        write_tokens(documents, tokenizer, asked, Work(folder, folder, TOKENS), shard_contexts=3)
        shards = [load_file(path) for path in sorted(folder.glob("shard-*"))]
        whole = {name: np.concatenate([shard[name] for shard in shards]) for name in shards[0]}
        return SimpleNamespace(**whole, documents=pq.read_table(folder / "documents.parquet").to_pylist())

    return written


def pieces(found: SimpleNamespace, document: int) -> list[tuple[int, int]]:
    at = found.document.reshape(-1) == document
    return list(zip(found.text_start.reshape(-1)[at].tolist(), found.text_end.reshape(-1)[at].tolist(), strict=True))


@pytest.mark.parametrize("words", [0, 60])
@pytest.mark.parametrize("text", TEXTS)
def test_a_run_of_tokens_cut_from_the_text_by_its_offsets_is_what_the_tokenizer_decodes(rows, text, words):
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
def test_bytes_of_one_character_all_stand_at_that_character(rows, text):
    spans = pieces(rows([text] * 40, byte_level(), n_tokens=16 * 20), 0)
    by_hand = [(place, place + 1) for place, character in enumerate(text) for _ in character.encode()]
    assert spans == by_hand


def test_white_space_before_a_word_is_no_part_of_its_token_unless_it_is_all_of_it(rows):
    text = "sea  sea\n\n sea"
    tokenizer = byte_level(words=0)
    merged = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    merged.train_from_iterator([text, " sea", "\n\n"] * 9, trainers.BpeTrainer(special_tokens=[END, START], show_progress=False))
    found = rows([text] * 30, PreTrainedTokenizerFast(tokenizer_object=merged, eos_token=END), context=8, n_tokens=16)
    cut = [text[start:end] for start, end in pieces(found, 0)]
    assert [piece for piece in cut if piece.strip()] == ["sea", "sea", "sea"]
    assert all(piece == piece.lstrip() or not piece.strip() for piece in cut)


def test_documents_follow_each_other_with_one_separator_that_belongs_to_none(rows):
    found = rows(["a b a", "b", "a a"], word_level(eos_token="[END]"), context=9, n_tokens=9)
    assert found.tokens.tolist() == [[0, 1, 0, 2, 1, 2, 0, 0, 2]]
    assert found.document.tolist() == [[0, 0, 0, NO_DOCUMENT, 1, NO_DOCUMENT, 2, 2, NO_DOCUMENT]]
    assert found.special.tolist() == [[0, 0, 0, 1, 0, 1, 0, 0, 1]]


def test_id_0_is_a_token_like_any_other_until_it_is_special(rows):
    plain = rows(["a b a b"] * 9, word_level(eos_token="[END]"), context=8, n_tokens=16)
    assert not plain.special[plain.tokens == 0].any()
    assert (plain.tokens == 0).sum() >= 4
    as_end = rows(["b b"] * 9, word_level(eos_token="a"), context=8, n_tokens=16)
    assert (as_end.tokens == 0).any()
    assert as_end.special[as_end.tokens == 0].all()
    assert (as_end.document[as_end.tokens == 0] == NO_DOCUMENT).all()


def test_a_named_separator_stands_in_place_of_eos_and_is_special_too(rows):
    found = rows(["a a a"] * 9, word_level(eos_token="[END]"), separator="b", context=8, n_tokens=16)
    assert set(np.unique(found.tokens)) == {0, 1}
    assert np.array_equal(found.special.astype(bool), found.tokens == 1)


def test_rows_begin_with_bos_only_when_the_tokenizer_adds_one_itself(rows):
    adds, does_not = rows(TEXTS * 9, byte_level(begins=True)), rows(TEXTS * 9, byte_level())
    bos = byte_level().convert_tokens_to_ids(START)
    assert (adds.tokens[:, 0] == bos).all()
    assert (adds.document[:, 0] == NO_DOCUMENT).all()
    assert adds.special[:, 0].all()
    assert (adds.tokens[:, 1:] != bos).all()
    assert bos not in does_not.tokens


def test_a_bos_of_id_0_begins_rows_too(rows):
    tokenizer = byte_level(begins=True)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single=f"{END} $A", special_tokens=[(END, 0)])
    both_ends = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, eos_token=START, bos_token=END)
    found = rows(TEXTS * 9, both_ends)
    assert (found.tokens[:, 0] == 0).all()
    assert found.special[:, 0].all()


def test_with_bos_no_token_of_the_text_is_lost_between_rows(rows):
    adds, does_not = rows(TEXTS * 9, byte_level(begins=True)), rows(TEXTS * 9, byte_level())
    body = adds.tokens[:, 1:].reshape(-1)
    assert np.array_equal(body, does_not.tokens.reshape(-1)[: len(body)])


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("n_tokens", [16, 17, 100, 120, 127])
def test_the_budget_is_met_within_one_context(rows, n_tokens, begins):
    found = rows(TEXTS * 9, byte_level(begins=begins), n_tokens=n_tokens)
    assert found.tokens.shape[1] == 16
    assert abs(found.tokens.size - n_tokens) < 16


def test_a_corpus_that_is_too_short_says_what_it_gives_and_what_to_change(rows):
    wanted = r"gives 25 tokens from 2 documents, `tokens\.n_tokens` of 100, in contexts of 16, needs 96; lower it"
    with pytest.raises(CorpusError, match=wanted):
        rows(["a b " * 11, "", "b"], word_level(eos_token="[END]"), n_tokens=100)


def test_a_corpus_shorter_than_one_context_says_so(rows):
    wanted = r"gives 5 tokens from 2 documents, fewer than one context: `tokens\.context` is 16; lower it"
    with pytest.raises(CorpusError, match=wanted):
        rows(["a b", "b"], word_level(eos_token="[END]"), n_tokens=16)


def test_a_corpus_of_just_enough_tokens_is_enough(rows):
    assert rows(["a " * 15], word_level(eos_token="[END]"), n_tokens=16).tokens.shape == (1, 16)


@pytest.mark.parametrize("texts", [[], [""], ["", "  ", "\n"]])
def test_a_corpus_without_text_says_so(rows, texts):
    with pytest.raises(CorpusError, match="the corpus has no text"):
        rows(texts, word_level(eos_token="[END]"))


@pytest.mark.parametrize("token", [END, START])
def test_the_literal_text_of_a_special_token_in_a_document_is_masked_by_its_id(rows, token):
    tokenizer = byte_level()
    text = f"one {token} two"
    found = rows([text] * 30, tokenizer)
    inside = (found.document == 0) & (found.tokens == tokenizer.convert_tokens_to_ids(token))
    assert inside.sum() == 1
    assert found.special[inside].all()
    at = int(np.flatnonzero(inside.reshape(-1))[0])
    assert text[found.text_start.reshape(-1)[at] : found.text_end.reshape(-1)[at]] == token


def test_tokens_named_special_are_masked_wherever_they_stand(rows):
    found = rows(["a b a b"] * 40, word_level(eos_token="[END]"), special_tokens=("b",))
    assert np.array_equal(found.special.astype(bool), np.isin(found.tokens, [1, 2, 3]))


@pytest.mark.parametrize("named", [{"separator": "<|none|>"}, {"special_tokens": ("<|none|>",)}])
@pytest.mark.parametrize("tokenizer", [byte_level(), word_level(eos_token="[END]")], ids=["byte-level", "word-level"])
def test_a_separator_or_special_token_that_the_tokenizer_lacks_is_told(rows, tokenizer, named):
    with pytest.raises(CorpusError, match=rf"tokens\.{next(iter(named))}: .*<\|none\|>"):
        rows(TEXTS * 9, tokenizer, **named)


def test_a_tokenizer_without_eos_needs_a_separator(rows):
    with pytest.raises(CorpusError, match=r"tokens\.separator: the tokenizer has no EOS"):
        rows(["a b"] * 40, word_level())


def test_each_document_gives_no_more_than_its_share_and_only_its_beginning(rows):
    text = "a b a b b b b"
    found = rows([text] * 20, word_level(eos_token="[END]"), tokens_per_document=4, context=10, n_tokens=50)
    assert found.tokens.tolist() == [[0, 1, 0, 1, 2] * 2] * 5
    assert [text[start:end] for start, end in pieces(found, 3)] == ["a", "b", "a", "b"]


def test_only_documents_with_a_token_in_the_rows_are_kept_and_numbers_are_their_places(rows):
    found = rows(["", "a b", "", "b a b", "a a a a a a a a a"], word_level(eos_token="[END]"), context=8, n_tokens=8)
    assert [(row["document"], row["name"]) for row in found.documents] == [(0, "1"), (1, "3"), (2, "4")]
    assert found.document.max() == 2


def test_more_documents_than_one_batch_come_in_their_order(rows):
    found = rows([f"{'a ' * (number % 3 + 1)}" for number in range(150)], word_level(eos_token="[END]"), context=10, n_tokens=440)
    lengths = [int((found.document == number).sum()) for number in range(140)]
    assert lengths == [number % 3 + 1 for number in range(140)]


def test_a_tokenizer_that_is_not_fast_or_not_there_is_refused_and_a_fast_one_comes_back(tmp_path):
    for name, tokenizer in (("fast", byte_level()), ("slow", ByT5Tokenizer())):
        tokenizer.save_pretrained(tmp_path / name)
    assert load_tokenizer(tmp_path / "fast")("A plain")["input_ids"] == byte_level()("A plain")["input_ids"]
    with pytest.raises(CorpusError, match=r"slow: its tokenizer gives no character offsets; a fast tokenizer"):
        load_tokenizer(tmp_path / "slow")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match=r"empty: holds no tokenizer that can be loaded"):
        load_tokenizer(tmp_path / "empty")


def as_before(found: SimpleNamespace, wanted: SimpleNamespace) -> bool:
    return all(np.array_equal(getattr(found, name), getattr(wanted, name)) for name in ARRAYS)


@pytest.mark.parametrize("side", ["left", "right"])
def test_how_a_tokenizer_pads_and_cuts_changes_nothing_and_its_padding_is_special(rows, side):
    texts = [*TEXTS, "b " * 40, f"{START} as text"] * 9
    plain = byte_level()
    padding = byte_level()
    padding.pad_token, padding.padding_side, padding.truncation_side = START, side, side
    padding.backend_tokenizer.enable_padding(direction=side, pad_id=1, pad_token=START, length=64)
    padding.backend_tokenizer.enable_truncation(5, direction=side)
    found = rows(texts, padding, n_tokens=16 * 30)
    assert as_before(found, rows(texts, plain, n_tokens=16 * 30))
    assert (found.tokens == padding.pad_token_id).any()
    assert found.special[found.tokens == padding.pad_token_id].all()


def test_a_padding_token_of_id_0_is_masked_where_the_text_has_it(rows):
    found = rows(["a b b"] * 40, word_level(eos_token="[END]", pad_token="a"))
    assert np.array_equal(found.special.astype(bool), np.isin(found.tokens, [0, 2, 3]))


def test_a_tokenizer_without_bos_eos_and_attention_mask_does_with_a_separator(rows):
    bare = rows(["a b a"] * 40, word_level(model_input_names=["input_ids"]), separator="[UNK]")
    assert bare.tokens.reshape(-1)[:8].tolist() == [0, 1, 0, 3, 0, 1, 0, 3]
    assert np.array_equal(bare.special.astype(bool), bare.tokens == 3)


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("begins", [True, False])
def test_bos_begins_rows_when_the_params_say_so_whatever_the_tokenizer_does(rows, begins, adds):
    tokenizer = byte_level(begins=adds)
    found = rows(TEXTS * 9, tokenizer, prepend_bos=begins)
    by_itself = rows(TEXTS * 9, byte_level(begins=begins))
    assert as_before(found, by_itself)
    assert ((found.tokens[:, 0] == tokenizer.bos_token_id) == begins).all()


def test_bos_asked_of_a_tokenizer_that_has_none_is_told(rows):
    with pytest.raises(CorpusError, match=r"tokens\.prepend_bos: is true, and the tokenizer has no BOS token; set it to false"):
        rows(["a b"] * 40, word_level(eos_token="[END]"), prepend_bos=True)


def one_token_each() -> PreTrainedTokenizerFast:
    """Every text, white space and all, is one unknown token."""
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "[END]": 1}, unk_token="[UNK]"))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", eos_token="[END]")


def test_all_white_space_of_unicode_is_trimmed_and_nothing_else(rows):
    white = [chr(point) for point in range(sys.maxunicode + 1) if chr(point).isspace()]
    others = list("\u200b\ufeff\x00_.") + [chr(ord(one) + 1) for one in white if not chr(ord(one) + 1).isspace()]
    found = rows([f"{one}x{one}" for one in [*white, *others]], one_token_each(), context=8, n_tokens=2 * len([*white, *others]) // 8 * 8)
    text = found.document != NO_DOCUMENT
    begins = dict(zip(found.document[text].tolist(), found.text_start[text].tolist(), strict=True))
    assert begins == {number: int(number < len(white)) for number in begins}
    assert len(begins) > len(white)


@settings(max_examples=60, deadline=None)
@given(text=st.lists(st.sampled_from([*"ab \n\t\u3000\xa0é🙂", " and", " plain", "  ", "\n\n"]), min_size=1, max_size=60).map("".join))
def test_where_tokens_begin_is_what_stripping_each_of_them_gives(text):
    tokenizer = byte_level(words=60)
    (_, found), *_ = tokenised([Document(name="", text=text)], tokenizer, None)
    plain = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    by_hand = []
    for token, (start, end) in zip(plain["input_ids"], plain["offset_mapping"], strict=True):
        stripped = text[start:end].lstrip()
        by_hand.append([token, end - len(stripped) if stripped else start, end])
    assert found.tolist() == by_hand
