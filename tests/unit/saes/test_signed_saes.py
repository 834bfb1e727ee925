"""A signed SAE is one with two latents for each direction, against the dense signed encoding by brute force."""

import json

import numpy as np
import pytest
import torch

from latentry.contracts import LATENTS
from latentry.latents.encode import encoded
from latentry.latents.latent_store import LatentStore, merge_segments, write_segment
from latentry.saes.base import Sae, latent_label, signed_blocks
from latentry.store import Work
from planted_saes import dense_of

N, D_IN, N_TOKENS = 9, 5, 40


def numbers(seed: int, *shape: int) -> torch.Tensor:
    """Small whole numbers: products are exact in any order, and ties abound."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).float()


def signed_sae(matrix: torch.Tensor, k: int | None) -> Sae:
    rows = torch.randn(N, 4, generator=torch.Generator().manual_seed(2))
    return Sae(
        name="signed",
        hookpoint="here",
        writes="here",
        loss="abstopk",
        d_in=D_IN,
        encode_block=signed_blocks(lambda x, block: x @ matrix[:, block], N),
        k=k,
        decoder=torch.cat([rows, -rows]),
        decoder_bias=torch.ones(4),
        signed=True,
        provenance={},
    )


def by_brute_force(pre: np.ndarray, k: int | None) -> np.ndarray:
    """The k largest of each row by size, with their signs; of equals those above 0 first, then the lower ones."""
    dense = np.zeros_like(pre)
    for row, values in enumerate(pre):
        order = sorted(range(N), key=lambda latent: (-abs(values[latent]), values[latent] < 0, latent))
        dense[row, order[:k]] = values[order[:k]]
    return dense


@pytest.mark.parametrize("block", [1, 4, 7, N, N + 1, 2 * N, 100])
@pytest.mark.parametrize("k", [1, 3, N, None])
def test_both_halves_together_are_the_signed_encoding_at_any_block_size(k, block):
    x, matrix = numbers(0, N_TOKENS, D_IN), numbers(1, D_IN, N)
    sae, expected = signed_sae(matrix, k), by_brute_force((x @ matrix).numpy(), k)
    firings = sae.firings(x, block)
    dense = dense_of(firings, N_TOKENS, 2 * N).numpy()
    assert (firings.activation > 0).all()
    assert not ((dense[:, :N] > 0) & (dense[:, N:] > 0)).any()
    assert np.array_equal(dense[:, :N] - dense[:, N:], expected)
    rebuilt = torch.from_numpy(expected) @ sae.decoder[:N] + 1
    torch.testing.assert_close(sae.rebuild(firings, x), rebuilt, rtol=1e-5, atol=1e-5)


def test_a_store_of_it_has_the_parts_above_and_below_zero_and_says_so(project):
    x, matrix = numbers(0, N_TOKENS, D_IN), numbers(1, D_IN, N)
    sae, expected = signed_sae(matrix, 3), by_brute_force((x @ matrix).numpy(), 3)
    (project / "latents").mkdir()
    making = Work(project / "latents", project / "latents", LATENTS)
    row, latent, activation = encoded(sae, x.split(16), 4, lambda _n: None)
    write_segment(making, "segment-00000.safetensors", row.astype(np.uint32), latent, activation, sae.width, "float32")
    merge_segments(making, ["segment-00000.safetensors"], signed=sae.signed)
    store = LatentStore(making.folder)
    for direction in range(N):
        for twin, part in ((direction, expected[:, direction]), (direction + N, -expected[:, direction])):
            position, strength = store.read(twin)
            assert np.array_equal(position, np.flatnonzero(part > 0))
            assert np.array_equal(strength, part[part > 0])
    assert json.loads(making.path("store.json").read_text())["signed"] is True


def test_labels_are_a_direction_of_the_file_with_its_sign():
    assert [latent_label(latent, 2 * N, signed=True) for latent in (0, N - 1, N, 2 * N - 1)] == ["0+", "8+", "0-", "8-"]
    assert latent_label(N, 2 * N, signed=False) == "9"
