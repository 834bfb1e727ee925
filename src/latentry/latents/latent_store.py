"""The latent-major store: reading one latent costs what it holds.

Tokens arrive in order and are committed as segments, each sorted by latent; merging joins the segments of a range of
latents into one shard. Memory holds a few numbers per latent, one shard and one segment's part of it, whatever the tokens.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from scipy.sparse import coo_array, csr_array
from tqdm import tqdm

from latentry.contracts import LATENTS
from latentry.errors import ContractError, NumericsError
from latentry.store import Work, read_manifest

SHARD_ACTIVATIONS = 8_000_000
"""A shard is closed before the latent that would take it past so many activations: hundreds of files for the widest SAEs. A
latent is never cut: one that fires more often has a shard of its own."""
STORE_FILE = "store.json"
"""Committed when all shards are there: from then on no segment is needed."""

_DTYPES = {"I32": np.int32, "I64": np.int64, "U32": np.uint32, "U64": np.uint64, "F16": np.float16, "F32": np.float32}

_Columns = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Offsets, positions, activations."""


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
        shard = self._shard_of(latent)
        _, position, activation = self._part(shard, latent, latent + 1)
        return position, activation

    def block(self, first: int, last: int) -> _Columns:
        """Latents first..last (exclusive, at least one), as `read` gives each, one after another.

        Latent `first + i` has the entries from `offsets[i]` to `offsets[i + 1]`; offsets are i64 and begin at 0.

        Raises:
            ContractError: the SAE has no such latents.
        """
        shards = range(self._shard_of(first), self._shard_of(last - 1) + 1)
        parts = [self._part(shard, max(first, self._first[shard]), min(last, self._end_of(shard))) for shard in shards]
        if len(parts) == 1:
            return parts[0]
        counts, position, activation = (
            np.concatenate(column) for column in zip(*((np.diff(at), where, much) for at, where, much in parts), strict=True)
        )
        return _offsets_of(counts), position, activation

    def firing_count(self, latent: int) -> int:
        """At how many positions it fires.

        Raises:
            ContractError: the SAE has no such latent.
        """
        shard = self._shard_of(latent)
        place = latent - self._first[shard]
        return int(self._offsets[shard][place + 1] - self._offsets[shard][place])

    def firing_counts(self) -> np.ndarray:
        """At how many positions each latent fires, i64[width]."""
        return np.concatenate([np.diff(offsets) for offsets in self._offsets])

    def _shard_of(self, latent: int) -> int:
        if not 0 <= latent < self.width:
            raise ContractError(f"latent {latent}: the SAE has latents 0 to {self.width - 1}")
        return bisect_right(self._first, latent) - 1

    def _end_of(self, shard: int) -> int:
        return self._first[shard] + len(self._offsets[shard]) - 1

    def _part(self, shard: int, first: int, last: int) -> _Columns:
        """Latents first..last (exclusive) of one shard."""
        file, base = self._files[shard], self._first[shard]
        offsets = self._offsets[shard][first - base : last - base + 1]
        start, end = int(offsets[0]), int(offsets[-1])
        position, activation = _between(file, "position", start, end), _between(file, "activation", start, end)
        return offsets - start, position.astype(np.uint64), activation.astype(np.float32)


def segment_name(number: int) -> str:
    """The file of one segment while the store is in the making."""
    return f"segment-{number:05d}.safetensors"


def write_segment(
    making: Work, name: str, position: np.ndarray, latent: np.ndarray, activation: np.ndarray, width: int, dtype: str
) -> None:
    """Commit the activations of some positions, sorted by latent and, within one, by position.

    Args:
        position, latent, activation: one entry per activation, positions ascending; they are stored as they are, u32 or u64.

    Raises:
        NumericsError: an activation is not finite, or does not fit `dtype`.
    """
    first, last = (int(position[0]), int(position[-1])) if len(position) else (0, 0)
    place = (position - position.dtype.type(first)).astype(np.int32 if last - first < 2**31 else np.int64)
    # To compressed rows by a counting sort: places are ascending already, and stay so within each latent.
    by_latent = coo_array((activation.astype(np.float32, copy=False), (latent, place)), shape=(width, last - first + 1)).tocsr()
    fires = np.flatnonzero(np.diff(by_latent.indptr))
    arrays = {
        "width": np.array([width], dtype=np.uint64),
        "latent": fires.astype(np.uint32),
        "offsets": by_latent.indptr[np.append(fires, width)],
        "position": by_latent.indices.astype(position.dtype) + position.dtype.type(first),
        "activation": _narrowed(by_latent, dtype, first),
    }
    making.write_arrays(name, arrays)


def _narrowed(by_latent: csr_array, dtype: str, first: int) -> np.ndarray:
    """The activations in the stored dtype. What fires still fires: below the dtype's smallest number they are that number."""
    exact = by_latent.data
    with np.errstate(over="ignore", under="ignore"):
        kept = exact.astype(dtype)
    vanished = np.flatnonzero(kept == 0)
    kept[vanished] = np.copysign(np.finfo(dtype).smallest_subnormal, exact[vanished])
    unfit = np.flatnonzero(~np.isfinite(kept))
    if len(unfit) == 0:
        return kept
    worst = unfit[np.argmax(np.abs(exact[unfit]))]
    latent = int(np.searchsorted(by_latent.indptr, worst, side="right")) - 1
    if np.isfinite(exact[worst]):
        raise NumericsError(f"latent {latent}: activation {exact[worst]:.4g} does not fit {dtype}; set `latents.dtype` to float32")
    position = first + int(by_latent.indices[worst])
    raise NumericsError(
        f"latent {latent}: activation {exact[worst]} at position {position}, wanted finite numbers; check the dtypes of subject and SAE"
    )


def merge_segments(making: Work, segments: Sequence[str], *, signed: bool = False) -> int:
    """Join the committed segments into shards by ranges of latents, then delete them; returns the number of activations.

    `signed` is the SAE's, and stands in `store.json`.

    Shards that an earlier run committed are not made again, and once all are there no segment is read.
    """
    if not making.has(STORE_FILE):
        counts = _counts(making, segments)
        ranges = list(ranges_within(counts, SHARD_ACTIVATIONS))
        bounds = _bounds(making, segments, [first for first, _ in ranges] + [len(counts)])
        with tqdm(total=int(counts.sum()), unit="act", unit_scale=True, desc="latents merged") as bar:
            for number, (first, last) in enumerate(ranges):
                name = f"shard-{number:05d}.safetensors"
                if not making.has(name):
                    shard = _shard(making, segments, bounds[:, number : number + 2].tolist(), first, counts[first:last])
                    making.write_arrays(name, {"first": np.array([first], dtype=np.uint64), **shard})
                bar.update(int(counts[first:last].sum()))
        about = {"width": len(counts), "signed": signed, "n_activations": int(counts.sum()), "n_shards": len(ranges)}
        making.write_json(STORE_FILE, about)
    for name in segments:
        making.path(name).unlink(missing_ok=True)
    return int(LatentStore(making.folder).firing_counts().sum())


def ranges_within(counts: np.ndarray, most: int, most_latents: int | None = None) -> Iterator[tuple[int, int]]:
    """Latents in ranges first..last (exclusive) of at most so many activations together; a latent that has more stands alone."""
    ends = np.cumsum(counts)
    first = 0
    while first < len(counts):
        done = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + most, side="right")))
        last = min(last, first + most_latents) if most_latents else last
        yield first, last
        first = last


def _counts(making: Work, segments: Sequence[str]) -> np.ndarray:
    """Activations of each latent over all segments, i64[width]."""
    with safe_open(making.path(segments[0]), framework="np") as file:
        counts = np.zeros(int(file.get_tensor("width")[0]), dtype=np.int64)
    for name in segments:
        with safe_open(making.path(name), framework="np") as file:
            counts[file.get_tensor("latent")] += np.diff(file.get_tensor("offsets"))
    return counts


def _bounds(making: Work, segments: Sequence[str], edges: Sequence[int]) -> np.ndarray:
    """Where each range of latents begins among the latents that fire in each segment, [segment, edge]."""
    bounds = np.empty((len(segments), len(edges)), dtype=np.int64)
    for row, name in zip(bounds, segments, strict=True):
        with safe_open(making.path(name), framework="np") as file:
            row[:] = np.searchsorted(file.get_tensor("latent"), np.array(edges, dtype=np.int64))
    return bounds


def _shard(
    making: Work, segments: Sequence[str], bounds: Sequence[tuple[int, int]], first: int, counts: np.ndarray
) -> dict[str, np.ndarray]:
    """The latents from `first` on, of which there are so many activations each, put together segment after segment."""
    offsets = _offsets_of(counts)
    free = offsets[:-1].copy()
    with safe_open(making.path(segments[0]), framework="np") as file:
        whole = {key: np.empty(offsets[-1], dtype=_DTYPES[file.get_slice(key).get_dtype()]) for key in ("position", "activation")}
    for name, (start, end) in zip(segments, bounds, strict=True):
        if start == end:
            continue
        with safe_open(making.path(name), framework="np") as file:
            latent = _between(file, "latent", start, end).astype(np.int64) - first
            at = _between(file, "offsets", start, end + 1).astype(np.int64)
            # An activation goes as far behind its latent's first free place as it lies behind its latent's first one here.
            where = np.repeat(free[latent] - (at[:-1] - at[0]), np.diff(at))
            where += np.arange(len(where))
            for key, array in whole.items():
                array[where] = _between(file, key, int(at[0]), int(at[-1]))
        free[latent] += np.diff(at)
    return {"offsets": offsets, **whole}


def _between(file: Any, key: str, first: int, last: int) -> np.ndarray:
    part = file.get_slice(key)
    if first == last:  # safetensors refuses an empty slice that begins at the end
        return np.empty(0, dtype=_DTYPES[part.get_dtype()])
    return part[first:last]


def _offsets_of(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)])
