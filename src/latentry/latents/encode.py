"""Stored activations through a SAE, into the latent-major store. Left-out positions are never encoded."""

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from latentry.activations.activation_store import ActivationStore
from latentry.latents.latent_store import merge_segments, write_segment
from latentry.saes.base import Sae
from latentry.store import Work

SEGMENT_CONTEXTS = 1024
"""Contexts whose latents are sorted together before they are committed."""


def encode_latents(sae: Sae, activations: ActivationStore, making: Work, *, dtype: str, batch_tokens: int) -> int:
    """Encode every kept position and commit the latent-major shards; returns the number of activations.

    Segments that an earlier run committed are not made again.
    """
    names = []
    starts = range(0, activations.n_contexts, SEGMENT_CONTEXTS)
    with tqdm(total=int(activations.kept.sum()), unit="tok", unit_scale=True, desc=f"latents {sae.name}") as bar:
        for number, first in enumerate(starts):
            name = f"segment-{number:05d}.safetensors"
            names.append(name)
            last = min(first + SEGMENT_CONTEXTS, activations.n_contexts)
            if not making.has(name):
                found = _encoded(sae, activations, range(first, last), batch_tokens)
                write_segment(making, name, *found, sae.width, dtype)
            bar.update(int(activations.kept[first:last].sum()))
    n_activations = merge_segments(making, names)
    for name in names:
        making.path(name).unlink()
    return n_activations


def _encoded(sae: Sae, activations: ActivationStore, contexts: range, batch_tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position, latent and activation of every firing in some contexts, by ascending position."""
    positions = np.flatnonzero(activations.kept[contexts.start : contexts.stop]).astype(np.uint64) + np.uint64(
        contexts.start * activations.context
    )
    rows = activations.rows(contexts)
    parts = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))]
    for first in range(0, len(rows), batch_tokens):
        with torch.inference_mode():
            parts.append(_firings(sae.encode(rows[first : first + batch_tokens]), first))
    row, latent, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _narrow(positions[row], activations.kept.size), latent, value


def _firings(dense: Tensor, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    row, latent = dense.nonzero(as_tuple=True)
    return (row + first).cpu().numpy(), latent.cpu().numpy(), dense[row, latent].float().cpu().numpy()


def _narrow(positions: np.ndarray, n_positions: int) -> np.ndarray:
    return positions.astype(np.uint32) if n_positions <= 2**32 else positions
