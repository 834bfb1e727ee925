"""Explanations of a file: what is taken, and what is told instead of being taken."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fakes import ask_by
from latentry.errors import ParamsError
from latentry.explainers import fixed
from latentry.explainers.base import LatentExamples, SaeFacts
from latentry.records import Explanation, Split, Status
from planted_windows import window

SAE = SaeFacts(name="planted", width=10, promoted=dict)


def latent(number: int = 1) -> LatentExamples:
    return LatentExamples(latent=number, status=Status.OK, detail="", examples=(window(number, 0, "tax", split=Split.EXPLAIN),))


def explained(*latents: LatentExamples, **settings: Any) -> list[Explanation]:
    config = fixed.Config(kind="fixed", **settings)
    return fixed.build(config, "named", 0, lambda _: ask_by(lambda _: pytest.fail("asked")), SAE).explain(latents)


ROWS = [{"latent": 1, "text": "taxes"}, {"latent": 2, "text": " of  the sea "}]


def write(path: Path, rows: list[Any]) -> Path:
    """A file of explanations, in the format of its name."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        names = list(rows[0])
        path.write_text("\n".join([",".join(names), *(",".join(str(row.get(name, "")) for name in names) for row in rows)]) + "\n")
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        path.write_text(json.dumps(rows))
    return path


def fixed_rows(path: Path, *numbers: int, **settings: Any) -> list[Explanation]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return explained(*map(latent, numbers), path=str(path), sha256=digest, **settings)


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl", "a.json"])
def test_texts_of_a_file_are_the_explanations_and_the_rest_is_unsupported(tmp_path, name):
    one, two, three = fixed_rows(write(tmp_path / name, ROWS), 1, 2, 3)
    assert (one.text, two.text, three.text) == ("taxes", "of the sea", None)
    assert (one.status, three.status, one.reply_key) == (Status.OK, Status.UNSUPPORTED, None)


def test_neuronpedia_rows_and_rows_of_other_saes_and_explainers_are_told_apart(tmp_path):
    rows = [{"modelId": "m", "layer": "6-res", "index": "1", "description": "taxes"}]
    assert fixed_rows(write(tmp_path / "n.json", rows), 1)[0].text == "taxes"
    rows = [{"sae": "planted", **ROWS[0]}, {"sae": "other", "latent": 99, "text": "sea"}]
    assert fixed_rows(write(tmp_path / "s.json", rows), 1)[0].text == "taxes"
    rows = [{"explainer": "a", **ROWS[0]}, {"explainer": "b", "latent": 1, "text": "sea"}, {"explainer": "b", "latent": 2, "text": None}]
    one, two = fixed_rows(write(tmp_path / "e.json", rows), 1, 2, explainer="b")
    assert (one.text, two.status) == ("sea", Status.UNSUPPORTED)


@pytest.mark.parametrize(
    ("row", "settings"),
    [({"sae": "other"}, {}), ({}, {"sae": "other"}), ({"sae": "other"}, {"sae": "planted"}), ({"sae": ""}, {"sae": "other"})],
)
def test_no_sae_is_given_the_texts_of_another(tmp_path, row, settings):
    (one,) = fixed_rows(write(tmp_path / "a.json", [{**row, "latent": 99, "text": "sea"}]), 1, **settings)
    assert (one.text, one.status, one.detail) == (None, Status.UNSUPPORTED, "the file's texts are of SAE 'other'")


def test_rows_without_a_sae_are_of_the_one_that_is_set(tmp_path):
    rows = [{"sae": None, **ROWS[0]}, {"sae": "other", "latent": 2, "text": "sea"}]
    one, two = fixed_rows(write(tmp_path / "a.json", rows), 1, 2, sae="planted")
    assert (one.text, two.status) == ("taxes", Status.UNSUPPORTED)


def test_rows_of_one_layer_and_model_are_taken_where_they_are_named(tmp_path):
    rows = [{"modelId": m, "layer": layer, "index": 1, "description": f"{m} {layer}"} for m in "ab" for layer in (6, 7)]
    (one,) = fixed_rows(write(tmp_path / "n.json", rows), 1, layer="7", model="b")
    assert one.text == "b 7"


def test_a_row_that_failed_elsewhere_gives_no_text(tmp_path):
    one, two = fixed_rows(write(tmp_path / "a.json", [{**ROWS[0], "status": "ok"}, {**ROWS[1], "status": "refused"}]), 1, 2)
    assert (one.text, two.status) == ("taxes", Status.UNSUPPORTED)


def test_longer_texts_are_taken_where_they_are_allowed(tmp_path):
    assert fixed_rows(write(tmp_path / "a.json", [{"latent": 1, "text": "x" * 500}]), 1, max_chars=500)[0].text == "x" * 500


@pytest.mark.parametrize("number", [1.0, "1.0", " 1 "])
def test_latents_of_a_column_with_gaps_are_numbers(tmp_path, number):
    assert fixed_rows(write(tmp_path / "a.json", [{"latent": number, "text": "taxes"}]), 1)[0].text == "taxes"


def test_only_a_line_feed_ends_a_line_of_jsonl(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"latent": 1, "text": "tax\u2028and duty"}\n', encoding="utf-8")
    assert fixed_rows(tmp_path / "a.jsonl", 1)[0].text == "tax and duty"


@pytest.mark.parametrize(
    ("rows", "said_of_it"),
    [
        ([{"latent": 10, "text": "x"}], "10 is no latent of SAE 'planted', which has 0 to 9"),
        ([{"latent": -1, "text": "x"}], "'?-1'? is no latent"),
        ([{"latent": "six", "text": "x"}], "'six' is no latent"),
        ([{"text": "x"}], "None is no latent"),
        ([ROWS[0], {"latent": 1, "text": "sea"}], "latent 1 has two texts"),
        ([{"latent": True, "text": "x"}], "True is no latent"),
        ([{"latent": 1.5, "text": "x"}], "1.5 is no latent"),
        ([{"latent": 1, "text": 42}], "latent 1: 42 is no text"),
        ([{"latent": 1, "text": "x" * 301}], "latent 1: its text has 301 characters; at most `max_chars`, 300"),
        ([{"latent": 1, "text": "tax \ud800"}], "latent 1: .*surrogate"),
        ([{"index": 1, "layer": "6-res", "description": "x"}, {"index": 2, "layer": "7-res", "description": "y"}], "set `layer`"),
        ([{"index": 1, "modelId": "a", "description": "x"}, {"index": 2, "modelId": "b", "description": "y"}], "set `model`"),
        ([{"latent": 1, "status": "refused", "text": "I cannot"}], "no explanation"),
        ([{"latent": 1, "words": "x"}], "no explanation of SAE 'planted'"),
        (["taxes"], "no list of rows"),
        ({"1": "taxes"}, "no list of rows"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_and_says_why(tmp_path, rows, said_of_it):
    with pytest.raises(ParamsError, match=said_of_it):
        fixed_rows(write(tmp_path / "a.json", rows), 1)


@pytest.mark.parametrize(
    ("name", "content"), [("a.json", "{"), ("a.jsonl", "{}\n{"), ("a.parquet", "x"), ("a.txt", "x"), ("a.json", "\x00")]
)
def test_a_damaged_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(ParamsError, match=name):
        fixed_rows(tmp_path / name, 1)


def test_a_missing_or_changed_file_is_told_with_its_digest(tmp_path):
    with pytest.raises(ParamsError, match="cannot be read"):
        explained(path=str(tmp_path / "none.csv"))
    path = write(tmp_path / "a.csv", ROWS)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for stated in (None, "0" * 64):
        with pytest.raises(ParamsError, match=digest):
            explained(path=str(path), sha256=stated)
