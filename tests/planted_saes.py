"""Activations with a known dictionary in them, and SAEs that know it."""

import numpy as np
import torch
from torch import Tensor

from latentry.saes.base import Firings, Sae


class StoredActivations:
    """Activations in memory, read as training and evaluation read stored ones; the last `d_written` columns are what is rebuilt."""

    def __init__(self, x: Tensor, kept: np.ndarray | None = None, d_written: int = 0) -> None:
        self._x = x
        self.n_contexts, n_positions, n_columns = x.shape
        self.d_in, self.d_written = n_columns - d_written, d_written
        self.kept = np.ones((self.n_contexts, n_positions), dtype=bool) if kept is None else kept

    def rows(self, contexts: np.ndarray) -> Tensor:
        chosen = torch.from_numpy(np.asarray(contexts))
        return self._x[chosen][torch.from_numpy(self.kept[contexts])]


def planted_activations(
    *, n_contexts: int, n_positions: int, d_in: int, n_directions: int, n_active: int, seed: int = 0
) -> StoredActivations:
    """Each position is the sum of `n_active` of the unit directions, with strengths in [1, 2], and a common mean."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.nn.functional.normalize(torch.randn(n_directions, d_in, generator=generator), dim=-1)
    n = n_contexts * n_positions
    which = torch.rand(n, n_directions, generator=generator).topk(n_active, dim=-1).indices
    strength = torch.zeros(n, n_directions).scatter_(-1, which, 1 + torch.rand(n, n_active, generator=generator))
    x = strength @ directions + 3 * torch.randn(d_in, generator=generator)
    return StoredActivations(x.reshape(n_contexts, n_positions, d_in))


def identity_sae(d_in: int, *, shrink: float = 1.0, baseline: str | None = None, provenance: dict | None = None) -> Sae:
    """One latent per coordinate and sign: rebuilds x exactly, or shrunk."""
    rows = torch.cat([torch.eye(d_in), -torch.eye(d_in)])
    return Sae(
        name="identity",
        hookpoint="here",
        writes="here",
        loss="standard",
        d_in=d_in,
        encode_block=lambda x, block: shrink * (x @ rows[block].T).relu(),
        decoder=rows,
        decoder_bias=torch.zeros(d_in),
        provenance=provenance or {},
        baseline=baseline,
    )


def mean_sae(mean: Tensor) -> Sae:
    """Its one latent never fires: it always predicts the mean."""
    return Sae(
        name="mean",
        hookpoint="here",
        writes="here",
        loss="standard",
        d_in=len(mean),
        encode_block=lambda x, block: torch.zeros(len(x), block.stop - block.start),
        decoder=torch.ones(1, len(mean)),
        decoder_bias=mean,
        provenance={},
    )


def dense_of(firings: Firings, n_tokens: int, width: int) -> Tensor:
    """The latents of each token, dense: what other libraries call the encoding."""
    dense = torch.zeros(n_tokens, width, dtype=firings.activation.dtype)
    dense[firings.token, firings.latent] = firings.activation
    return dense
