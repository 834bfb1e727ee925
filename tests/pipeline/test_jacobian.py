"""Two SAEs around an MLP, from activations to the report, with the stages as they are run; slow, since hookpoints are new to the tiny project."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.tiny import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

MLP = {"module": "model.layers.1.mlp"}
SAES = {"read": "mlp-in", "written": "mlp-out", "redrawn-read": "redrawn-in", "redrawn-written": "redrawn-out"}


@pytest.fixture(scope="module")
def project(copied) -> Path:
    folder = copied("jacobian")
    params = yaml.safe_load((folder / "params.yaml").read_text())
    params["subject"]["hookpoints"] = {
        "mlp-in": {**MLP, "side": "input"},
        "mlp-out": {**MLP, "side": "output"},
        "redrawn-in": {**MLP, "side": "input", "random": {"seed": 0}},
        "redrawn-out": {**MLP, "side": "output", "random": {"seed": 0}},
    }
    trained = {"kind": "sae_lens", "width": 48, "loss": "topk", "train": {"epochs": 1, "batch": 256, "k": 4}}
    params["saes"] = {name: {**trained, "hookpoint": point} for name, point in SAES.items()}
    params["examples"]["contrasts"] = {"random": {}}
    params["explainers"], params["scorers"] = {"lexical": {}}, {"embedding": {"model": "encoder"}}
    params["clients"] = {}
    params["jacobians"] = {
        "trained": {"input": "read", "output": "written", "scorer": "embedding", "inputs": 5},
        "redrawn": {"input": "redrawn-read", "output": "redrawn-written", "scorer": "embedding", "inputs": 5},
    }
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    run(folder, "dvc", "repro", "--quiet")
    return folder


def test_both_jacobians_are_read_of_the_weights_that_their_activations_were_made_with(project):
    for name, redrawn in (("trained", False), ("redrawn", True)):
        found = json.loads((project / "data" / "jacobians" / name / "metrics.json").read_text())
        assert found["redrawn"] is redrawn
        assert found["mlp_fvu"] < 1e-4
        assert found["figures"]["mean_abs"]["low"] < found["figures"]["mean_abs"]["value"] < found["figures"]["mean_abs"]["high"]
        edges = pq.read_table(project / "data" / "jacobians" / name / "edges.parquet")
        contexts = pq.read_table(project / "data" / "jacobians" / name / "contexts.parquet")
        assert sum(edges["count"].to_pylist()) == sum(contexts["n_pairs"].to_pylist()) > 0
        assert found["n_edges"] == edges.num_rows


def test_every_latent_asked_for_has_a_status_and_what_is_explained_stands_in_the_report(project):
    asked = pq.read_table(project / "data" / "examples" / "written" / "latents.parquet")["latent"].to_pylist()
    scores = pq.read_table(project / "data" / "edges" / "trained" / "scores.parquet").to_pylist()
    assert sorted(row["latent"] for row in scores if not row["null"]) == sorted(asked)
    report = (project / "report" / "index.html").read_text()
    assert "Explained edges" in report
    assert "subject redrawn" in report
    summary = json.loads((project / "metrics" / "summary.json").read_text())
    assert set(summary["jacobians"]) == {"trained", "redrawn"}


def test_nothing_is_left_to_do_and_the_same_bytes_come_again(project):
    edges = project / "data" / "jacobians" / "trained" / "edges.parquet"
    before = edges.read_bytes()
    run(project, "dvc", "repro", "--quiet", "--force", "--single-item", "jacobian@trained")
    assert edges.read_bytes() == before
    said = run(project, "dvc", "status", capture_output=True).stdout
    assert "jacobian" not in said
    assert "compare" not in said


def test_a_jacobian_that_params_name_no_more_goes(project):
    params = yaml.safe_load((project / "params.yaml").read_text())
    del params["jacobians"]["redrawn"]
    (project / "params.yaml").write_text(yaml.safe_dump(params))
    run(project, "dvc", "repro", "--quiet", "compare")
    assert not (project / "data" / "jacobians" / "redrawn").exists()
    assert not (project / "data" / "edges" / "redrawn").exists()
