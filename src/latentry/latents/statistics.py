"""A row of statistics per latent, in blocks of latents: counts, strengths, the tokens it fires at and those it promotes.

Everything within a latent is told by sorting packed numbers, latent first: no step is taken latent by latent.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float, Int, Integer
from tqdm import tqdm

from latentry.contracts import LATENTS
from latentry.latents.latent_store import LatentStore, ranges_within
from latentry.store import Work

STATISTICS_FILE = "statistics.parquet"
BLOCK_ACTIVATIONS = 4_000_000
"""Activations worked on together; a latent that has more is worked on alone."""
BLOCK_LATENTS = 65_536
"""Latents worked on together at most, however rarely they fire."""


def write_statistics(making: Work, batches: Iterable[pa.RecordBatch]) -> None:
    """Commit `statistics.parquet` from the rows of some latents after those of others."""
    schema = LATENTS.tables[STATISTICS_FILE]

    def write(path: object) -> None:
        with pq.ParquetWriter(path, schema, compression="zstd") as file:
            for batch in batches:
                file.write_batch(batch)

    making.write_file(STATISTICS_FILE, write)


def statistics(
    store: LatentStore,
    tokens: Integer[np.ndarray, "context position"],
    n_kept: int,
    names: Sequence[str],
    promoted: Mapping[str, Int[np.ndarray, "latent token"]] | None,
    n_top: int,
) -> Iterator[pa.RecordBatch]:
    """The rows of `statistics.parquet`, by latent, in blocks.

    Args:
        n_kept: positions that were encoded: what firing frequencies are fractions of.
        names: text of each token id.
        promoted: token ids that the decoder row pushes up (`promoted`) and down (`suppressed`), strongest first; None where
            the SAE does not write to the residual stream: its lists are empty.
    """
    flat, texts, counts = tokens.reshape(-1), pa.array(names, pa.string()), store.firing_counts()
    with tqdm(total=int(counts.sum()), unit="act", unit_scale=True, desc="latents described") as bar:
        for first, last in ranges_within(counts, BLOCK_ACTIVATIONS, BLOCK_LATENTS):
            offsets, position, activation = store.block(first, last)
            columns = {
                "latent": np.arange(first, last, dtype=np.uint32),
                **strengths(offsets, activation, n_kept),
                **_token_columns(offsets, flat[position.view(np.int64)], texts, n_top),
                **{f"{end}_tokens": _named(promoted, end, slice(first, last), texts) for end in ("promoted", "suppressed")},
            }
            yield pa.RecordBatch.from_pydict(columns, LATENTS.tables[STATISTICS_FILE])
            bar.update(len(activation))


def strengths(
    offsets: Int[np.ndarray, " latent_and_1"], activation: Float[np.ndarray, " activation"], n_kept: int
) -> dict[str, np.ndarray]:
    """How often and how strongly each latent of a block fires; 0 throughout for one that never does.

    Quantiles are interpolated linearly, as numpy's.
    """
    counts = np.diff(offsets)
    alive = np.flatnonzero(counts)
    first, n = offsets[:-1][alive], counts[alive]
    ordered = _sorted_within(offsets, activation)
    found = {
        "peak": ordered[first + n - 1],
        "mean": np.add.reduceat(activation, first, dtype=np.float64) / n if len(alive) else np.empty(0),
        "median": _quantile(ordered, first, n, 0.5),
        "quantile_90": _quantile(ordered, first, n, 0.9),
        "quantile_99": _quantile(ordered, first, n, 0.99),
    }
    columns = {"firing_count": counts.astype(np.uint64), "firing_frequency": counts / n_kept, "dead": counts == 0}
    for name, values in found.items():
        columns[name] = np.zeros(len(counts), dtype=np.float32)
        columns[name][alive] = values
    return columns


def top_tokens(
    offsets: Int[np.ndarray, " latent_and_1"], token: Integer[np.ndarray, " activation"], n_top: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The commonest tokens that each latent of a block fires at, the lower id first among equals.

    Returns:
        Offsets i32 [latent + 1] into the other two, token ids, and the share of the latent's firings at each.
    """
    counts = np.diff(offsets)
    token_bits = _bits(token)
    kinds, n_firings = np.unique(_packed(counts, token, token_bits), return_counts=True)
    latent, kind = kinds >> token_bits, kinds & _mask(token_bits)
    # Common ones first: count down from the most there are.
    count_bits = _bits(n_firings)
    rank = latent << (count_bits + token_bits) | (_mask(count_bits) - n_firings.astype(np.uint64)) << token_bits | kind
    rank.sort()
    n_kinds = np.bincount(latent.view(np.int64), minlength=len(counts))
    place = np.arange(len(rank)) - np.repeat(np.cumsum(n_kinds) - n_kinds, n_kinds)
    rank = rank[place < n_top]
    n_listed = np.minimum(n_kinds, n_top)
    n_at = (_mask(count_bits) - (rank >> token_bits & _mask(count_bits))).astype(np.int64)
    list_offsets = np.concatenate([[0], np.cumsum(n_listed)]).astype(np.int32)
    return list_offsets, (rank & _mask(token_bits)).astype(np.int64), n_at / np.repeat(counts, n_listed)


def _sorted_within(offsets: np.ndarray, activation: np.ndarray) -> np.ndarray:
    """Activations f32 in ascending order within each latent."""
    bits = activation.view(np.uint32)
    # A float's bits rise with it when the sign is flipped, and, below zero, all other bits too.
    rising = np.where(bits >> 31 == 1, ~bits, bits | np.uint32(1 << 31))
    packed = _packed(np.diff(offsets), rising, 32)
    packed.sort()
    rising = packed.astype(np.uint32)
    return np.where(rising >> 31 == 1, rising ^ np.uint32(1 << 31), ~rising).view(np.float32)


def _packed(counts: np.ndarray, low: np.ndarray, bits: int) -> np.ndarray:
    """One u64 per activation: the latent's place in the block, then so many bits of another number."""
    packed = np.repeat(np.arange(len(counts), dtype=np.uint64) << bits, counts)
    packed |= low
    return packed


def _bits(numbers: np.ndarray) -> int:
    """How many bits the largest takes."""
    return int(numbers.max(initial=0)).bit_length()


def _mask(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)


def _quantile(ordered: np.ndarray, first: np.ndarray, n: np.ndarray, q: float) -> np.ndarray:
    """Of n ascending values from `first` on each, interpolated in the very steps of numpy.quantile."""
    place = (n - 1) * q
    below = np.floor(place).astype(np.int64)
    low, high = ordered[first + below], ordered[first + np.minimum(below + 1, n - 1)]
    share, step = place - below, high - low
    return np.where(share >= 0.5, high - step * (1 - share), low + step * share)


def _token_columns(offsets: np.ndarray, token: np.ndarray, texts: pa.StringArray, n_top: int) -> dict[str, pa.ListArray]:
    list_offsets, ids, fractions = top_tokens(offsets, token, n_top)
    return {
        "top_tokens": pa.ListArray.from_arrays(list_offsets, texts.take(pa.array(ids))),
        "top_token_fractions": pa.ListArray.from_arrays(list_offsets, pa.array(fractions.astype(np.float32))),
    }


def _named(promoted: Mapping[str, np.ndarray] | None, end: str, latents: slice, texts: pa.StringArray) -> pa.ListArray:
    ids = np.empty((latents.stop - latents.start, 0), dtype=np.int32) if promoted is None else promoted[end][latents]
    return pa.ListArray.from_arrays(np.arange(len(ids) + 1, dtype=np.int32) * np.int32(ids.shape[1]), texts.take(pa.array(ids.reshape(-1))))
