"""Training on planted directions: it learns them, repeats itself to the byte, and leaves the process as it found it."""

import csv
import json

import numpy as np
import pytest
import torch

from latentry.errors import CorpusError, NumericsError
from latentry.saes import sae_lens
from latentry.saes.evaluation import reconstruction
from latentry.saes.recipe import TrainConfig
from latentry.saes.training import train
from planted_saes import planted_activations

ACTIVATIONS = planted_activations(n_contexts=64, n_positions=32, d_in=16, n_directions=24, n_active=2)
TRAINING, HELD_OUT = np.arange(56), np.arange(56, 64)
RECIPES = {
    "topk": TrainConfig(epochs=8, batch=64, lr=1e-2, k=2, dead_after=50, shuffle_tokens=1024),
    "jumprelu": TrainConfig(epochs=3, batch=64, lr=1e-2, l0_coefficient=0.1, threshold=0.01, bandwidth=0.05, shuffle_tokens=1024),
    "standard": TrainConfig(epochs=3, batch=64, lr=1e-2, l1_coefficient=0.5, sparsity_warm_up=0.1, shuffle_tokens=1024),
}
METADATA = {"model_name": "planted", "hf_hook_name": "layers.0", "context_size": 32, "prepend_bos": False}


def trained(folder, loss, seed=0, recipe=None):
    n = train(
        recipe or RECIPES[loss],
        loss=loss,
        width=32,
        activations=ACTIVATIONS,
        contexts=TRAINING,
        seed=seed,
        folder=folder,
        metadata=METADATA,
    )
    return n, sae_lens.build(sae_lens.Config(kind="sae_lens", hookpoint="here", width=32, loss=loss, folder=folder), loss, folder)


def test_topk_rebuilds_contexts_that_it_was_not_trained_on(tmp_path):
    n_training_tokens, sae = trained(tmp_path, "topk")
    measured = reconstruction(sae, ACTIVATIONS, HELD_OUT)
    assert n_training_tokens == 8 * 56 * 32 // 64 * 64
    assert measured.fvu < 0.2  # the best possible without a dictionary, 2 principal components of 16, leaves about 0.8
    assert 1 < measured.l0 <= 2


@pytest.mark.parametrize("loss", ["jumprelu", "standard"])
def test_the_other_losses_learn_too_and_their_file_says_how_they_were_trained(tmp_path, loss):
    _, sae = trained(tmp_path, loss)
    assert reconstruction(sae, ACTIVATIONS, HELD_OUT).fvu < 0.6
    assert sae.provenance["metadata"]["training_architecture"] == loss
    assert sae.provenance["metadata"]["model_name"] == "planted"


def test_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.rand(3)  # the process's own random state differs each time
        trained(tmp_path / name, "topk", seed=seed, recipe=RECIPES["topk"].model_copy(update={"epochs": 1.0}))
    for file in ("cfg.json", "sae_weights.safetensors", "loss.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert (tmp_path / "a" / "sae_weights.safetensors").read_bytes() != (tmp_path / "c" / "sae_weights.safetensors").read_bytes()


def test_the_process_random_state_is_left_as_it_was(tmp_path):
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    trained(tmp_path, "topk", recipe=RECIPES["topk"].model_copy(update={"epochs": 0.5}))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()


def test_the_curve_falls_and_the_files_hold_no_path_of_the_machine(tmp_path):
    trained(tmp_path, "topk")
    with (tmp_path / "loss.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["step", "tokens", "loss", "mse", "sparsity", "l0"]
    assert float(rows[-1]["mse"]) < 0.5 * float(rows[0]["mse"])
    assert int(rows[-1]["tokens"]) == int(rows[-1]["step"]) * 64
    assert str(tmp_path) not in json.dumps(json.loads((tmp_path / "cfg.json").read_text()))


def test_fewer_tokens_than_a_batch_is_an_error_that_says_what_to_lower(tmp_path):
    with pytest.raises(CorpusError, match=r"1792 tokens to train on, one batch has 4096; lower train\.batch"):
        trained(tmp_path, "topk", recipe=RECIPES["topk"].model_copy(update={"batch": 4096}))


def test_a_diverging_training_stops_with_the_step_and_the_remedy(tmp_path):
    broken = planted_activations(n_contexts=64, n_positions=32, d_in=16, n_directions=24, n_active=2)
    broken._x[5] = float("nan")
    with pytest.raises(NumericsError, match=r"training: .*NaN|training: the loss is nan at step"):
        train(RECIPES["topk"], loss="topk", width=32, activations=broken, contexts=TRAINING, seed=0, folder=tmp_path, metadata=METADATA)
