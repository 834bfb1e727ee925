"""`latentry import` as it is typed: what it writes, prints and refuses."""

import hashlib
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from latentry import preflight
from latentry.cli import commands
from latentry.contracts import IMPORT
from latentry.errors import ExchangeError, ParamsError
from latentry.params import parse_params
from small_params import small_params

SPECIMENS = Path(__file__).parents[2] / "specimens"


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(yaml.safe_dump(small_params()))
    shutil.copytree(SPECIMENS / "delphi-0.1.3", "theirs")
    return tmp_path


def imported(*arguments, name="de", sae="topk-64"):
    result = CliRunner().invoke(commands, ["import", *arguments, "--name", name, "--sae", sae], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.output


def test_what_is_printed_can_be_pasted_and_passes_the_check():
    printed = imported("delphi", "theirs")
    block = yaml.safe_load(printed[printed.index("explainers:") :])
    entry, scores = block["explainers"]["de"], block["comparison"]["imported"]["de"]
    assert entry["sha256"] == hashlib.sha256(Path("imports/de/explanations.parquet").read_bytes()).hexdigest()
    tree = small_params(explainers__de=entry, comparison__imported={"de": scores})
    assert not [fault for fault in preflight.check(parse_params(tree)).faults if "de" in fault.split(":")[0]]


def test_the_tables_hold_the_contract_and_the_file_beside_them_says_where_they_are_from():
    imported("delphi", "theirs")
    for name, schema in IMPORT.tables.items():
        assert pq.read_schema(f"imports/de/{name}").equals(schema)
    told = json.loads(Path("imports/de/import.json").read_text())
    assert told["counts"] == {"rows": 5, "taken": 3, "scores": 35, "scores_taken": 21, "latents_without_text": 61}
    assert (
        told["source"]["files"]["explanations/layers.1_latent3.txt"]
        == hashlib.sha256(b'"words about tax, 3 \xe2\x80\x9cquoted\xe2\x80\x9d"').hexdigest()
    )
    assert told["provenance"]["explainer_model"] == ["a/writer"] and told["provenance"]["sae"] == "a/sae"
    assert set(told["left_out"]["rows"]) == {"outside the width of the SAE", "without a text"}
    assert str(Path.cwd()) not in json.dumps(told)


def test_the_same_source_gives_the_same_bytes():
    imported("delphi", "theirs")
    shutil.copytree("theirs", "elsewhere/theirs")
    imported("delphi", str(Path("elsewhere/theirs").resolve()), name="again")
    for file in Path("imports/de").iterdir():
        assert file.read_bytes() == Path("imports/again", file.name).read_bytes().replace(b'"again"', b'"de"')


def test_counts_and_what_was_left_out_are_printed():
    printed = imported("delphi", "theirs")
    assert "delphi: 5 rows in 16 files, 3 taken for SAE 'topk-64' of 64 latents" in printed
    assert "1 row left out, outside the width of the SAE: explanations/layers.1_latent99.txt" in printed
    assert "61 latents of the SAE without a text: 0, 1, 2, 4, 5 and 56 more" in printed


def test_an_import_is_replaced_only_by_force_and_nothing_else_ever():
    imported("delphi", "theirs")
    Path("theirs/explanations/layers.1_latent3.txt").write_text('"new"')
    with pytest.raises(ExchangeError, match=r"imports/de: is there already; .*--force"):
        imported("delphi", "theirs")
    imported("delphi", "theirs", "--force")
    assert "new" in pq.read_table("imports/de/explanations.parquet")["text"].to_pylist()
    Path("imports/own").mkdir()
    Path("imports/own/notes").write_text("mine")
    with pytest.raises(ExchangeError, match=r"holds no import\.json"):
        imported("delphi", "theirs", "--force", name="own")


def test_a_source_that_fails_leaves_nothing():
    Path("theirs/run_config.json").write_text(" " * (2 << 20))
    with pytest.raises(ExchangeError, match=r"run_config\.json: has .* bytes"):
        imported("delphi", "theirs")
    assert not Path("imports").exists()


@pytest.mark.parametrize("name", ["../up", "/etc/x", "a/b", "", ".", "A", "x" * 61, "a\n"])
def test_a_name_that_is_no_name_is_refused(name):
    with pytest.raises(ParamsError, match=r"--name"):
        imported("delphi", "theirs", name=name)
    assert not Path("imports").exists()


def test_a_sae_that_params_do_not_name_and_a_choice_without_a_value_are_refused():
    with pytest.raises(ParamsError, match=r"there is no 'topk-46'; did you mean 'topk-64'"):
        imported("delphi", "theirs", sae="topk-46")
    with pytest.raises(ParamsError, match=r"'layers\.1'; LABEL=VALUE is wanted"):
        imported("delphi", "theirs", "--where", "layers.1")


def test_texts_longer_than_an_explainer_takes_by_itself_are_provided_for():
    Path("rows.jsonl").write_text(json.dumps({"latent": 1, "text": "a  " * 200}))
    printed = imported("rows", "rows.jsonl", name="long")
    entry = yaml.safe_load(printed[printed.index("explainers:") :])["explainers"]["long"]
    assert entry["max_chars"] == 399
    assert not [fault for fault in preflight.check(parse_params(small_params(explainers__long=entry))).faults if "long" in fault]
    assert not Path("imports/long/scores.parquet").exists() and "comparison:" not in printed


def test_nothing_that_a_terminal_obeys_is_printed():
    rows = [
        {"latent": 1, "text": "a", "method": "\x1b[2J\u202e", "explainer": "x"},
        {"latent": "\x1b]0;\x07", "text": "b", "explainer": "x"},
    ]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    printed = imported("rows", "rows.jsonl", name="rows")
    assert not {"\x1b", "\x07", "\u202e"} & set(printed)


def test_of_a_sae_whose_width_is_not_known_every_latent_is_taken():
    tree = small_params(saes={"all": {"kind": "neurons", "hookpoint": "resid-1", "k": 4}})
    Path("params.yaml").write_text(yaml.safe_dump(tree))
    printed = imported("delphi", "theirs", sae="all")
    assert "4 taken for SAE 'all' whose width params do not say" in printed


@pytest.mark.parametrize(("name", "told"), [("none", "scores without an explanation"), ("lexical", "of kind lexical")])
def test_a_name_that_cannot_be_pasted_is_refused_before_anything_is_read(name, told):
    with pytest.raises(ParamsError, match=rf"{told}(.|\n)*small letters, digits"):
        imported("delphi", "theirs", name=name)
    assert not Path("imports").exists()


def test_an_import_that_params_name_already_may_be_made_anew():
    printed = imported("delphi", "theirs")
    entry = yaml.safe_load(printed[printed.index("explainers:") :])["explainers"]["de"]
    Path("params.yaml").write_text(yaml.safe_dump(small_params(explainers__de=entry)))
    imported("delphi", "theirs", "--force")
