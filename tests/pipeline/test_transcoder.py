"""A transcoder trained in the DAG, from stored activations and from a running subject: both hookpoints are read, gated and named."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.tiny import lay_out, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HOOKPOINTS = {"mlp-in": {"module": "model.layers.1.mlp", "side": "input"}, "mlp-out": {"module": "model.layers.1.mlp"}}
TRAIN = {"epochs": 2, "batch": 128, "lr": 0.003, "k": 4, "threshold_lr": 0.05}
ENTRY = {"kind": "sae_lens", "hookpoint": "mlp-in", "writes": "mlp-out", "width": 64, "loss": "batchtopk_skip_transcoder", "train": TRAIN}


@pytest.mark.parametrize("store", [True, False], ids=["stored", "streamed"])
def test_a_transcoder_goes_through_the_dag_with_both_its_hookpoints(tmp_path, store):
    lay_out(tmp_path)
    tree = yaml.safe_load((tmp_path / "params.yaml").read_text())
    tree["subject"]["hookpoints"], tree["saes"] = HOOKPOINTS, {"between": ENTRY}
    tree["activations"]["store"] = store
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(tree))
    run(tmp_path, "dvc", "repro", "--quiet", "latents")
    data = tmp_path / "data"
    measured = read(data / "saes/between/evaluation.json")
    assert (measured["hookpoint"], measured["writes"], measured["loss"]) == ("mlp-in", "mlp-out", "batchtopk_skip_transcoder")
    assert measured["fvu"] < 0.6
    assert measured["l0"] == pytest.approx(4, rel=0.15)
    assert abs(measured["ce_sae"] - measured["ce_clean"]) < abs(measured["ce_zero"] - measured["ce_clean"])
    gate = read(data / "latents/between/gate.json")
    assert (gate["passed"], gate["not_checked"]) == (True, [])
    assert gate["fvu"] == pytest.approx(measured["fvu"])
    named = read(data / "saes/between/cfg.json")["metadata"]
    assert [named[name] for name in ("hook_name", "hook_side", "hook_name_out", "hook_side_out")] == [
        "model.layers.1.mlp",
        "input",
        "model.layers.1.mlp",
        "output",
    ]
    promoted = pq.read_table(data / "latents/between/statistics.parquet")["promoted_tokens"].to_pylist()
    assert all(len(tokens) == 10 for tokens in promoted)
    inputs = read(data / "saes/between/manifest.json")["inputs"]
    assert {"data/activations/mlp-in", "data/activations/mlp-out"} <= set(inputs)


def read(path: Path) -> dict:
    return json.loads(path.read_text())
