"""A SAE that reads one hookpoint and writes another: measured on what it writes, and patched there."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from latentry.errors import ContractError
from latentry.saes.base import Sae
from latentry.saes.evaluation import cross_entropy, evaluation_record, reconstruction
from planted_saes import StoredActivations, identity_sae

ALL = np.arange(6)
ENCODED = {"block": 2, "batch_tokens": 5}
MATRIX = torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, -2.0]])
"""From the two coordinates read to the three written."""
TOKENS = np.arange(24, dtype=np.uint32).reshape(6, 4)


def transcoder(**changes) -> Sae:
    """Reads two coordinates and writes what the matrix makes of their positive and negative parts, exactly."""
    plain = replace(identity_sae(2), name="between", writes="there", decoder=torch.cat([MATRIX, -MATRIX]), decoder_bias=torch.zeros(3))
    return replace(plain, **changes)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(6, 4, 2, generator=torch.Generator().manual_seed(0))


def pair(x: torch.Tensor, written: torch.Tensor) -> StoredActivations:
    return StoredActivations(torch.cat([x, written], dim=-1), d_written=written.shape[-1])


def test_error_and_variance_are_those_of_what_is_written(x):
    off = torch.randn(6, 4, 3, generator=torch.Generator().manual_seed(1))
    written = x @ MATRIX + 50 + off
    found = reconstruction(transcoder(decoder_bias=torch.full((3,), 50.0)), pair(x, written), ALL, **ENCODED)
    by_hand = off.square().sum() / (written - written.mean(dim=(0, 1))).square().sum()
    assert found.fvu == pytest.approx(by_hand.item(), rel=1e-4)
    assert found.l0 == 2.0


def test_a_skip_matrix_rebuilds_from_what_was_read(x):
    skip = torch.randn(3, 2, generator=torch.Generator().manual_seed(2))
    found = reconstruction(transcoder(skip=skip), pair(x, x @ MATRIX + x @ skip.T), ALL, **ENCODED)
    assert found.fvu < 1e-10


@pytest.mark.parametrize(
    ("d_written", "said"),
    [(4, r"'between' rebuilds .* d_out = 3, hookpoint 'there' gives 4"), (0, r"d_out = 3, hookpoint 'there' gives 0")],
)
def test_something_else_than_it_writes_is_refused_with_both_lengths(x, d_written, said):
    with pytest.raises(ContractError, match=said):
        reconstruction(transcoder(), pair(x, torch.zeros(6, 4, d_written)), ALL, **ENCODED)


class TwoPlaces:
    """A subject that has `x` at `here`, the double of its product with the matrix at `there`, and whose loss of a token is the squared
    length of what stood `there` at the position before."""

    def __init__(self, x: torch.Tensor) -> None:
        self._x = x

    def _of(self, tokens: np.ndarray) -> torch.Tensor:
        return self._x[torch.from_numpy(tokens[:, 0] // 4).long()]  # the first token names the context

    def activations(self, tokens: np.ndarray) -> dict[str, torch.Tensor]:
        return {"here": self._of(tokens), "there": 2 * self._of(tokens) @ MATRIX}

    def token_losses(self, tokens, replace=None):
        there = self.activations(tokens)["there"]
        if replace is not None:
            assert replace[0] == "there"
            there = replace[1](there)
        return there.square().sum(dim=-1)[:, :-1]


@pytest.mark.parametrize(("batch_contexts", "batch_tokens"), [(1, 1), (4, 3), (6, 100)])
def test_cross_entropy_is_with_the_written_hookpoint_zero_and_rebuilt_from_what_was_read(x, batch_contexts, batch_tokens):
    kept = np.ones((6, 4), dtype=bool)
    kept[:, 1] = False  # keeps its clean value in every pass
    sizes = {"block": 2, "batch_tokens": batch_tokens, "batch_contexts": batch_contexts}
    found = cross_entropy(transcoder(), TwoPlaces(x), TOKENS, np.zeros((6, 4), dtype=bool), kept, **sizes)
    length = (x @ MATRIX).square().sum(dim=-1)[:, :-1]
    clean, left_out = 4 * length, torch.tensor([0.0, 4.0, 0.0]) * length
    assert found.clean == pytest.approx(clean.mean().item(), rel=1e-5)
    assert found.zero == pytest.approx(left_out.mean().item(), rel=1e-5)
    assert found.sae == pytest.approx((torch.tensor([1.0, 0.0, 1.0]) * length + left_out).mean().item(), rel=1e-5)


def test_its_record_names_both_hookpoints_and_both_lengths(x):
    sae = transcoder()
    record = evaluation_record(sae, reconstruction(sae, pair(x, x @ MATRIX), ALL, **ENCODED), None, subject="s", n_training_tokens=None)
    assert [record[name] for name in ("hookpoint", "writes", "d_in", "d_out")] == ["here", "there", 2, 3]
