"""Every loss that can be trained finds the directions that were planted, and its file holds what sae-lens and we compute alike."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from latentry.saes import sae_lens
from latentry.saes.base import Sae
from latentry.saes.evaluation import reconstruction
from latentry.saes.recipe import recipe_of
from latentry.saes.training import train
from planted_saes import StoredActivations, dense_of

D_IN, D_OUT, WIDTH, N_DIRECTIONS, N_ACTIVE = 16, 12, 32, 24, 2
TRAINING, HELD_OUT = np.arange(56), np.arange(56, 64)
COMMON = {"epochs": 8, "batch": 64, "lr": 1e-2, "dead_after": 30, "shuffle_tokens": 1024}
L1, TOPK, JUMP = {"l1_coefficient": 0.5, "sparsity_warm_up": 0.1}, {"k": N_ACTIVE}, {"l0_coefficient": 0.1}
BATCH_TOPK = TOPK | {"threshold_lr": 0.05}
KNOBS: dict[str, dict[str, Any]] = {
    "standard": L1 | {"l1_coefficient": 0.3},
    "gated": L1,
    "topk": TOPK,
    "abstopk": TOPK,
    "batchtopk": BATCH_TOPK,
    "matryoshka_batchtopk": BATCH_TOPK | {"widths": [16]},
    "jumprelu": JUMP,
    "jumprelu tanh": {"l0_coefficient": 0.05, "sparsity_mode": "tanh", "ste_to_input": True},
    "jumprelu quadratic": JUMP | {"sparsity_mode": "quadratic", "target_l0": N_ACTIVE},
    "transcoder": L1,
    "skip_transcoder": L1,
    "batchtopk_transcoder": BATCH_TOPK,
    "batchtopk_skip_transcoder": BATCH_TOPK,
    "jumprelu_transcoder": JUMP,
    "jumprelu_skip_transcoder": JUMP,
}
QUICK = ("abstopk", "batchtopk_transcoder", "gated", "matryoshka_batchtopk")
LOSSES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in KNOBS]


def planted(loss: str) -> tuple[StoredActivations, torch.Tensor]:
    """Activations that are sums of two of the directions, of either sign for a signed loss; for a transcoder other directions of
    the same strengths stand beside them. Besides the activations, the directions that a decoder is to find."""
    generator = torch.Generator().manual_seed(0)
    read, written = (normalize(torch.randn(N_DIRECTIONS, d, generator=generator), dim=-1) for d in (D_IN, D_OUT))
    n = 64 * 32
    which = torch.rand(n, N_DIRECTIONS, generator=generator).topk(N_ACTIVE, dim=-1).indices
    some = 1 + torch.rand(n, N_ACTIVE, generator=generator)
    sign = torch.randint(0, 2, some.shape, generator=generator) * 2 - 1 if loss == "abstopk" else 1
    strength = torch.zeros(n, N_DIRECTIONS).scatter_(-1, which, some * sign)
    x = strength @ read + 3 * torch.randn(D_IN, generator=generator)
    if not loss.endswith("transcoder"):
        return StoredActivations(x.reshape(64, 32, D_IN)), read
    beside = 7 * strength @ written + torch.randn(D_OUT, generator=generator)
    return StoredActivations(torch.cat([x, beside], dim=-1).reshape(64, 32, D_IN + D_OUT), d_written=D_OUT), written


def trained(folder: Path, name: str, activations: StoredActivations) -> Sae:
    loss = name.split(" ")[0]
    train(
        recipe_of(loss, WIDTH, COMMON | KNOBS[name]),
        loss=loss,
        width=WIDTH,
        activations=activations,
        contexts=TRAINING,
        seed=0,
        folder=folder,
        metadata={"model_name": "planted"},
        checkpoint_tokens=10**9,
    )
    writes = {"writes": "there"} if loss.endswith("transcoder") else {}
    return sae_lens.build(sae_lens.Config(kind="sae_lens", hookpoint="here", width=WIDTH, loss=loss, folder=folder, **writes), name, folder)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_finds_planted_directions_and_its_file_computes_what_sae_lens_computes(tmp_path, name):
    from sae_lens import SAE

    loss = name.split(" ")[0]
    activations, directions = planted(loss)
    sae = trained(tmp_path, name, activations)
    measured = reconstruction(sae, activations, HELD_OUT, block=7, batch_tokens=100)
    # without a dictionary, two principal components of 16 leave about .8; of what a skip matrix rebuilds nothing is asked
    assert measured.fvu < 0.3
    if "skip" not in loss:
        assert (directions @ normalize(sae.decoder, dim=-1).T).max(dim=-1).values.median() > 0.8
    if "k" in KNOBS[name]:
        assert measured.l0 == pytest.approx(N_ACTIVE, rel=0.1)
    described = json.loads((tmp_path / "cfg.json").read_text())
    assert described["metadata"]["training_architecture"] == sae.loss == loss

    theirs, x = SAE.load_from_disk(tmp_path, device="cpu"), activations.rows(HELD_OUT)[:, :D_IN]
    with torch.no_grad():
        expected, firings = theirs.encode(x), sae.firings(x, 7)
        found = dense_of(firings, len(x), sae.width)
        found = found[:, :WIDTH] - found[:, WIDTH:] if sae.signed else found
        assert torch.equal(found != 0, expected != 0)
        # float32 sums in another order
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(sae.rebuild(firings, x), theirs(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("loss", ["batchtopk", "matryoshka_batchtopk"])
def test_a_row_alone_and_in_a_batch_gives_the_same_latents_after_batch_topk(tmp_path, loss, monkeypatch):
    monkeypatch.setitem(COMMON, "epochs", 0.5)
    activations, _ = planted(loss)
    sae, x = trained(tmp_path, loss, activations), activations.rows(HELD_OUT)
    together = dense_of(sae.firings(x, 32), len(x), WIDTH)
    alone = torch.cat([dense_of(sae.firings(row.unsqueeze(0), 32), 1, WIDTH) for row in x])
    assert torch.equal(alone != 0, together != 0)
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=1e-6)
    assert 0 < (together != 0).float().mean() < 1
