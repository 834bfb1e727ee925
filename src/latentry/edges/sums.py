"""Edges summed over tokens, sparsely: a row per pair of latents that were ever active together.

Each value is counted in whole multiples of 2**-32 (2e-10), so sums are exact: no batch, order or part of the work changes a bit.
Memory is one part's pairs, or one block of output latents of all parts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from jaxtyping import Int64
from safetensors import safe_open

from latentry.edges.pairs import ActivePairs
from latentry.errors import NumericsError

UNIT = 2.0**-32
"""What values are counted in."""
_LARGEST = 2.0**62
"""Of a sum, so that another value still fits into 64 bits."""
_HELD = 4_000_000
"""Rows summed at once: some 400 MB."""
_COLUMNS = ("key", "count", "total", "total_abs")


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSums:
    """Sums of some pairs of latents, each once, ascending by output, then input latent."""

    key: Int64[np.ndarray, " edge"]
    """Output latent x width of the input + input latent."""
    count: Int64[np.ndarray, " edge"]
    """Tokens at which both were active."""
    total: Int64[np.ndarray, " edge"]
    """Of J, in units of `UNIT`."""
    total_abs: Int64[np.ndarray, " edge"]
    """Of |J|."""

    def arrays(self) -> dict[str, np.ndarray]:
        """As a part is stored."""
        return {name: getattr(self, name) for name in _COLUMNS}


def sums_of(pairs: ActivePairs, width_in: int) -> EdgeSums:
    """Sums over the tokens of some pairs."""
    value = np.rint(pairs.value.astype(np.float64) / UNIT)
    _check_room(float(np.abs(value).max(initial=0.0)) * len(value))
    total = value.astype(np.int64)
    return added([EdgeSums(key=pairs.out * width_in + pairs.input, count=np.ones_like(total), total=total, total_abs=np.abs(total))])


def added(parts: Sequence[EdgeSums]) -> EdgeSums:
    """The sums of all parts.

    Raises:
        NumericsError: a sum is too large to be exact.
    """
    columns = {name: np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)]) for name in _COLUMNS}
    _check_room(float(columns["total_abs"].astype(np.float64).sum()))
    order = np.argsort(columns["key"], kind="stable")
    key = columns["key"][order]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
    sums = {name: np.add.reduceat(columns[name][order], first) if len(first) else columns[name] for name in _COLUMNS[1:]}
    return EdgeSums(key=key[first], **sums)


def merged(paths: Sequence[Path], width_out: int, width_in: int) -> Iterator[EdgeSums]:
    """The sums of parts on disk, one block of output latents after another, ascending."""
    with_offsets = [(path, _offsets(path, width_out, width_in)) for path in paths]
    rows = np.sum([np.diff(offsets) for _, offsets in with_offsets], axis=0) if with_offsets else np.zeros(width_out, np.int64)
    for first, last in _blocks(rows):
        ranges = [(path, int(offsets[first]), int(offsets[last])) for path, offsets in with_offsets]
        yield added([_read(path, start, end) for path, start, end in ranges if start < end])


def edges_table(sums: EdgeSums, width_in: int) -> pa.Table:
    """Rows of `edges.parquet`."""
    out, read = np.divmod(sums.key, width_in)
    return pa.table(
        {
            "out": out.astype(np.uint32),
            "in": read.astype(np.uint32),
            "mean": sums.total / sums.count * UNIT,
            "mean_abs": sums.total_abs / sums.count * UNIT,
            "count": sums.count.astype(np.uint64),
        }
    )


def even(tables: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """The same rows in tables of `size` rows, so that a file's groups of rows do not tell the blocks it was made in."""
    held = pa.table({})
    for table in tables:
        held = pa.concat_tables([held, table]) if held.num_rows else table
        while held.num_rows >= size:
            yield held.slice(0, size).combine_chunks()
            held = held.slice(size)
    if held.num_rows:
        yield held.combine_chunks()


def _check_room(largest: float) -> None:
    if largest > _LARGEST:
        raise NumericsError(
            f"edges: |J| adds up to {largest * UNIT:.3g}, at most {_LARGEST * UNIT:.3g} can be summed exactly; check the SAEs' weights, or"
            " lower `tokens` under `jacobians`"
        )


def _offsets(path: Path, width_out: int, width_in: int) -> Int64[np.ndarray, " width_out_and_1"]:
    """Where the rows of each output latent begin in a part, and where the last ones end."""
    with safe_open(path, framework="np") as file:
        return np.searchsorted(file.get_tensor("key"), np.arange(width_out + 1) * width_in)


def _read(path: Path, first: int, last: int) -> EdgeSums:
    with safe_open(path, framework="np") as file:
        return EdgeSums(**{name: file.get_slice(name)[first:last] for name in _COLUMNS})


def _blocks(rows: Int64[np.ndarray, " width_out"]) -> Iterator[tuple[int, int]]:
    """Ranges of output latents with at most `_HELD` rows together, or one latent."""
    ends, first = np.concatenate([[0], np.cumsum(rows)]), 0
    while first < len(rows):
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + _HELD, side="right")) - 1)
        yield first, last
        first = last
