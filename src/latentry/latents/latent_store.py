"""The latent-major store: reading one latent costs what it holds.

Tokens arrive in order and are committed as segments, each sorted by latent; merging joins the segments of a range of
latents into one shard. Activations are never held for all latents at once.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from scipy.sparse import coo_array

from latentry.contracts import LATENTS
from latentry.errors import ContractError, NumericsError
from latentry.store import Work, read_manifest

SHARD_ACTIVATIONS = 64_000_000
"""A shard is closed at the first latent past so many activations: hundreds of files for the widest SAEs."""


_DTYPES = {"U32": np.uint32, "U64": np.uint64, "F16": np.float16, "F32": np.float32}


class LatentStore:
    """Reads the shards of a folder; they are mapped into memory, not loaded."""

    def __init__(self, folder: Path) -> None:
        self._files = [safe_open(path, framework="np") for path in sorted(folder.glob("shard-*.safetensors"))]
        self._first = [int(file.get_tensor("first")[0]) for file in self._files]
        self._offsets = [file.get_tensor("offsets") for file in self._files]
        self.width = self._first[-1] + len(self._offsets[-1]) - 1

    @classmethod
    def of(cls, folder: Path) -> "LatentStore":
        """Of a complete `data/latents/<S>`.

        Raises:
            ContractError: it is not complete, or of another version.
        """
        read_manifest(folder, LATENTS)
        return cls(folder)

    def read(self, latent: int) -> tuple[np.ndarray, np.ndarray]:
        """Where one latent fires and how much: positions u64 ascending, activations f32.

        Raises:
            ContractError: the SAE has no such latent.
        """
        if not 0 <= latent < self.width:
            raise ContractError(f"latent {latent}: the SAE has latents 0 to {self.width - 1}")
        shard = bisect_right(self._first, latent) - 1
        place = latent - self._first[shard]
        file, (start, end) = self._files[shard], self._offsets[shard][place : place + 2]
        return _between(file, "position", start, end).astype(np.uint64), _between(file, "activation", start, end).astype(np.float32)

    def firing_count(self, latent: int) -> int:
        """At how many positions it fires."""
        shard = bisect_right(self._first, latent) - 1
        place = latent - self._first[shard]
        return int(self._offsets[shard][place + 1] - self._offsets[shard][place])


def write_segment(
    making: Work, name: str, position: np.ndarray, latent: np.ndarray, activation: np.ndarray, width: int, dtype: str
) -> None:
    """Commit the activations of some positions, sorted by latent and, within one, by position.

    Args:
        position, latent, activation: one entry per activation, positions ascending.

    Raises:
        NumericsError: an activation does not fit `dtype`.
    """
    with np.errstate(over="ignore", under="ignore"):
        kept = activation.astype(dtype)
    # What fires still fires: an activation below the smallest number of the dtype is kept as that number.
    kept = np.where((kept == 0) & (activation != 0), np.copysign(np.finfo(dtype).smallest_subnormal, activation), kept).astype(dtype)
    if not np.isfinite(kept).all():
        worst = latent[~np.isfinite(kept)][0]
        raise NumericsError(
            f"latent {worst}: activation {np.abs(activation).max():.4g} does not fit {dtype}; set `latents.dtype` to float32"
        )
    order = np.argsort(latent, kind="stable")
    counts = np.bincount(latent, minlength=width)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    making.write_arrays(name, {"offsets": offsets, "position": position[order], "activation": kept[order]})


def merge_segments(making: Work, segments: Sequence[str]) -> int:
    """Join the committed segments into shards by ranges of latents; returns the number of activations."""
    files = [safe_open(making.path(name), framework="np") for name in segments]
    offsets = np.stack([file.get_tensor("offsets") for file in files])
    totals = np.diff(offsets, axis=1).sum(axis=0)
    for number, (first, last) in enumerate(_ranges(totals)):
        name = f"shard-{number:05d}.safetensors"
        if making.has(name):
            continue
        parts = {
            key: [_between(file, key, row[first], row[last]) for file, row in zip(files, offsets, strict=True)]
            for key in ("position", "activation")
        }
        # Segments are in the order of positions, so a stable sort by latent leaves positions ascending.
        latent = np.concatenate([np.repeat(np.arange(first, last), np.diff(row[first : last + 1])) for row in offsets])
        order = np.argsort(latent, kind="stable")
        arrays = {key: np.concatenate(value)[order] for key, value in parts.items()}
        shard_offsets = np.concatenate([[0], np.cumsum(totals[first:last])])
        making.write_arrays(name, {"first": np.array([first], dtype=np.uint64), "offsets": shard_offsets, **arrays})
    return int(totals.sum())


def _between(file: Any, key: str, first: int, last: int) -> np.ndarray:
    part = file.get_slice(key)
    if first == last:  # safetensors refuses an empty slice that begins at the end
        return np.empty(0, dtype=_DTYPES[part.get_dtype()])
    return part[int(first) : int(last)]


def _ranges(totals: np.ndarray) -> Iterator[tuple[int, int]]:
    first, held = 0, 0
    for latent, total in enumerate(totals):
        if held and held + total > SHARD_ACTIVATIONS:
            yield first, latent
            first, held = latent, 0
        held += int(total)
    yield first, len(totals)


def token_counts(store: LatentStore, latents: range, tokens: np.ndarray, vocabulary: int) -> coo_array:
    """How often each latent of a range fires at each token id, sparse [latent, vocabulary]."""
    parts = [tokens[store.read(latent)[0].astype(np.int64)] for latent in latents]
    rows = np.repeat(np.arange(len(latents)), [len(part) for part in parts])
    columns = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    return coo_array((np.ones(len(columns), dtype=np.int64), (rows, columns)), shape=(len(latents), vocabulary))
