"""What fires, found block after block, against the whole encoding written out by brute force; and never held whole."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from latentry.saes.base import Sae
from latentry.saes.evaluation import reconstruction
from planted_saes import StoredActivations, dense_of, identity_sae


def sae_of(matrix: torch.Tensor, k: int | None, dtype: torch.dtype = torch.float32) -> Sae:
    """Its encoder is `matrix` [d_in, width], with a ReLU where there is no k."""

    def encode_block(x: torch.Tensor, block: slice) -> torch.Tensor:
        pre = x @ matrix[:, block].to(dtype)
        return pre if k else pre.relu()

    decoder = torch.randn(matrix.T.shape, generator=torch.Generator().manual_seed(9)).to(dtype)
    return Sae(
        name="planted",
        hookpoint="here",
        writes="here",
        d_in=matrix.shape[0],
        loss="topk" if k else "standard",
        encode_block=encode_block,
        k=k,
        decoder=decoder,
        decoder_bias=torch.ones(matrix.shape[0], dtype=dtype),
        provenance={},
    )


def whole_numbers(seed: int, *shape: int) -> torch.Tensor:
    """Small whole numbers: products are exact in any order, and ties abound."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).float()


def by_brute_force(pre: np.ndarray, k: int | None) -> np.ndarray:
    """The k largest above 0 of each row, of equals the lower latents; without k whatever is above 0."""
    dense = np.zeros_like(pre)
    for row, values in enumerate(pre):
        order = sorted(range(len(values)), key=lambda latent: (-values[latent], latent))
        fires = [latent for latent in order[:k] if values[latent] > 0]
        dense[row, fires] = values[fires]
    return dense


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("block", [1, 4, 5, 13, 23, 24, 100])
@pytest.mark.parametrize("k", [1, 4, 6, 23, 24, None])
def test_any_block_size_gives_the_same_latents_ties_included(k, block, dtype):
    x, matrix = whole_numbers(1, 60, 5), whole_numbers(2, 5, 24)
    sae = sae_of(matrix, k, dtype)
    firings = sae.firings(x, block)
    expected = by_brute_force((x @ matrix).numpy(), k)
    assert np.array_equal(dense_of(firings, 60, 24).float().numpy(), expected)
    assert len(firings.token) == np.count_nonzero(expected)
    rebuilt = expected @ sae.decoder.float().numpy() + 1
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.2}
    np.testing.assert_allclose(sae.rebuild(firings, x).float().numpy(), rebuilt, **tolerance)


@pytest.mark.parametrize("k", [3, None])
def test_rows_where_nothing_fires_are_rebuilt_as_the_bias(k):
    sae = sae_of(whole_numbers(2, 5, 24).abs(), k)
    x = torch.zeros(4, 5)
    x[1], x[2] = 1, -1
    firings = sae.firings(x, 7)
    assert firings.token.unique().tolist() == [1]
    assert torch.equal(sae.rebuild(firings, x)[[0, 2, 3]], torch.ones(3, 5))


@pytest.mark.parametrize("k", [3, None])
@pytest.mark.parametrize("n_tokens", [0, 1])
def test_no_row_and_one_row_are_rows_like_any(k, n_tokens):
    sae, x = sae_of(whole_numbers(2, 5, 24), k), torch.ones(n_tokens, 5)
    firings = sae.firings(x, 7)
    expected = by_brute_force((x @ whole_numbers(2, 5, 24)).numpy(), k)
    assert np.array_equal(dense_of(firings, n_tokens, 24).numpy(), expected)
    assert sae.rebuild(firings, x).shape == (n_tokens, 5)


@pytest.mark.parametrize("k", [3, None])
def test_a_row_with_nan_fires_so_that_it_is_noticed(k):
    x = torch.ones(3, 5)
    x[1, 2] = torch.nan
    sae = sae_of(whole_numbers(2, 5, 24), k)
    firings = sae.firings(x, 7)
    assert firings.activation[firings.token == 1].isnan().any()
    assert sae.rebuild(firings, x)[1].isnan().all()
    assert sae.rebuild(firings, x)[[0, 2]].isfinite().all()


class LargestTensor(TorchDispatchMode):
    """Numbers in the largest tensor that any operation gave."""

    n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.n = max(self.n, tensor.numel())
        return result


@pytest.mark.parametrize("k", [32, None])
def test_no_tensor_is_larger_than_a_block_of_a_batch_at_width_200k(k):
    width, block, n_tokens = 200_000, 4096, 8
    generator = torch.Generator().manual_seed(1)
    x, matrix = torch.randn(n_tokens, 4, generator=generator), torch.randn(4, width, generator=generator)
    sae = sae_of(matrix, k)
    if k is None:  # a threshold, above which about one latent in 50 fires
        sae = replace(sae, encode_block=lambda x, block: (x @ matrix[:, block] - 4).relu())
    with LargestTensor() as largest:
        firings = sae.firings(x, block)
        sae.rebuild(firings, x)
    assert n_tokens < len(firings.token) < 0.1 * n_tokens * width
    assert largest.n <= max(n_tokens * block, 2 * len(firings.token))


def test_evaluation_holds_no_more_than_what_it_reads_and_a_block_of_a_batch():
    sae, activations = identity_sae(300), StoredActivations(torch.randn(8, 50, 300, generator=torch.Generator().manual_seed(1)))
    with LargestTensor() as largest:
        reconstruction(sae, activations, np.arange(8), block=64, batch_tokens=100)
    assert largest.n == 400 * 300  # all that was read; the dense encoding has 400 x 600
