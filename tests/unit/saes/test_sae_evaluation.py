"""L0, FVU and cross-entropy recovered on activations whose answers are known by hand."""

import numpy as np
import pytest
import torch

from latentry.errors import CorpusError, NumericsError
from latentry.saes.evaluation import CrossEntropy, cross_entropy, evaluation_record, held_out_contexts, reconstruction
from planted_saes import StoredActivations, identity_sae, mean_sae

ALL = np.arange(40)


@pytest.fixture
def activations() -> StoredActivations:
    generator = torch.Generator().manual_seed(1)
    # a mean far larger than the spread, as in a residual stream: a naive sum of squares in float32 would lose it
    return StoredActivations(torch.randn(40, 8, 6, generator=generator) + 1000)


def test_a_perfect_sae_has_fvu_zero(activations):
    assert reconstruction(identity_sae(6), activations, ALL).fvu == 0.0


def test_predicting_the_mean_has_fvu_one(activations):
    mean = activations.rows(ALL).double().mean(dim=0).float()
    measured = reconstruction(mean_sae(mean), activations, ALL)
    assert measured.fvu == pytest.approx(1, abs=1e-6)
    assert (measured.l0, measured.dead_fraction) == (0.0, 1.0)


def test_fvu_is_the_global_definition_whatever_the_batching(activations):
    sae = identity_sae(6, shrink=0.999)
    x = activations.rows(ALL).double()
    by_hand = (x - 0.999 * x).square().sum() / (x - x.mean(dim=0)).square().sum()
    assert reconstruction(sae, activations, ALL).fvu == pytest.approx(by_hand.item(), rel=1e-4)
    assert reconstruction(sae, activations, ALL[::-1].copy()).fvu == pytest.approx(by_hand.item(), rel=1e-4)


def test_positions_left_out_are_in_no_count(activations):
    kept = np.ones((40, 8), dtype=bool)
    kept[:, 0] = False
    activations.kept = kept
    measured = reconstruction(identity_sae(6), activations, ALL)
    assert measured.n_tokens == 40 * 7
    assert measured.l0 == 6.0
    assert measured.dead_fraction == 0.5  # the latents of negative coordinates
    assert measured.density_histogram["n_dead"] == 6
    assert sum(measured.density_histogram["n_latents"]) == 6


def test_nan_activations_are_an_error_and_never_a_figure(activations):
    activations._x[3, 2, 1] = float("nan")
    with pytest.raises(NumericsError, match="identity"):
        reconstruction(identity_sae(6), activations, ALL)


def test_nothing_to_measure_is_an_error(activations):
    activations.kept = np.zeros((40, 8), dtype=bool)
    with pytest.raises(CorpusError, match="0 tokens"):
        reconstruction(identity_sae(6), activations, ALL)


def test_held_out_contexts_depend_on_the_seed_alone_and_leave_some_to_train_on():
    held_out = held_out_contexts(50, 0.1, seed=3)
    assert held_out.sum() == 5
    assert (held_out == held_out_contexts(50, 0.1, seed=3)).all()
    assert (held_out != held_out_contexts(50, 0.1, seed=4)).any()
    assert held_out_contexts(2, 0.999, seed=0).sum() == 1
    with pytest.raises(CorpusError, match="at least 2"):
        held_out_contexts(1, 0.5, seed=0)


class SquareSubject:
    """A subject whose loss of a token is the squared length of the activation before it."""

    def __init__(self, x: torch.Tensor) -> None:
        self._x = x

    def token_losses(self, tokens, replace=None):
        x = self._x[: tokens.shape[0]]
        x = x if replace is None else replace[1](x)
        return x.square().sum(dim=-1)[:, :-1]


def test_cross_entropy_counts_only_real_tokens_and_keeps_clean_what_is_left_out():
    x = torch.ones(3, 4, 2)
    x[:, 1] = 100.0  # a sink: left out, so it stays clean in every pass
    tokens, special = np.zeros((3, 4), dtype=np.uint32), np.zeros((3, 4), dtype=bool)
    special[:, 3] = True  # predicted from position 2: not counted
    kept = np.array([[True, False, True, True]] * 3)
    found = cross_entropy(identity_sae(2, shrink=0.5), SquareSubject(x), tokens, special, kept)
    # counted: tokens 1 and 2, predicted from positions 0 (length² 2) and 1 (20000, the sink)
    assert found.clean == pytest.approx((2 + 20000) / 2)
    assert found.zero == pytest.approx((0 + 20000) / 2)
    assert found.sae == pytest.approx((0.5 + 20000) / 2)


def test_recovered_is_one_for_a_perfect_sae_zero_for_zero_and_nothing_where_zeroing_costs_nothing():
    assert CrossEntropy(clean=3.0, zero=9.0, sae=3.0).recovered == 1.0
    assert CrossEntropy(clean=3.0, zero=9.0, sae=9.0).recovered == 0.0
    assert CrossEntropy(clean=3.0, zero=3.0, sae=3.0).recovered is None


def test_the_record_holds_what_was_measured(activations):
    sae = identity_sae(6)
    record = evaluation_record(sae, reconstruction(sae, activations, ALL), None, subject="tiny", n_training_tokens=None)
    assert (record["fvu"], record["l0"], record["width"], record["ce_recovered"]) == (0.0, 6.0, 12, None)
