"""SAEs that nobody trained: random directions, and an MLP's own neurons."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from latentry.errors import ContractError, NumericsError
from latentry.saes import neurons, random
from latentry.saes.evaluation import reconstruction
from planted_saes import StoredActivations, dense_of, planted_activations

D_IN, WIDTH, K = 12, 40, 5
METADATA = {"model_name": "tiny", "hook_name": "model.layers.1"}
CONTEXTS = np.arange(6)


@pytest.fixture
def activations() -> StoredActivations:
    kept = np.ones((8, 9), dtype=bool)
    kept[:, 0] = False
    planted = planted_activations(n_contexts=8, n_positions=9, d_in=D_IN, n_directions=20, n_active=3)
    return StoredActivations(planted._x, kept)


def made(module, folder: Path, activations, **settings):
    folder.mkdir(exist_ok=True)
    config = module.Config(kind=module.__name__.rpartition(".")[2], hookpoint="here", **settings)
    how = {"seed": 0, "folder": folder, "metadata": METADATA, "checkpoint_tokens": 20}
    assert module.make(config, activations, CONTEXTS, **how) is None
    return module.build(config, "baseline", folder)


def test_random_directions_are_units_spread_evenly_and_their_bias_is_the_mean_of_the_training_contexts(tmp_path, activations):
    sae = made(random, tmp_path / "r", activations, width=4000, k=K)
    assert torch.allclose(sae.decoder.norm(dim=1), torch.ones(4000), atol=1e-6)
    # evenly over the sphere: no direction is preferred, mean 0 and second moments 1 / d_in, to five standard errors
    assert sae.decoder.mean(dim=0).abs().max() < 5 * (1 / D_IN / 4000) ** 0.5
    moments = sae.decoder.T @ sae.decoder / 4000
    assert (moments - torch.eye(D_IN) / D_IN).abs().max() < 5 * 2**0.5 / D_IN / 4000**0.5
    assert torch.allclose(sae.decoder_bias, activations.rows(CONTEXTS).mean(dim=0), atol=1e-5)
    assert (sae.baseline, sae.loss, sae.k, sae.d_in, sae.d_out) == ("random", "topk", K, D_IN, D_IN)


@pytest.mark.parametrize("block", [1, 7, WIDTH])
def test_a_random_sae_encodes_by_its_decoders_transpose_as_sae_lens_reads_it(tmp_path, activations, block):
    from sae_lens import SAE

    sae = made(random, tmp_path / "r", activations, width=WIDTH, k=K)
    x = activations.rows(np.array([6, 7]))
    centred = x - activations.rows(CONTEXTS).mean(dim=0)
    scores = centred @ sae.decoder.T
    largest = scores.topk(K, dim=1)
    by_hand = torch.zeros_like(scores).scatter_(1, largest.indices, largest.values.relu())
    found = dense_of(sae.firings(x, block), len(x), WIDTH)
    assert torch.allclose(found, by_hand, atol=1e-5)
    with torch.no_grad():
        theirs = SAE.load_from_disk(tmp_path / "r", device="cpu")
        assert torch.allclose(theirs.encode(x), found, atol=1e-5)
        assert torch.allclose(theirs.decode(found), sae.rebuild(sae.firings(x, block), x), atol=1e-5)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_seeds_differ_and_equal_seeds_are_the_same_bytes(tmp_path, activations):
    for name, settings in {"a": {"seed": 0}, "b": {"seed": 0}, "c": {"seed": 1}}.items():
        made(random, tmp_path / name, activations, width=WIDTH, k=K, **settings)
        made(neurons, tmp_path / f"n{name}", activations, k=K, rotate=True, **settings)
    assert files(tmp_path / "a") == files(tmp_path / "b") != files(tmp_path / "c")
    assert files(tmp_path / "na") == files(tmp_path / "nb") != files(tmp_path / "nc")


class Dying(StoredActivations):
    """Is killed at the n-th read."""

    def __init__(self, whole: StoredActivations, n: int) -> None:
        super().__init__(whole._x, whole.kept)
        self.left = n

    def rows(self, contexts):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().rows(contexts)


def test_a_killed_mean_goes_on_with_the_same_bytes(tmp_path, activations, monkeypatch):
    monkeypatch.setattr(random, "_READ_CONTEXTS", 2)
    made(random, tmp_path / "whole", activations, width=WIDTH, k=K)
    with pytest.raises(KeyboardInterrupt):
        made(random, tmp_path / "killed", Dying(activations, 2), width=WIDTH, k=K)
    made(random, tmp_path / "killed", Dying(activations, 1), width=WIDTH, k=K)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


def test_a_mean_that_is_no_number_is_told(tmp_path):
    bad = torch.zeros(8, 3, D_IN)
    bad[2, 1, 4] = torch.nan
    with pytest.raises(NumericsError, match=r"NaN or infinity among the activations"):
        made(random, tmp_path / "bad", StoredActivations(bad), width=WIDTH, k=K)


@pytest.mark.parametrize("rotate", [False, True])
def test_neurons_keep_the_k_largest_sizes_and_the_rest_is_the_error(tmp_path, activations, rotate):
    sae = made(neurons, tmp_path / "n", activations, k=K, rotate=rotate)
    x = activations.rows(CONTEXTS) - 3
    assert ((x > 0).any(), (x < 0).any()) == (True, True)
    turned = x @ sae.decoder[:D_IN].T
    smallest = turned.abs().topk(D_IN - K, dim=1, largest=False)
    kept = turned.scatter(1, smallest.indices, 0)
    for block in (1, 5, D_IN, 2 * D_IN):
        firings = sae.firings(x, block)
        latents = dense_of(firings, len(x), 2 * D_IN)
        assert torch.allclose(latents[:, :D_IN], kept.relu(), atol=1e-5)
        assert torch.allclose(latents[:, D_IN:], (-kept).relu(), atol=1e-5)
        rebuilt = sae.rebuild(firings, x)
        assert torch.allclose(((x - rebuilt) ** 2).sum(), (smallest.values**2).sum(), rtol=1e-4)
    assert torch.allclose(sae.decoder[:D_IN] @ sae.decoder[:D_IN].T, torch.eye(D_IN), atol=1e-5)
    assert torch.equal(sae.decoder[:D_IN], torch.eye(D_IN)) != rotate
    assert (sae.signed, sae.width, sae.baseline, sae.k) == (True, 2 * D_IN, "neurons", K)
    measured = reconstruction(sae, StoredActivations(x.unsqueeze(0)), np.array([0]), block=5, batch_tokens=7)
    spread = ((x - x.mean(dim=0)) ** 2).sum()
    assert measured.fvu == pytest.approx(((smallest.values**2).sum() / spread).item(), rel=1e-4)
    assert measured.l0 == pytest.approx(K)


def test_rotations_are_even_over_all_of_them():
    """Where each neuron's direction goes: mean 0 and second moment 1 / n of every entry, which the signs of a plain QR spoil."""
    n = 3
    drawn = np.stack([neurons.rotation(np.random.default_rng(seed), n) for seed in range(4000)])
    assert np.abs(drawn.mean(axis=0)).max() < 5 * (1 / n / 4000) ** 0.5
    assert np.abs((drawn**2).mean(axis=0) - 1 / n).max() < 5 * (4 / 45 / 4000) ** 0.5


@pytest.mark.parametrize(
    ("module", "settings", "said"),
    [
        (random, {"width": 4, "k": 5}, "k is 5, above the width; allowed are 1 to 4"),
        (random, {"width": 0, "k": 5}, "greater than or equal to 1"),
        (random, {"width": 8, "k": 5, "writes": "there"}, "`writes` is for transcoders"),
        (neurons, {"k": 5, "writes": "there"}, "`writes` is for transcoders"),
        (neurons, {"k": 5, "seed": 1}, "only with `rotate: true`"),
        (neurons, {"k": 0}, "greater than or equal to 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(module, settings, said):
    with pytest.raises(ValidationError, match=said):
        module.Config(kind="baseline", hookpoint="here", **settings)


def test_more_neurons_than_there_are_is_told_with_how_many_there_are(tmp_path, activations):
    with pytest.raises(ContractError, match=r"k is 13, the hookpoint 'here' has 12"):
        made(neurons, tmp_path / "n", activations, k=13)


def test_a_folder_of_another_entry_is_not_read_as_this_one(tmp_path, activations):
    made(random, tmp_path / "r", activations, width=WIDTH, k=K)
    with pytest.raises(ContractError, match=r"d_sae 40 and k 5, wanted width 40 and k 6"):
        random.build(random.Config(kind="random", hookpoint="here", width=WIDTH, k=6), "r", tmp_path / "r")
    made(neurons, tmp_path / "n", activations, k=K)
    with pytest.raises(ContractError, match=r"k 5, rotate False; wanted 5, True"):
        neurons.build(neurons.Config(kind="neurons", hookpoint="here", k=K, rotate=True), "n", tmp_path / "n")
    assert json.loads((tmp_path / "n" / "neurons.json").read_text())["metadata"] == METADATA
