"""The order in which training sees tokens: what sae-lens's buffer gives, and the same after a break at any batch."""

import itertools

import numpy as np
import pytest
import torch

from latentry.randomness import rng_for
from latentry.saes.batches import READ_CONTEXTS, Batches
from planted_saes import StoredActivations


@pytest.fixture
def activations() -> StoredActivations:
    """Every number is another one; a fifth of the positions and two whole contexts are left out."""
    kept = np.arange(200 * 6).reshape(200, 6) % 5 != 0
    kept[[3, 70]] = False
    return StoredActivations(torch.arange(200 * 6 * 3.0).reshape(200, 6, 3), kept)


CONTEXTS = np.arange(2, 190)
SIZES = {"small buffer": (16, 40), "buffer of a batch": (50, 50), "buffer of an epoch": (16, 900), "more than an epoch": (7, 2000)}


def batches_of(activations, batch, buffer):
    torch.manual_seed(3)
    return Batches(activations, CONTEXTS, rng_for(1, "order"), batch=batch, buffer=buffer)


@pytest.mark.parametrize(("batch", "buffer"), SIZES.values(), ids=SIZES)
def test_it_gives_the_batches_of_sae_lens_over_several_epochs(activations, batch, buffer):
    from sae_lens.training.mixing_buffer import mixing_buffer

    def chunks():
        rng = rng_for(1, "order")
        while True:
            order = rng.permutation(CONTEXTS)
            for start in range(0, len(order), READ_CONTEXTS):
                yield activations.rows(order[start : start + READ_CONTEXTS])

    n = 3 * 190 * 6 // batch
    found = torch.stack(list(itertools.islice(batches_of(activations, batch, buffer), n)))
    torch.manual_seed(3)
    expected = torch.stack(list(itertools.islice(mixing_buffer(buffer, batch, chunks()), n)))
    assert torch.equal(found, expected)


@pytest.mark.parametrize(("batch", "buffer"), SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("n_before", [1, 2, 3, 40, 131])
def test_put_down_at_any_batch_it_goes_on_with_the_same_ones_and_reads_nothing_again(activations, batch, buffer, n_before):
    whole = batches_of(activations, batch, buffer)
    for _ in range(n_before):
        next(whole)
    tensors, numbers = whole.state()
    expected = list(itertools.islice(whole, 60))
    again = batches_of(Counting(activations), batch, buffer)
    torch.manual_seed(77)
    again.resume(tensors, numbers)
    n_read = again.activations.n_read
    assert n_read == 0
    assert all(torch.equal(a, b) for a, b in zip(itertools.islice(again, 60), expected, strict=True))


class Counting:
    """Activations that count how many tokens were read of them."""

    def __init__(self, activations: StoredActivations) -> None:
        self.d_in, self.d_written, self.n_contexts, self.kept = (
            activations.d_in,
            activations.d_written,
            activations.n_contexts,
            activations.kept,
        )
        self._activations = activations
        self.n_read = 0

    def rows(self, contexts):
        rows = self._activations.rows(contexts)
        self.n_read += len(rows)
        return rows
