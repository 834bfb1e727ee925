"""Training on planted directions: it learns them, repeats itself to the byte, and leaves the process as it found it."""

import csv
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from latentry.errors import CorpusError, NumericsError
from latentry.saes import sae_lens
from latentry.saes.evaluation import reconstruction
from latentry.saes.recipe import BatchTopK, Gated, JumpReLU, Matryoshka, Standard, TopK
from latentry.saes.training import train
from planted_saes import StoredActivations, planted_activations

ACTIVATIONS = planted_activations(n_contexts=64, n_positions=32, d_in=16, n_directions=24, n_active=2)
TRAINING, HELD_OUT = np.arange(56), np.arange(56, 64)
RECIPES = {
    "topk": TopK(epochs=8, batch=64, lr=1e-2, k=2, dead_after=50, shuffle_tokens=1024),
    "jumprelu": JumpReLU(epochs=3, batch=64, lr=1e-2, l0_coefficient=0.1, threshold=0.01, bandwidth=0.05, shuffle_tokens=1024),
    "standard": Standard(epochs=3, batch=64, lr=1e-2, l1_coefficient=0.5, sparsity_warm_up=0.1, shuffle_tokens=1024),
}
METADATA = {"model_name": "planted", "hf_hook_name": "layers.0", "context_size": 32, "prepend_bos": False}


def trained(folder, loss, seed=0, recipe=None, activations=ACTIVATIONS, checkpoint_tokens=10**9):
    n = train(
        recipe or RECIPES[loss],
        loss=loss,
        width=32,
        activations=activations,
        contexts=TRAINING,
        seed=seed,
        folder=folder,
        metadata=METADATA,
        checkpoint_tokens=checkpoint_tokens,
    )
    return n, sae_lens.build(sae_lens.Config(kind="sae_lens", hookpoint="here", width=32, loss=loss, folder=folder), loss, folder)


def test_topk_rebuilds_contexts_that_it_was_not_trained_on(tmp_path):
    n_training_tokens, sae = trained(tmp_path, "topk")
    measured = reconstruction(sae, ACTIVATIONS, HELD_OUT, block=32, batch_tokens=1024)
    assert n_training_tokens == 8 * 56 * 32 // 64 * 64
    assert measured.fvu < 0.2  # the best possible without a dictionary, 2 principal components of 16, leaves about 0.8
    assert 1 < measured.l0 <= 2


@pytest.mark.parametrize("loss", ["jumprelu", "standard"])
def test_the_other_losses_learn_too_and_their_file_says_how_they_were_trained(tmp_path, loss):
    _, sae = trained(tmp_path, loss)
    assert reconstruction(sae, ACTIVATIONS, HELD_OUT, block=32, batch_tokens=1024).fvu < 0.6
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


def test_nan_activations_stop_it_before_the_first_step(tmp_path):
    broken = planted_activations(n_contexts=64, n_positions=32, d_in=16, n_directions=24, n_active=2)
    broken._x[5] = float("nan")
    with pytest.raises(NumericsError, match=r"training: NaN or infinity among the activations; .*activations\.non_finite"):
        trained(tmp_path, "topk", activations=broken)


def test_a_diverging_training_stops_with_the_step_and_the_remedy(tmp_path):
    with pytest.raises(NumericsError, match=r"training: the loss is (nan|inf) at step \d+; lower train\.lr"):
        trained(tmp_path, "standard", recipe=RECIPES["standard"].model_copy(update={"lr": 1e30}))


class Killed(Exception):
    """Stands for a kill: whatever was not committed is lost."""


class Killing:
    """Activations that kill their reader at some of its calls, and count the tokens that were read."""

    def __init__(self, activations: StoredActivations, *, at: frozenset[int] = frozenset()) -> None:
        self.d_in, self.d_written, self.n_contexts, self.kept = (
            activations.d_in,
            activations.d_written,
            activations.n_contexts,
            activations.kept,
        )
        self._activations, self._at = activations, at
        self.n_calls = self.n_read = 0

    def rows(self, contexts: np.ndarray) -> torch.Tensor:
        self.n_calls += 1
        if self.n_calls in self._at:
            raise Killed
        rows = self._activations.rows(contexts)
        self.n_read += len(rows)
        return rows


MANY = planted_activations(n_contexts=640, n_positions=8, d_in=16, n_directions=24, n_active=2)
EVERY = 640
"""Tokens between two checkpoints; 64 contexts, which are read at once, have 512."""
SHORT = {"lr_warm_up": 0.2, "shuffle_tokens": 600, "epochs": 1.5, "batch": 60, "dead_after": 5}
_L1 = SHORT | {"lr": 1e-2, "l1_coefficient": 0.5, "sparsity_warm_up": 0.8}
_JUMP = SHORT | {"lr": 1e-2, "l0_coefficient": 1.0, "sparsity_warm_up": 0.8, "pre_act_coefficient": 0.1}
_BATCH_TOPK = SHORT | {"lr": 1e-2, "k": 2.5, "threshold_lr": 0.1}
WITH_STATE = {
    "topk": RECIPES["topk"].model_copy(update=SHORT),
    "abstopk": TopK(**SHORT, lr=1e-2, k=2),
    "batchtopk": BatchTopK(**_BATCH_TOPK),
    "matryoshka_batchtopk": Matryoshka(**_BATCH_TOPK, widths=(8, 16), aux_per_level=True),
    "standard": Standard(**_L1),
    "gated": Gated(**_L1),
    "jumprelu": JumpReLU(**_JUMP),
    "transcoder": Standard(**_L1),
    "batchtopk_transcoder": BatchTopK(**_BATCH_TOPK),
    "jumprelu_skip_transcoder": JumpReLU(**_JUMP),
}
"""Each with all that a step may depend on: warming rates, dead latents, a learned threshold, a buffer mixed several times."""
PAIRED = StoredActivations(MANY.rows(np.arange(640)).reshape(640, 8, 16), d_written=6)
"""The same as what a transcoder reads, and what it rebuilds."""


def activations_for(loss):
    return PAIRED if loss.endswith("transcoder") else MANY


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def trained_through_kills(folder, loss, recipe, at):
    """The activations read, after as many attempts as it takes."""
    killing = Killing(activations_for(loss), at=at)
    for _ in range(len(at) + 1):
        try:
            train_on(folder, loss, recipe, killing)
        except Killed:
            continue
        return killing
    raise AssertionError("it never came to its end")


def train_on(folder, loss, recipe, activations):
    contexts = np.arange(600)
    return train(
        recipe,
        loss=loss,
        width=32,
        activations=activations,
        contexts=contexts,
        seed=0,
        folder=folder,
        metadata=METADATA,
        checkpoint_tokens=EVERY,
    )


QUICK = ("topk", "matryoshka_batchtopk", "jumprelu_skip_transcoder")


@pytest.mark.parametrize("loss", [pytest.param(loss, marks=() if loss in QUICK else pytest.mark.slow) for loss in WITH_STATE])
def test_a_training_killed_again_and_again_ends_with_the_same_bytes_and_repeats_little(tmp_path, loss):
    recipe = WITH_STATE[loss]
    plain = Killing(activations_for(loss))
    n_tokens = train_on(tmp_path / "plain", loss, recipe, plain)
    # calls 1 to 10 read for the mean, then 15 in training
    kills = frozenset({2, 6, 12, 13, 17, 22, 30})
    killed = trained_through_kills(tmp_path / "killed", loss, recipe, kills)
    assert killed.n_calls > max(kills)
    assert files_in(tmp_path / "killed") == files_in(tmp_path / "plain")
    assert sorted(files_in(tmp_path / "plain")) == ["cfg.json", "loss.csv", "sae_weights.safetensors"]
    # a kill costs what was read since the last checkpoint, which comes at most a batch late
    assert killed.n_read - plain.n_read <= len(kills) * (EVERY + recipe.batch + 512)
    assert train_on(tmp_path / "killed", loss, recipe, killed) == n_tokens


def test_a_training_that_could_not_write_its_files_goes_on_from_its_last_checkpoint(tmp_path):
    recipe = WITH_STATE["topk"]
    train_on(tmp_path / "plain", "topk", recipe, MANY)
    (tmp_path / "full" / "cfg.json").mkdir(parents=True)
    with pytest.raises(OSError, match=r"cannot write .*cfg\.json"):
        train_on(tmp_path / "full", "topk", recipe, MANY)
    (tmp_path / "full" / "cfg.json").rmdir()
    again = Killing(MANY)
    train_on(tmp_path / "full", "topk", recipe, again)
    assert again.n_read <= EVERY + 512
    assert files_in(tmp_path / "full") == files_in(tmp_path / "plain")


def test_a_finished_training_is_not_made_again(tmp_path):
    recipe = RECIPES["topk"].model_copy(update={"epochs": 0.2})
    n_tokens = train_on(tmp_path, "topk", recipe, MANY)
    again = Killing(MANY)
    assert train_on(tmp_path, "topk", recipe, again) == n_tokens
    assert again.n_read == 0


def test_a_checkpoint_of_other_code_is_left_alone(tmp_path):
    recipe = WITH_STATE["topk"]
    with pytest.raises(Killed):
        train_on(tmp_path, "topk", recipe, Killing(MANY, at=frozenset({20})))
    path = tmp_path / "checkpoint.safetensors"
    save_file({"rows": torch.ones(1)}, path, metadata={"code": "another", "numbers": "{}"})
    train_on(tmp_path, "topk", recipe, MANY)
    train_on(tmp_path / "plain", "topk", recipe, MANY)
    assert (tmp_path / "sae_weights.safetensors").read_bytes() == (tmp_path / "plain" / "sae_weights.safetensors").read_bytes()
