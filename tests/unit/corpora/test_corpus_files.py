"""Files become documents character by character, or an error that says which file and row."""

import gzip
import json
import lzma
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from latentry.corpora.files import Config, build
from latentry.errors import CorpusError

TEXTS = ["日本語 🙂  double\r\nCRLF\rCR\n\ttab", "שלום\u2028עולם \x0b\x85 e\u0301", ""]


def documents(path: Path, **config) -> list[tuple[str, str]]:
    return [(document.name, document.text) for document in build(Config(kind="files", path=str(path), **config)).documents()]


def plain(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def xz(path: Path, content: bytes) -> None:
    path.write_bytes(lzma.compress(content))


def gz(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content))


PACKED = [("", plain), (".xz", xz), (".gz", gz)]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("ending", "write"), PACKED)
def test_a_text_file_is_one_document_with_its_very_characters(tmp_path, text, ending, write):
    path = tmp_path / f"chapter.txt{ending}"
    write(path, text.encode())
    assert documents(path) == [(path.name, text)]


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize(("ending", "write"), PACKED)
def test_each_json_line_is_a_document_and_empty_lines_are_none(tmp_path, ending, write, ascii_only):
    path = tmp_path / f"rows.jsonl{ending}"
    rows = [{"name": f"row {number}", "text": text, "more": 1} for number, text in enumerate(TEXTS)]
    write(path, "\n\n".join(json.dumps(row, ensure_ascii=ascii_only) for row in rows).encode() + b"\n")
    assert documents(path) == [(row["name"], row["text"]) for row in rows]


def test_each_parquet_row_is_a_document(tmp_path):
    pq.write_table(pa.table({"body": TEXTS, "name": [7, None, 9], "x": [1, 2, 3]}), tmp_path / "rows.parquet")
    found = documents(tmp_path / "rows.parquet", text="body")
    assert found == [("7", TEXTS[0]), ("rows.parquet:2", TEXTS[1]), ("9", TEXTS[2])]


def test_a_document_without_a_name_is_called_by_its_file_and_line(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n\n{"text": "b", "title": "B"}\n')
    assert [name for name, _ in documents(tmp_path / "rows.jsonl")] == ["rows.jsonl:1", "rows.jsonl:3"]
    assert [name for name, _ in documents(tmp_path / "rows.jsonl", name="title")] == ["rows.jsonl:1", "B"]


def test_a_folder_is_read_in_the_order_of_its_names_and_other_files_are_left(tmp_path):
    for name in ("b.txt", "a.md", "c.jpg", "sub"):
        (tmp_path / name).write_text(name) if name != "sub" else (tmp_path / name).mkdir()
    (tmp_path / "sub" / "d.txt").write_text("d.txt")
    gz(tmp_path / "aa.txt.gz", b"aa")
    gz(tmp_path / "archive.tar.gz", b"no text")
    assert [name for name, _ in documents(tmp_path)] == ["a.md", "aa.txt.gz", "b.txt", "d.txt"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', "line 2"),
        ("rows.jsonl", b'{"text": "a"}\n{"text": \n', "line 2"),
        ("rows.jsonl", b'["text"]\n', "line 1"),
        ("rows.jsonl", b'"text"\n', "line 1"),
        ("rows.jsonl", b'{"text": null}\n', "rows.jsonl:1: 'text' holds NoneType"),
        ("rows.jsonl", b'{"text": 3}\n', "rows.jsonl:1: 'text' holds int"),
        ("a.txt", b"\xff\xfe", "a.txt: cannot be read"),
        ("a.txt.xz", b"no xz", "a.txt.xz: cannot be read"),
        ("a.txt.xz", lzma.compress(b"a" * 999)[:-9], "a.txt.xz: cannot be read"),
        ("a.txt.gz", b"no gz", "a.txt.gz: cannot be read"),
        ("a.txt.gz", gzip.compress(b"a" * 999)[:-9], "a.txt.gz: cannot be read"),
        ("a.txt.gz", gzip.compress(bytes(range(256)))[:20] + b"\xff" * 40, "a.txt.gz: cannot be read"),
        ("rows.parquet", b"no parquet", "rows.parquet: cannot be read"),
        ("picture.jpg", b"", "unknown kind of file"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_file_and_row(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=said):
        documents(tmp_path / name)


@pytest.mark.parametrize("row", [b'{"text": "a \\ud83d b"}', b'{"text": "b", "name": "\\ud83d"}'])
def test_half_a_character_is_told_with_its_place_and_what_to_do(tmp_path, row):
    (tmp_path / "rows.jsonl").write_bytes(b'{"text": "\\ud83d\\ude42"}\n' + row)
    with pytest.raises(CorpusError, match=r"^rows\.jsonl:2: holds half a character .*; put the whole character in its place"):
        documents(tmp_path / "rows.jsonl")


@pytest.mark.parametrize(("ending", "write"), PACKED)
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path, ending, write):
    for name, content in (("a.txt", "sea"), ("b.jsonl", '{"text": "sea"}')):
        write(tmp_path / (name + ending), content.encode("utf-8-sig"))
    assert [text for _, text in documents(tmp_path)] == ["sea", "sea"]


def test_a_missing_column_is_told_with_those_there_are(tmp_path):
    pq.write_table(pa.table({"body": ["a"], "id": [1]}), tmp_path / "rows.parquet")
    with pytest.raises(CorpusError, match=r"has no column 'text' \(there are: body, id\)"):
        documents(tmp_path / "rows.parquet")


def test_a_path_that_is_not_there_or_holds_no_text_files_is_told(tmp_path):
    with pytest.raises(CorpusError, match=r"nowhere is not there"):
        documents(tmp_path / "nowhere")
    with pytest.raises(CorpusError, match=r"holds no \.txt, \.md, \.jsonl, \.parquet file"):
        documents(tmp_path)


def test_the_digest_follows_what_is_read_and_nothing_else(tmp_path):
    def digest() -> str:
        return build(Config(kind="files", path=str(tmp_path))).digest()

    (tmp_path / "a.txt").write_text("sea")
    first = digest()
    (tmp_path / "picture.jpg").write_bytes(b"\xff")
    os.utime(tmp_path / "a.txt", (1, 1))
    assert digest() == first
    (tmp_path / "a.txt").write_text("sew")
    changed = digest()
    (tmp_path / "a.txt").rename(tmp_path / "b.txt")
    renamed = digest()
    (tmp_path / "c.md").write_text("")
    assert len({first, changed, renamed, digest()}) == 4


def test_the_digest_of_nothing_is_an_error_as_its_documents_are(tmp_path):
    with pytest.raises(CorpusError, match=r"nowhere is not there"):
        build(Config(kind="files", path=str(tmp_path / "nowhere"))).digest()


def test_a_parquet_file_of_many_rows_comes_row_by_row_in_its_order(tmp_path):
    texts = [str(number) for number in range(1000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "rows.parquet", row_group_size=150)
    assert documents(tmp_path) == [(f"rows.parquet:{number + 1}", text) for number, text in enumerate(texts)]
