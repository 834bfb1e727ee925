"""Files of others that are damaged, hostile or odd: told by file and line, and never more memory than is bounded."""

import gzip
import json
import os
import re

import pytest

from latentry.errors import ExchangeError
from latentry.exchange import from_rows, reading
from latentry.exchange.reading import Unreadable, csv_rows, json_rows, lines, listed_rows, whole_json


def read(rows):
    return [(row.place, row.why) if isinstance(row, Unreadable) else row for row in rows]


def test_rows_are_read_whatever_begins_and_ends_their_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": "\xc3\xa9"}')
    assert read(json_rows(path, "a.jsonl")) == [("a.jsonl:1", {"a": 1}), ("a.jsonl:3", {"a": "é"})]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "no JSON"),
        (b'{"a": "\xff"}', "no UTF-8 .byte 7 is 0xff"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "no JSON"),
        (b"[1]", "it is list"),
        (b'"text"', "it is str"),
    ],
)
def test_a_row_that_cannot_be_read_is_told_and_the_next_ones_are_read(tmp_path, line, why):
    path = tmp_path / "a.jsonl"
    path.write_bytes(line + b'\n{"a": 1}\n')
    (bad, good) = json_rows(path, "a.jsonl")
    assert bad.place == "a.jsonl:1"
    assert re.search(why, bad.why)
    assert good == ("a.jsonl:2", {"a": 1})


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_lines_longer_than_the_bound_are_passed_over(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(reading, "MAX_LINE", 1000)
    path = tmp_path / f"a.jsonl{ending}"
    content = b'{"a": 1}\n' + b"x" * 12_345 + b'\n{"a": 2}\n' + b"y" * 5000
    path.write_bytes(gzip.compress(content) if ending else content)
    assert [line if line is None else json.loads(line) for _, line in lines(path, "a")] == [{"a": 1}, None, {"a": 2}, None]


@pytest.mark.parametrize("content", [b"\0" * (1 << 20), b"{}\n" * (1 << 16)])
def test_a_file_that_becomes_far_larger_than_text_does_is_refused(tmp_path, monkeypatch, content):
    monkeypatch.setattr(reading, "FREE_GROWTH", 1000)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(ExchangeError, match=r"a\.jsonl\.gz: [\d,]+ bytes become more than"):
        list(json_rows(path, "a.jsonl.gz"))


@pytest.mark.parametrize("content", [gzip.compress(b'{"a": 1}\n' * 100)[:-20], b"no gzip", gzip.compress(b"{}\n") + b"rest"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(ExchangeError, match=r"a\.jsonl\.gz: cannot be read to its end"):
        list(json_rows(path, "a.jsonl.gz"))


def test_what_is_no_regular_file_is_never_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name, said in (("pipe.jsonl", "no regular file"), ("gone.jsonl", "not there"), (".", "no regular file")):
        with pytest.raises(ExchangeError, match=said):
            list(json_rows(tmp_path / name, name))


def test_a_json_file_that_is_too_large_to_read_whole_is_refused(tmp_path):
    (tmp_path / "a.json").write_text("[1, 2, 3]")
    with pytest.raises(ExchangeError, match=r"has 9 bytes; .* at most 8: write it as JSON lines"):
        whole_json(tmp_path / "a.json", "a.json", 8)


@pytest.mark.parametrize("content", ['{"1": "text"}', "[", "[" * 200_000, "3"])
def test_a_json_file_that_is_no_list_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ExchangeError, match=r"a\.json: is no JSON list"):
        list(listed_rows(tmp_path / "a.json", "a.json"))


def test_csv_is_read_row_by_row_and_odd_rows_are_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(
        b'\xef\xbb\xbflatent,text\r\n1,"a ""quoted""\r\ntext"\r\n2,caf\xe9\r\n3,a,b\r\n\r\n4\r\n5,' + b"x" * 200_000 + b"\r\n6,six\r\n"
    )
    found = read(csv_rows(path, "a.csv"))
    assert found[0] == ("a.csv:2", {"latent": "1", "text": 'a "quoted"\r\ntext'})
    assert found[1] == ("a.csv:4", "it is no UTF-8")
    assert found[2] == ("a.csv:5", "it has 3 cells, and there are 2 columns")
    assert found[3] == ("a.csv:7", {"latent": "4"})
    assert found[4][0] == "a.csv:8" and "field larger" in found[4][1]
    assert found[5] == ("a.csv:9", {"latent": "6", "text": "six"})


@pytest.mark.parametrize("rest", ["2,two\n3,three\n", '2,two\n3,"three"\n'])
def test_an_open_quote_takes_no_row_after_it_silently(tmp_path, rest):
    path = tmp_path / "a.csv"
    path.write_text('latent,text\n0,zero\n1,"one\n' + rest)
    found = read(csv_rows(path, "a.csv"))
    assert found[0] == ("a.csv:2", {"latent": "0", "text": "zero"})
    assert found[1][0] == "a.csv:3" and "no row of CSV" in found[1][1]


@pytest.mark.parametrize(
    ("name", "content"), [("a.parquet", b"PAR1 no"), ("a.txt", b"1,a"), ("a.csv", b"x,y\n1,2\n"), ("a.jsonl", b'{"x": 1}\n')]
)
def test_rows_that_name_no_latent_and_files_of_no_known_kind_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ExchangeError, match=name):
        list(from_rows.source(tmp_path / name).rows)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"latent": 3, "index": 4, "text": "a"}', "names its latent as latent 3 and as index 4"),
        ('{"latent": 3, "text": "a", "description": "b"}', "texts differ in text and description"),
        ('{"latent": 3, "latent": 4, "text": "a"}', "'latent' stands twice"),
        ('{"latent": 3, "index": "3.0", "text": "a", "description": " a"}', None),
    ],
)
def test_a_row_that_says_two_things_is_unreadable(tmp_path, line, why):
    path = tmp_path / "a.jsonl"
    path.write_text(line + '\n{"latent": 1, "text": "b"}\n')
    first, _ = from_rows.source(path).rows
    assert isinstance(first, Unreadable) == (why is not None)
    assert why is None or why in first.why


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"latent;text\n1;a\n", "not parted by commas.*'latent;text'.*with commas, in UTF-8"),
        ("latent,text\n1,a\n".encode("utf-16"), "its first line is no UTF-8.*save it as CSV in UTF-8"),
        ("latent,text\n1,a\n".encode("utf-16-le"), "its first line is no UTF-8"),
        (b"", "has no rows; one of latent, feature, index"),
        (b"latent,text\n", "has no rows"),
        (b"number,words\n1,a\n", "no row names its latent, its columns are number, words; "),
        (b"latent,latent,text\n1,2,a\n", "'latent' twice"),
    ],
)
def test_a_csv_file_of_another_form_is_told_with_what_is_wanted(tmp_path, content, told):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(ExchangeError, match=f"^a.csv: .*{told}"):
        list(from_rows.source(path).rows)
