"""Baselines as entries of the grid: trained or drawn, evaluated, gated and described like any other, and labelled."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.tiny import lay_out, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HOOKPOINTS = {
    "resid-1-random": {"module": "model.layers.1", "random": {}},
    "neurons-1": {"module": "model.layers.1.mlp.down_proj", "side": "input"},
}
SAES: dict[str, Any] = {
    "of-redrawn": {
        "kind": "sae_lens",
        "hookpoint": "resid-1-random",
        "width": 48,
        "loss": "topk",
        "train": {"epochs": 1, "batch": 256, "k": 4},
    },
    "random": {"kind": "random", "hookpoint": "resid-1", "width": 48, "k": 4},
    "neurons": {"kind": "neurons", "hookpoint": "neurons-1", "k": 4},
}
LABELS = {"tiny": None, "of-redrawn": "random_subject", "random": "random", "neurons": "neurons"}


@pytest.fixture(scope="module", params=[True, False], ids=["stored", "streamed"])
def project(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("baselines")
    lay_out(folder)
    tree = yaml.safe_load((folder / "params.yaml").read_text())
    tree["subject"]["hookpoints"] |= HOOKPOINTS
    tree["saes"] |= SAES
    tree["gate"] = {"max_fvu": 2.0}
    tree["activations"]["store"] = request.param
    tree["examples"]["contrasts"] = {"random": {}}
    tree["explainers"], tree["scorers"] = {"lexical": {}}, {"embedding": {"model": "encoder"}}
    (folder / "params.yaml").write_text(yaml.safe_dump(tree))
    run(folder, "dvc", "repro", "--quiet", "compare")
    return folder


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_each_is_labelled_from_its_evaluation_to_the_comparison_and_none_is_stopped(project):
    for name, label in LABELS.items():
        evaluation, gate = read(project / f"data/saes/{name}/evaluation.json"), read(project / f"data/latents/{name}/gate.json")
        assert evaluation["baseline"] == gate["baseline"] == label
        assert evaluation["ce_recovered"] is not None
        assert not [check for check in gate["not_checked"] if "digest" in check]
    compared = {row["sae"]: row["baseline"] for row in pq.read_table(project / "data/comparison/saes.parquet").to_pylist()}
    assert compared == LABELS


def test_the_redrawn_subject_is_the_one_whose_loss_and_promoted_tokens_are_told(project):
    evaluations = {name: read(project / f"data/saes/{name}/evaluation.json") for name in LABELS}
    clean = evaluations["tiny"]["ce_clean"]
    assert evaluations["random"]["ce_clean"] == evaluations["neurons"]["ce_clean"] == clean
    assert evaluations["of-redrawn"]["ce_clean"] != clean
    digests = {
        name: read(project / f"data/saes/{name}/cfg.json")["metadata"]["subject_digest"] for name in ("tiny", "random", "of-redrawn")
    }
    assert digests["tiny"] == digests["random"] != digests["of-redrawn"]
    promoted = {
        name: pq.read_table(project / f"data/latents/{name}/statistics.parquet")["promoted_tokens"].to_pylist()
        for name in ("tiny", "neurons")
    }
    assert any(promoted["tiny"])
    assert not any(promoted["neurons"]), "a neuron does not write to the residual stream itself"


def test_neurons_are_two_latents_each(project):
    assert read(project / "data/saes/neurons/evaluation.json")["width"] == 2 * 64
    assert read(project / "data/latents/neurons/store.json")["signed"]
