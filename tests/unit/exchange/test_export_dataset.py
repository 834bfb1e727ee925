"""The dataset: its tables against the results, its card against Hugging Face's own reader, each label's way back."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from exportable_study import make_exportable, study_params
from latentry.contracts import COMPARISON, SAE, SCORES
from latentry.errors import ContractError, ExchangeError, ParamsError
from latentry.exchange import labels
from latentry.exchange.card import card
from latentry.exchange.dataset import export_dataset
from latentry.exchange.provenance import chain_of, provenance
from latentry.store import MANIFEST, file_digest
from planted_folders import finish
from small_params import put


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("study")
    make_exportable(root)
    return root


@pytest.fixture(scope="module")
def dataset(study, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("dataset") / "out"
    export_dataset(study, study_params(), out, licence="cc-by-4.0", with_examples=True)
    return out


def rows(dataset: Path, table: str) -> list[dict]:
    return [row for path in sorted((dataset / "data" / table).rglob("*.parquet")) for row in pq.ParquetFile(path).read().to_pylist()]


def test_every_explanation_of_every_sae_is_there(study, dataset):
    wanted = set()
    for sae in ("topk-1k", "jumprelu-1k"):
        for row in pq.read_table(study / "data/explanations" / sae / "explanations.parquet").to_pylist():
            wanted.add((sae, row["latent"], row["explainer"], row["text"], row["status"], row["prompt_digest"]))
    found = rows(dataset, "explanations")
    assert {tuple(row[name] for name in ("sae", "latent", "explainer", "text", "status", "prompt_digest")) for row in found} == wanted
    assert len(found) == len(wanted)


def test_scores_stand_beside_chance_null_and_interval(tmp_path):
    scored = {"contrast_source": "random", "status": "ok", "detail": "", "n_activating": 5, "n_contrast": 5, "n_failed": 0}
    planted = [
        {**scored, "latent": 3, "explainer": "e", "null": False, "auroc": 0.9, "auroc_low": 0.7, "auroc_high": 1.0, "precision": 0.8},
        {**scored, "latent": 3, "explainer": "e", "null": True, "auroc": 0.4, "precision": 0.6, "partner": 5},
        {**scored, "latent": 5, "explainer": "e", "null": False, "status": "client_error", "detail": "down"},
        {**scored, "latent": 5, "explainer": "e", "null": True, "status": "client_error", "auroc": 0.1},
    ]
    cells = [
        {"sae": "s", "explainer": "e", "scorer": "c", "metric": name, "headline": name == "auroc_random"}
        for name in ("auroc_random", "precision_random_1to3")
    ]
    finish(
        tmp_path / "scores/s/c",
        SCORES,
        lambda making: making.write_table(
            "scores.parquet", [dict.fromkeys(SCORES.tables["scores.parquet"].names) | row for row in planted]
        ),
    )
    finish(
        tmp_path / "comparison",
        COMPARISON,
        lambda making: making.write_table(
            "cells.parquet", [dict.fromkeys(COMPARISON.tables["cells.parquet"].names) | row for row in cells]
        ),
    )
    finish(tmp_path / "saes/s", SAE, lambda making: making.write_json("evaluation.json", {"width": 8, "signed": True}))
    names = ("latent", "label", "metric", "headline", "score", "low", "high", "null", "chance", "status")
    assert [tuple(row[name] for name in names) for row in labels.scores(tmp_path, "s", "c").to_pylist()] == [
        (3, "3+", "auroc_random", True, 0.9, 0.7, 1.0, 0.4, 0.5, "ok"),
        (3, "3+", "precision_random_1to3", False, 0.8, None, None, 0.6, 0.25, "ok"),
        (5, "1-", "auroc_random", True, None, None, None, None, 0.5, "client_error"),
    ]


def test_every_row_leads_to_what_it_was_made_from(study, dataset):
    origins = {row["manifest"]: row for row in rows(dataset, "provenance")}
    for table in ("explanations", "scores", "judgments", "examples"):
        for row in rows(dataset, table):
            assert origins[row["manifest"]]["sae"] == row["sae"]
            assert origins[row["manifest"]]["sae_digest"] == row["sae_digest"]
    folder = study / "data/scores/topk-1k/detection"
    origin = origins[file_digest(folder / MANIFEST)]
    assert origin["cell"] == "score@topk-1k-detection"
    assert json.loads(origin["settings"])["max_examples"] == 5
    told = json.loads((dataset / "provenance.json").read_text())
    assert told["folders"]["data/scores/topk-1k/detection"]["inputs"]["data/explanations/topk-1k"] == file_digest(
        study / "data/explanations/topk-1k" / MANIFEST
    )


def test_the_card_names_each_table_and_its_files(dataset):
    text = (dataset / "README.md").read_text()
    metadata = yaml.safe_load(text.split("---\n")[1])
    assert metadata["license"] == "cc-by-4.0"
    assert {config["config_name"] for config in metadata["configs"]} == {path.name for path in (dataset / "data").iterdir()}
    assert [config["config_name"] for config in metadata["configs"] if config.get("default")] == ["explanations"]
    assert "| topk-1k | default | detection | auroc_random |" in text


def test_names_in_the_card_make_no_markup(study):
    hub = {"kind": "hub", "id": "a|b/<img src=x>[c](d)", "revision": "main"}
    params = study_params(models__subject={"format": "folder", "sources": [hub]})
    told = provenance(study, params, chain_of(study, ["data/saes/topk-1k"]), list(params.saes))
    text = card(study / "data", params, told, {"explanations": ("texts", 3)}, None)
    assert "a&#124;b/&lt;img src=x&gt;&#91;c](d) at main" in text
    assert "license" not in yaml.safe_load(text.split("---\n")[1])


def test_the_card_says_how_many_latents_stand_behind_each_mean_and_where_there_is_none(study, tmp_path):
    own = Path(shutil.copytree(study, tmp_path / "own"))
    path = own / "data/comparison/cells.parquet"
    cells = pq.read_table(path)
    first, nothing = cells.to_pylist()[0], dict.fromkeys(("mean", "low", "high", "null", "lift", "lift_low", "lift_high"))
    measured = {"mean": 0.7, "low": 0.6, "high": 0.8, "null": 0.5, "lift": 0.2, "lift_low": 0.1, "lift_high": 0.3}
    counted = {"headline": True, "n_asked": 9, "metric": "auroc_random"}
    rows = [{**first, **counted, **measured, "n": 8, "n_lift": 7}, {**first, **counted, **nothing, "n": 0, "n_lift": 0}]
    path.unlink()
    pq.write_table(pa.Table.from_pylist(rows, schema=cells.schema), path)
    params = study_params(models__subject={"format": "folder", "sources": [{"kind": "random", "purpose": "language_model"}]})
    told = provenance(own, params, chain_of(own, ["data/saes/topk-1k"]), list(params.saes))
    text = card(own / "data", params, told, {"explanations": ("texts", 3)}, None)
    assert "| auroc_random | 0.7 (0.6 to 0.8) | 8 of 9 | 0.5 | 0.5 | 0.2 (0.1 to 0.3) | 7 |" in text
    assert "| auroc_random | no latent has one | 0 of 9 | 0.5 | none | no latent has one | 0 |" in text
    assert "from random" in text and "random random" not in text


def test_paths_of_this_machine_stay_here(study):
    folder = {"kind": "folder", "path": "/home/someone/models/pythia"}
    params = study_params(
        models__subject={"format": "folder", "sources": [folder]}, corpus={"kind": "files", "path": "/home/someone/texts"}
    )
    told = json.dumps(provenance(study, params, chain_of(study, ["data/saes/topk-1k"]), list(params.saes)))
    assert "someone" not in told
    assert "pythia" in told


def test_what_is_not_here_is_null_and_still_named_by_its_manifest(study, tmp_path):
    own = Path(shutil.copytree(study, tmp_path / "own"))
    stated = json.loads((own / "data/examples/topk-1k" / MANIFEST).read_text())["inputs"]
    for room in ("tokens", "latents"):  # what a clone has not
        shutil.rmtree(own / "data" / room)
    told = provenance(own, study_params(), chain_of(own, ["data/examples/topk-1k"]), ["topk-1k"])
    assert told["tokens"]["corpus_digest"] is None
    assert told["tokens"]["manifest"] == told["folders"]["data/tokens"]["manifest"]
    assert told["folders"]["data/tokens"]["manifest"] in stated.values()


def test_a_licence_that_is_no_name_is_refused(study, tmp_path):
    with pytest.raises(ParamsError, match="lower case"):
        export_dataset(study, study_params(), tmp_path / "out", licence="Do what: you want", with_examples=False)


def test_a_disk_that_fails_midway_leaves_nothing(study, tmp_path, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(OSError, match="out"):
        export_dataset(study, study_params(), tmp_path / "out", licence=None, with_examples=False)
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_cell_is_refused_and_an_earlier_export_kept(study, dataset, tmp_path):
    own, out = Path(shutil.copytree(study, tmp_path / "own")), Path(shutil.copytree(dataset, tmp_path / "out"))
    shutil.rmtree(own / "data/scores/jumprelu-1k/fuzzing")
    with pytest.raises(ContractError, match="dvc repro score@jumprelu-1k-fuzzing"):
        export_dataset(own, study_params(), out, licence=None, with_examples=False, force=True)
    with pytest.raises(ExchangeError, match="there already"):
        export_dataset(own, study_params(), out, licence=None, with_examples=False)
    assert (out / "README.md").read_bytes() == (dataset / "README.md").read_bytes()


@pytest.mark.slow
def test_hugging_faces_datasets_loads_every_table_from_the_folder_offline(dataset, tmp_path):
    code = (
        "import sys, json, datasets\n"
        "names = datasets.get_dataset_config_names(sys.argv[1])\n"
        "tables = {name: datasets.load_dataset(sys.argv[1], name, split='train') for name in names}\n"
        "first = datasets.load_dataset(sys.argv[1], split='train').to_list()\n"
        "print(json.dumps({'n': {name: len(table) for name, table in tables.items()}, 'first': first}))\n"
    )
    offline = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code, str(dataset)], env=offline, capture_output=True, text=True, check=True, timeout=200)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert loaded["n"] == {path.name: len(rows(dataset, path.name)) for path in (dataset / "data").iterdir()}
    assert loaded["first"] == rows(dataset, "explanations")


def test_all_tables_have_one_schema_in_all_files(dataset):
    for table in (dataset / "data").iterdir():
        schemas = {pq.read_schema(path).remove_metadata().to_string() for path in table.rglob("*.parquet")}
        assert len(schemas) == 1, table
    assert pq.read_schema(next((dataset / "data/scores").rglob("*.parquet"))).field("chance").type == pa.float64()


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("tokens.n_tokens", 6400, r"tokens: run with tokens.n_tokens = 3200, now = 6400 in params.yaml"),
        ("latents.dtype", "float16", r"latents@topk-1k: run with latents.dtype = 'float32', now = 'float16'"),
        ("explainers.other", {}, r"explain@topk-1k: run with explainers.other not set, now = \{\}"),
    ],
)
def test_params_that_results_were_not_made_from_are_refused_by_the_lock(study, tmp_path, place, value, said):
    own = Path(shutil.copytree(study, tmp_path / "own"))
    tree = yaml.safe_load((own / "params.yaml").read_text())
    put(tree, place, value)
    (own / "params.yaml").write_text(yaml.safe_dump(tree))
    with pytest.raises(ContractError, match=said):
        export_dataset(own, study_params(), tmp_path / "out", licence=None, with_examples=False)


def test_a_cell_that_is_not_locked_and_no_lock_at_all_are_refused(study, tmp_path):
    own = Path(shutil.copytree(study, tmp_path / "own"))
    lock = yaml.safe_load((own / "dvc.lock").read_text())
    del lock["stages"]["explain@topk-1k"]
    (own / "dvc.lock").write_text(yaml.safe_dump(lock))
    with pytest.raises(ContractError, match="explain@topk-1k: was never run"):
        export_dataset(own, study_params(), tmp_path / "out", licence=None, with_examples=False)
    (own / "dvc.lock").unlink()
    with pytest.raises(ContractError, match=r"dvc\.lock: is not there"):
        export_dataset(own, study_params(), tmp_path / "out", licence=None, with_examples=False)
