"""L0, FVU and cross-entropy recovered on activations whose answers are known by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from latentry.errors import ContractError, CorpusError, MemoryShortError, NumericsError
from latentry.saes.base import Sae
from latentry.saes.evaluation import CrossEntropy, Reconstruction, cross_entropy, evaluation_record, held_out_contexts, reconstruction
from planted_saes import StoredActivations, identity_sae, mean_sae

ALL = np.arange(40)
ENCODED = {"block": 5, "batch_tokens": 50}


@pytest.fixture
def activations() -> StoredActivations:
    generator = torch.Generator().manual_seed(1)
    # a mean far larger than the spread, as in a residual stream: a naive sum of squares in float32 would lose it
    return StoredActivations(torch.randn(40, 8, 6, generator=generator) + 1000)


def test_a_perfect_sae_has_fvu_zero(activations):
    assert reconstruction(identity_sae(6), activations, ALL, **ENCODED).fvu == 0.0


def test_predicting_the_mean_has_fvu_one(activations):
    mean = activations.rows(ALL).double().mean(dim=0).float()
    measured = reconstruction(mean_sae(mean), activations, ALL, **ENCODED)
    assert measured.fvu == pytest.approx(1, abs=1e-6)
    assert (measured.l0, measured.dead_fraction) == (0.0, 1.0)


def test_fvu_is_the_global_definition_whatever_the_batching(activations):
    sae = identity_sae(6, shrink=0.999)
    x = activations.rows(ALL).double()
    by_hand = (x - 0.999 * x).square().sum() / (x - x.mean(dim=0)).square().sum()
    assert reconstruction(sae, activations, ALL, **ENCODED).fvu == pytest.approx(by_hand.item(), rel=1e-4)
    assert reconstruction(sae, activations, ALL[::-1].copy(), **ENCODED).fvu == pytest.approx(by_hand.item(), rel=1e-4)


@pytest.mark.parametrize(("block", "batch_tokens"), [(1, 1), (5, 7), (12, 320), (10_000, 10_000)])
def test_block_and_batch_sizes_change_nothing(activations, block, batch_tokens):
    reference = reconstruction(identity_sae(6, shrink=0.999), activations, ALL, **ENCODED)
    measured = reconstruction(identity_sae(6, shrink=0.999), activations, ALL, block=block, batch_tokens=batch_tokens)
    assert (measured.firing_counts == reference.firing_counts).all()
    assert (measured.l0, measured.n_tokens) == (reference.l0, reference.n_tokens)
    assert measured.fvu == pytest.approx(reference.fvu, rel=1e-9)


def test_what_fires_is_counted_as_by_hand():
    x = torch.tensor([[[1.0, -1.0], [2.0, 0.0]], [[0.0, 3.0], [5.0, 5.0]]])
    measured = reconstruction(identity_sae(2), StoredActivations(x), np.arange(2), block=3, batch_tokens=3)
    assert measured.firing_counts.tolist() == [3, 2, 0, 1]  # +x, +y, -x, -y
    assert (measured.l0, measured.dead_fraction) == (1.5, 0.25)


def test_a_latent_rarer_than_the_lowest_bin_is_in_it():
    measured = Reconstruction(l0=1.0, fvu=0.5, n_tokens=10**8, firing_counts=np.array([1, 0, 10**8]))
    assert measured.density_histogram == {"log10_edges": list(range(-6, 1)), "n_latents": [1, 0, 0, 0, 0, 1], "n_dead": 1}


def test_a_sae_for_activations_of_another_length_is_refused_with_both_lengths_and_what_to_correct(activations):
    def never(_x, _block):
        raise AssertionError("a product was made")

    sae = Sae(
        name="other",
        hookpoint="resid",
        writes="resid",
        d_in=5,
        loss="topk",
        encode_block=never,
        decoder=torch.ones(3, 5),
        decoder_bias=torch.zeros(5),
        provenance={},
    )
    with pytest.raises(ContractError, match=r"'other' reads .* d_in = 5, hookpoint 'resid' gives 6; name the hookpoint .* saes\.other"):
        reconstruction(sae, activations, ALL, **ENCODED)


def test_too_little_memory_names_what_to_lower(activations):
    def too_large(_x, _block):
        raise MemoryError

    sae = replace(identity_sae(6), encode_block=too_large)
    with pytest.raises(MemoryShortError, match=r"lower `run\.batch_tokens` or `run\.block_latents`"):
        reconstruction(sae, activations, ALL, **ENCODED)


def test_positions_left_out_are_in_no_count(activations):
    kept = np.ones((40, 8), dtype=bool)
    kept[:, 0] = False
    activations.kept = kept
    measured = reconstruction(identity_sae(6), activations, ALL, **ENCODED)
    assert measured.n_tokens == 40 * 7
    assert measured.l0 == 6.0
    assert measured.dead_fraction == 0.5  # the latents of negative coordinates
    assert measured.density_histogram["n_dead"] == 6
    assert sum(measured.density_histogram["n_latents"]) == 6


def test_nan_activations_are_an_error_and_never_a_figure(activations):
    activations._x[3, 2, 1] = float("nan")
    with pytest.raises(NumericsError, match=r"'identity' at hookpoint 'here': NaN or infinity among the activations of contexts 0 to 15"):
        reconstruction(identity_sae(6), activations, ALL, **ENCODED)


def test_a_sae_that_overflows_is_an_error_that_names_the_sae(activations):
    sae = replace(identity_sae(6), decoder=1e38 * identity_sae(6).decoder)
    with pytest.raises(NumericsError, match=r"'identity' .* among the reconstructions"):
        reconstruction(sae, activations, ALL, **ENCODED)


def test_nothing_to_measure_is_an_error(activations):
    activations.kept = np.zeros((40, 8), dtype=bool)
    with pytest.raises(CorpusError, match="0 tokens"):
        reconstruction(identity_sae(6), activations, ALL, **ENCODED)


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
        x = self._x[torch.from_numpy(tokens[:, 0] // 4).long()]  # the first token names the context
        x = x if replace is None else replace[1](x)
        return x.square().sum(dim=-1)[:, :-1]


def test_cross_entropy_counts_only_real_tokens_and_keeps_clean_what_is_left_out():
    x = torch.ones(3, 4, 2)
    x[:, 1] = 100.0  # a sink: left out, so it stays clean in every pass
    tokens, special = np.arange(12, dtype=np.uint32).reshape(3, 4), np.zeros((3, 4), dtype=bool)
    special[:, 3] = True  # predicted from position 2: not counted
    kept = np.array([[True, False, True, True]] * 3)
    found = cross_entropy(identity_sae(2, shrink=0.5), SquareSubject(x), tokens, special, kept, block=3, batch_tokens=2, batch_contexts=3)
    # counted: tokens 1 and 2, predicted from positions 0 (length² 2) and 1 (20000, the sink)
    assert found.clean == pytest.approx((2 + 20000) / 2)
    assert found.zero == pytest.approx((0 + 20000) / 2)
    assert found.sae == pytest.approx((0.5 + 20000) / 2)


@pytest.mark.parametrize(("batch_contexts", "batch_tokens", "block"), [(1, 1, 1), (2, 3, 2), (3, 100, 100)])
def test_batches_of_contexts_and_tokens_change_no_cross_entropy(batch_contexts, batch_tokens, block):
    x = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(5))
    kept = np.array([[False] * 4, [True] * 4, [True, False, True, True]])
    tokens, special = np.arange(12, dtype=np.uint32).reshape(3, 4), ~kept
    found = cross_entropy(
        identity_sae(2, shrink=0.5),
        SquareSubject(x),
        tokens,
        special,
        kept,
        block=block,
        batch_tokens=batch_tokens,
        batch_contexts=batch_contexts,
    )
    counted, mask = torch.from_numpy(kept[:, 1:]), torch.from_numpy(kept).unsqueeze(-1)
    for figure, filled in ((found.clean, x), (found.zero, x * ~mask), (found.sae, x * (1 - 0.5 * mask.float()))):
        assert figure == pytest.approx(filled.square().sum(dim=-1)[:, :-1][counted].mean().item(), rel=1e-6)


def test_a_cross_entropy_that_is_no_number_is_an_error_with_all_three():
    x = torch.full((3, 4, 2), torch.inf)
    nothing = np.zeros((3, 4), dtype=bool)
    with pytest.raises(NumericsError, match=r"cross-entropy is inf clean, .*subject\.dtype"):
        cross_entropy(
            identity_sae(2),
            SquareSubject(x),
            nothing.astype(np.uint32),
            nothing,
            ~nothing,
            block=3,
            batch_tokens=2,
            batch_contexts=3,
        )


def test_recovered_is_one_for_a_perfect_sae_zero_for_zero_and_nothing_where_zeroing_costs_nothing():
    assert CrossEntropy(clean=3.0, zero=9.0, sae=3.0).recovered == 1.0
    assert CrossEntropy(clean=3.0, zero=9.0, sae=9.0).recovered == 0.0
    assert CrossEntropy(clean=3.0, zero=3.0, sae=3.0).recovered is None


def test_the_record_holds_what_was_measured(activations):
    sae = identity_sae(6)
    record = evaluation_record(sae, reconstruction(sae, activations, ALL, **ENCODED), None, subject="tiny", n_training_tokens=None)
    assert (record["fvu"], record["l0"], record["width"], record["ce_recovered"]) == (0.0, 6.0, 12, None)
