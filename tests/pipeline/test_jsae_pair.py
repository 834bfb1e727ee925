"""A JSAE pair trained in the DAG, from stored activations and from a running subject: once for both halves, each gated and named."""

import json
from pathlib import Path

import pytest
import yaml

from pipeline.tiny import lay_out, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HOOKPOINTS = {"mlp-in": {"module": "model.layers.1.mlp", "side": "input"}, "mlp-out": {"module": "model.layers.1.mlp"}}
TRAIN = {"epochs": 2, "batch": 128, "lr": 0.003, "k": 4, "jacobian_coefficient": 1.0}
PAIR = {
    "jsae-in": {"kind": "jsae", "half": "input", "hookpoint": "mlp-in", "width": 64, "train": TRAIN | {"partner": "mlp-out"}},
    "jsae-out": {"kind": "jsae", "half": "output", "hookpoint": "mlp-out", "width": 64, "train": TRAIN | {"partner": "mlp-in"}},
}


@pytest.mark.parametrize("store", [True, False], ids=["stored", "streamed"])
def test_a_pair_goes_through_the_dag_and_is_trained_once(tmp_path, store):
    lay_out(tmp_path)
    tree = yaml.safe_load((tmp_path / "params.yaml").read_text())
    tree["subject"]["hookpoints"], tree["saes"] = HOOKPOINTS, PAIR
    tree["activations"]["store"] = store
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(tree))
    run(tmp_path, "dvc", "repro", "--quiet", "latents")
    data = tmp_path / "data"
    assert len([path for path in (tmp_path / ".cache" / "pairs").iterdir() if path.is_dir()]) == 1
    for file in ("cfg.json", "sae_weights.safetensors"):
        assert (data / "saes/jsae-in" / file).read_bytes() == (data / "saes/jsae-out" / file).read_bytes()
    for half, hookpoint in (("jsae-in", "mlp-in"), ("jsae-out", "mlp-out")):
        measured = read(data / f"saes/{half}/evaluation.json")
        assert (measured["hookpoint"], measured["writes"], measured["loss"]) == (hookpoint, hookpoint, "jsae")
        assert measured["fvu"] < 0.6
        assert measured["l0"] == pytest.approx(4, rel=0.15)
        gate = read(data / f"latents/{half}/gate.json")
        assert (gate["passed"], gate["not_checked"]) == (True, [])
        inputs = read(data / f"saes/{half}/manifest.json")["inputs"]
        assert {"data/activations/mlp-in", "data/activations/mlp-out"} <= set(inputs)


def read(path: Path) -> dict:
    return json.loads(path.read_text())
