"""Shards of tokens: where the cuts fall and where a run was broken off changes no byte; the token set reads what was written."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from known_tokenizers import byte_level
from latentry.contracts import TOKENS
from latentry.corpora import tokenise
from latentry.corpora.token_set import TokenSet
from latentry.corpora.token_shards import write_tokens
from latentry.errors import ContractError, CorpusError
from latentry.records import Document
from latentry.sections import TokenSettings
from latentry.store import Work, work

TEXTS = ["sea " * 5, "", "日本 🙂", "a long one, " * 30, " ", "b", "c" * 15, "the last but one " * 9, "", "whales " * 99, "never reached"]
CORPUS = [Document(name=f"row {number}", text=text) for number, text in enumerate(TEXTS)]
SETTINGS = TokenSettings(context=16, n_tokens=16 * 41)
SHARD = 4
N_SHARDS = 11


class Spy:
    """A tokenizer that remembers what it was given."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._inner = byte_level(begins=True)

    def __call__(self, texts: Any, **how: Any) -> Any:
        self.texts += texts if isinstance(texts, list) else []
        return self._inner(texts, **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class FullDisk(Work):
    """A folder on a disk that is full when so many files were written."""

    def __init__(self, folder: Path, room: int) -> None:
        super().__init__(folder, folder, TOKENS)
        self._room = room

    def write_file(self, name: str, *how: Any) -> None:
        if not self._room:
            raise OSError(28, "no space left")
        self._room -= 1
        super().write_file(name, *how)


def broken_off(documents: list[Document], n: int) -> Iterator[Document]:
    yield from documents[:n]
    raise CorpusError("the rest cannot be read")


def write(making: Work, documents: Any = CORPUS, tokenizer: Any = None, shard_contexts: int = SHARD, settings: TokenSettings = SETTINGS):
    making.folder.mkdir(exist_ok=True)
    write_tokens(iter(documents), tokenizer or byte_level(begins=True), settings, making, shard_contexts=shard_contexts)
    return making


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def work_in(folder: Path) -> Work:
    return Work(folder, folder, TOKENS)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """So that shards are committed before all of the corpus is read."""
    monkeypatch.setattr(tokenise, "BATCH_DOCUMENTS", 1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    write(work_in(folder))
    return bytes_in(folder)


def test_a_folder_holds_shards_and_the_documents_they_began_with(whole, tmp_path):
    assert sorted(whole) == ["documents.parquet", *(f"shard-{number:05d}.safetensors" for number in range(N_SHARDS))]
    (tmp_path / "documents.parquet").write_bytes(whole["documents.parquet"])
    table = pq.read_table(tmp_path / "documents.parquet")
    assert table.schema.equals(TOKENS.tables["documents.parquet"])
    wanted = [document for document in CORPUS[:-1] if document.text]
    assert table["name"].to_pylist() == [document.name for document in wanted]
    assert table["text"].to_pylist() == [document.text for document in wanted]
    assert table["document"].to_pylist() == list(range(len(wanted)))


@pytest.mark.parametrize("shard_contexts", [1, 2, 7, 41, 1000])
def test_where_shards_are_cut_changes_no_row(tmp_path, shard_contexts):
    folders = tmp_path / "four", tmp_path / "other"
    counts = [write(work_in(folder), shard_contexts=n).counts for folder, n in zip(folders, (SHARD, shard_contexts), strict=True)]
    shards = [[load_file(path) for path in sorted(folder.glob("shard-*"))] for folder in folders]
    assert [len(shard["tokens"]) for shard in shards[1]][:-1] == [shard_contexts] * (len(shards[1]) - 1)
    for name in ("tokens", "document", "text_start", "text_end", "special"):
        one, other = (np.concatenate([shard[name] for shard in cut]) for cut in shards)
        assert np.array_equal(one, other)
    tables = [pq.read_table(folder / "documents.parquet") for folder in folders]
    assert tables[0].to_pylist() == tables[1].to_pylist()
    assert counts[0] == counts[1] == {"n_contexts": 41, "n_tokens": 16 * 41, "n_special": 41 + 7, "n_documents": 8, "begins_with_bos": True}


@pytest.mark.parametrize("room", range(2 * N_SHARDS + 1))
def test_a_disk_full_at_any_file_costs_one_shard_and_no_byte(tmp_path, whole, room):
    with pytest.raises(OSError, match="no space left"):
        write(FullDisk(tmp_path, room))
    n_committed = len(list(tmp_path.glob("shard-*")))
    spy = Spy()
    write(work_in(tmp_path), tokenizer=spy)
    assert bytes_in(tmp_path) == whole
    assert n_committed == min(room // 2, N_SHARDS)
    assert not set(spy.texts) & texts_that_end_in(tmp_path, n_committed)


def texts_that_end_in(folder: Path, n_shards: int) -> set[str]:
    """Of the documents whose last token, and separator, is in the first shards."""
    ends = np.concatenate(
        [load_file(folder / f"shard-{number:05d}.safetensors")["document"] for number in range(n_shards)] or [np.zeros(0)]
    )
    complete = set(ends.flatten().tolist()) - set(ends.flatten()[-1:].tolist()) - {-1}
    texts = pq.read_table(folder / "documents.parquet")["text"].to_pylist()
    return {texts[int(number)] for number in complete}


@pytest.mark.parametrize(("n", "n_committed"), [(0, 0), (1, 0), (2, 0), (4, 6), (6, 6), (8, 9), (9, 9)])
def test_a_corpus_that_breaks_off_anywhere_costs_no_byte(tmp_path, whole, n, n_committed):
    with pytest.raises(CorpusError, match="cannot be read"):
        write(work_in(tmp_path), broken_off(CORPUS, n))
    assert len(list(tmp_path.glob("shard-*"))) == n_committed
    write(work_in(tmp_path))
    assert bytes_in(tmp_path) == whole


def test_a_run_killed_while_it_cleared_up_is_finished_without_reading_the_corpus(tmp_path, whole):
    making = write(work_in(tmp_path))
    for number in (3, 9):
        shutil.copy(tmp_path / "documents.parquet", tmp_path / f"documents-{number:05d}.parquet")
    again = write(work_in(tmp_path), broken_off(CORPUS, 0))
    assert bytes_in(tmp_path) == whole
    assert again.counts == making.counts


def test_a_corpus_too_short_is_told_the_same_after_a_restart(tmp_path):
    too_much = SETTINGS.model_copy(update={"n_tokens": 16 * 999})
    told = []
    for _ in range(2):
        with pytest.raises(CorpusError, match=r"tokens from 9 documents, `tokens\.n_tokens` of 15984") as caught:
            write(work_in(tmp_path), settings=too_much)
        told.append(str(caught.value))
    assert told[0] == told[1]


@pytest.fixture
def token_set(project) -> TokenSet:
    with work(project / "tokens", TOKENS, cell="tokens", params={}) as making:
        assert making is not None
        write(making)
    return TokenSet(project / "tokens")


def test_the_token_set_reads_what_was_written(token_set):
    shards = [load_file(path) for path in sorted(token_set.folder.glob("shard-*"))]
    assert (token_set.n_contexts, token_set.context) == (41, 16)
    for name in ("tokens", "document", "text_start", "text_end", "special"):
        found, wanted = getattr(token_set, name), np.concatenate([shard[name] for shard in shards])
        assert np.array_equal(found, wanted)
        assert found.dtype == (bool if name == "special" else wanted.dtype)
    assert token_set.texts == [text for text in TEXTS[:-1] if text]
    assert token_set.names[:3] == ["row 0", "row 2", "row 3"]


@pytest.mark.parametrize(("first", "last"), [(0, 41), (0, 1), (3, 5), (4, 8), (5, 30), (40, 41), (7, 7)])
def test_a_range_of_contexts_is_the_same_as_in_the_whole(token_set, first, last):
    found = token_set.rows(first, last)
    assert found.dtype == np.uint32
    assert np.array_equal(found, token_set.tokens[first:last])


def test_a_range_is_read_from_its_own_shards_alone(token_set):
    wanted = token_set.rows(9, 11)
    for path in sorted(token_set.folder.glob("shard-*"))[3:10]:
        path.unlink()
    assert np.array_equal(token_set.rows(9, 11), wanted)


def test_the_token_set_of_an_older_version_says_what_to_rerun(token_set):
    manifest = token_set.folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"version": {TOKENS.version}', '"version": 1'))
    with pytest.raises(ContractError, match=r"holds contract 'tokens' v1, this code reads 'tokens' v2; rerun `dvc repro tokens`"):
        TokenSet(token_set.folder)
