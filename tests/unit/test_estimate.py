"""What a run is said to take, against counts by hand and against what stages left."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from latentry.cli import commands
from latentry.estimate import estimate
from latentry.params import parse_params
from small_params import small_params

pytestmark = pytest.mark.usefixtures("project")


def estimated(**changes):
    return estimate(parse_params(small_params(**changes)))


def test_stored_activations_take_one_pass_and_three_for_cross_entropy():
    found = estimated()
    assert (found.n_contexts, found.n_tokens) == (100, 3200)
    assert found.forward_tokens == {"activations": 3200, "sae@topk-64": 3 * 4 * 32, "latents@topk-64": 0}
    assert found.passes == pytest.approx(1 + 3 * 4 / 100)


def test_each_subject_that_differs_in_its_weights_takes_a_pass_of_its_own():
    redrawn = {f"resid-{number}": {"module": "model.layers.1", "random": {"seed": number % 2}} for number in (2, 3, 4)}
    found = estimated(subject__hookpoints={"resid-1": {"module": "model.layers.1"}, **redrawn})
    assert found.forward_tokens["activations"] == 3 * 3200


def test_without_stored_activations_each_cell_runs_the_subject_itself():
    found = estimated(activations__store=False)
    # 92 contexts train (twice: the mean, then one epoch), 8 are kept for evaluation, at sae and again at the gate
    assert found.forward_tokens["sae@topk-64"] == (2 * 92 + 8 + 3 * 4) * 32
    assert found.forward_tokens["latents@topk-64"] == (100 + 8) * 32
    assert found.disk_bytes["data/activations/resid-1"] == 3200


def test_the_disk_of_a_model_that_is_not_there_is_unknown():
    assert estimated().disk_bytes["data/activations/resid-1"] is None


def test_disk_follows_from_what_is_known():
    model, sae = Path("data/models/subject"), Path("data/saes/topk-64")
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({"hidden_size": 32}))
    assert estimated().disk_bytes["data/activations/resid-1"] == 3200 * (32 * 4 + 4)
    assert estimated().disk_bytes["data/latents/topk-64"] == 3200 * 4 * 8 + 8 * 64  # k 4, u32 and f32
    sae.mkdir(parents=True)
    (sae / "evaluation.json").write_text(json.dumps({"l0": 2.5}))
    assert estimated(latents__dtype="float16").disk_bytes["data/latents/topk-64"] == 3200 * 2.5 * 6 + 8 * 64


def test_the_l0_of_a_sae_that_is_not_trained_is_unknown():
    sae = {"kind": "sae_lens", "hookpoint": "resid-1", "width": 64, "loss": "standard", "train": {"epochs": 1, "l1_coefficient": 1}}
    assert estimated(saes={"l1": sae}).disk_bytes["data/latents/l1"] is None


def test_the_command_names_every_cell_that_runs_the_subject_and_every_folder():
    Path("params.yaml").write_text(yaml.safe_dump(small_params(activations__store=False)))
    said = CliRunner().invoke(commands, ["estimate"]).output
    for name in ("sae@topk-64", "latents@topk-64", "data/activations/resid-1", "data/latents/topk-64", "not stored"):
        assert name in said
