"""One pass of the subject over the tokens, for all hookpoints at once, committed shard by shard."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from tqdm import tqdm

from latentry.corpora.token_set import TokenSet
from latentry.errors import NumericsError
from latentry.store import Work
from latentry.subjects.causal_lm import Subject

MEDIAN_TOKENS = 100_000
"""The median norm is taken over so many tokens (methods.md, Caching 3)."""


def cache_activations(
    subject: Subject,
    token_set: TokenSet,
    making: Mapping[str, Work],
    *,
    dtype: str,
    shard_contexts: int,
    batch_contexts: int,
) -> None:
    """Run the subject over every context and commit `shard-*.safetensors` in each hookpoint's folder.

    Shards that are there already are not made again.

    Raises:
        NumericsError: activations that are not finite, or do not fit the stated dtype.
    """
    starts = range(0, token_set.n_contexts, shard_contexts)
    with tqdm(total=token_set.tokens.size, unit="tok", unit_scale=True, desc="activations") as bar:
        for number, first in enumerate(starts):
            name = f"shard-{number:05d}.safetensors"
            rows = token_set.tokens[first : first + shard_contexts]
            if not all(work.has(name) for work in making.values()):
                shard = _shard(subject, rows, first, dtype, batch_contexts, bar)
                for point in making:
                    tensors = shard[point]
                    making[point].write_file(name, lambda path, tensors=tensors: save_file(tensors, path))
            else:
                bar.update(rows.size)


def _shard(subject: Subject, rows: np.ndarray, first: int, dtype: str, batch_contexts: int, bar: tqdm) -> dict[str, dict[str, Tensor]]:
    kept: dict[str, list[Tensor]] = {name: [] for name in subject.hookpoints}
    norms: dict[str, list[Tensor]] = {name: [] for name in subject.hookpoints}
    for start in range(0, len(rows), batch_contexts):
        batch = rows[start : start + batch_contexts]
        found = subject.activations(batch)
        for point, activations in found.items():
            norm = activations.float().norm(dim=-1)
            stored = activations.to(getattr(torch, dtype))
            _check_finite(activations, stored, point, first + start, dtype)
            kept[point].append(stored.flatten(0, 1).cpu())
            norms[point].append(norm.flatten().cpu())
        bar.update(batch.size)
    return {point: {"activations": torch.cat(kept[point]), "norm": torch.cat(norms[point])} for point in kept}


def _check_finite(activations: Tensor, stored: Tensor, point: str, first: int, dtype: str) -> None:
    bad = ~torch.isfinite(activations).all(dim=-1).all(dim=-1)
    if bad.any():
        contexts = [first + int(number) for number in bad.nonzero().flatten()]
        raise NumericsError(
            f"activations at {point}: {len(contexts)} contexts hold NaN or infinity, first {contexts[:5]}; check the subject's dtype"
        )
    if not torch.isfinite(stored).all():
        largest = float(activations.float().abs().max())
        raise NumericsError(f"activations at {point}: {largest:.3g} does not fit {dtype}; set `activations.dtype` to bfloat16 or float32")


def kept_positions(norms: Mapping[str, np.ndarray], special: np.ndarray, max_norm_multiple: float) -> tuple[np.ndarray, dict[str, float]]:
    """Which positions all SAEs of the run use, bool [context, position], and the median norm per hookpoint.

    A position is left out when its token is special, or when its norm is above `max_norm_multiple` times the median
    of the first 100,000 tokens that are not special, at any hookpoint.
    """
    kept = ~special
    medians = {}
    for point, norm in norms.items():
        medians[point] = float(np.median(norm[~special][:MEDIAN_TOKENS]))
        kept = kept & (norm <= max_norm_multiple * medians[point])
    return kept, medians


def norms_in(folder: Path, shape: tuple[int, int]) -> np.ndarray:
    """The norms of all shards of a folder, f32 [context, position]."""
    parts = []
    for path in sorted(folder.glob("shard-*.safetensors")):
        with safe_open(path, framework="np") as file:
            parts.append(file.get_tensor("norm"))
    return np.concatenate(parts).reshape(shape)


def width_in(folder: Path) -> int:
    """d_in of the shards in a folder."""
    with safe_open(next(iter(sorted(folder.glob("shard-*.safetensors")))), framework="pt") as file:
        return int(file.get_slice("activations").get_shape()[1])
