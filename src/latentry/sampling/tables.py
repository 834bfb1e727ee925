"""The chosen windows as rows of `examples.parquet`, built in columns for many latents at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float32, Int8, Int64, Shaped
from numpy.lib.stride_tricks import sliding_window_view

from latentry.contracts import EXAMPLES
from latentry.records import Kind, Split
from latentry.sampling.base import NO_SUPPLIER, Tokens
from latentry.sampling.grid import Grid, texts_at
from latentry.sampling.marks import marks_of

SCHEMA = EXAMPLES.tables["examples.parquet"]
WINDOWS = "windows"
"""The `source` of activating examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Windows drawn for one latent, one split, one kind and one entry of the contrasts, in the order of their rank."""

    latent: int
    split: Split
    kind: Kind
    contrast: str
    sources: tuple[str, ...]
    """Names of the parts of the source."""
    part: Int64[np.ndarray, " example"]
    """Which part each window is from."""
    supplier: Int64[np.ndarray, " example"]
    window: Int64[np.ndarray, " example"]
    """The window of the grid that each is, or was cut around a token of."""
    starts: Int64[np.ndarray, " example"]
    """Flat position of each window's first token."""
    decile: Int8[np.ndarray, " example"]
    activations: Float32[np.ndarray, "example token"]


def examples_table(drawn: Sequence[Drawn], grid: Grid, token_set: Tokens) -> pa.Table:
    """One row per drawn window, in the order given."""
    drawn = [group for group in drawn if group.starts.size]
    if not drawn:
        return SCHEMA.empty_table()
    starts = np.concatenate([group.starts for group in drawn])
    activations = np.concatenate([group.activations for group in drawn])
    windows = np.concatenate([group.window for group in drawn])
    supplier = np.concatenate([group.supplier for group in drawn])
    begin, end = (_tokens_at(ends, starts, grid.window).astype(np.int32) for ends in (token_set.text_start, token_set.text_end))
    span_start, span_end = begin - begin[:, :1], end - begin[:, :1]
    marks, mark_offsets = marks_of(activations, span_start, span_end)
    columns = {
        **_keys(drawn),
        "supplier": pa.array(supplier, mask=supplier == NO_SUPPLIER).cast(pa.uint32()),
        "decile": np.concatenate([group.decile for group in drawn]),
        "document": grid.document[windows],
        "context": (starts // grid.context_length).astype(np.uint32),
        "start": (starts % grid.context_length).astype(np.uint32),
        "tokens": _lists(_tokens_at(token_set.tokens, starts, grid.window).astype(np.uint32, copy=False)),
        "activations": _lists(activations),
        "text": _texts(windows, starts, grid, token_set),
        "spans": _lists(np.stack([span_start, span_end], axis=2).reshape(len(starts), -1)),
        "marks": pa.ListArray.from_arrays(pa.array(mark_offsets.astype(np.int32)), pa.array(marks)),
    }
    return pa.table([pa.array(columns[name], type=SCHEMA.field(name).type) for name in SCHEMA.names], schema=SCHEMA)


def _tokens_at(values: Shaped[np.ndarray, "context position"], starts: Int64[np.ndarray, " example"], window: int) -> np.ndarray:
    """What each token of the windows has, [example, token]; rows are copied whole, which is faster than token by token."""
    return sliding_window_view(values.reshape(-1), window)[starts]


def _keys(drawn: Sequence[Drawn]) -> dict[str, Any]:
    sizes = [group.starts.size for group in drawn]

    def repeated(values: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(np.repeat(np.arange(len(drawn), dtype=np.int32), sizes), pa.array(values)).dictionary_decode()

    rank = pa.array(np.concatenate([np.arange(size, dtype=np.int32) for size in sizes]))
    prefix = repeated([f"{group.latent}-{group.split}-{group.contrast or WINDOWS}" for group in drawn])
    return {
        "latent": np.repeat(np.array([group.latent for group in drawn], dtype=np.uint32), sizes),
        "example_id": pc.call_function("binary_join_element_wise", [prefix, rank.cast(pa.string()), pa.scalar("-")]),
        "split": repeated([group.split.value for group in drawn]),
        "kind": repeated([group.kind.value for group in drawn]),
        "source": _sources(drawn),
        "contrast": repeated([group.contrast for group in drawn]),
        "rank": rank,
    }


def _sources(drawn: Sequence[Drawn]) -> pa.Array:
    names = list(dict.fromkeys(name for group in drawn for name in group.sources))
    numbers = {name: number for number, name in enumerate(names)}
    parts = [np.array([numbers[name] for name in group.sources], dtype=np.int32)[group.part] for group in drawn]
    return pa.DictionaryArray.from_arrays(np.concatenate(parts), pa.array(names)).dictionary_decode()


def _texts(windows: np.ndarray, starts: np.ndarray, grid: Grid, token_set: Tokens) -> Any:
    """Windows of the grid have their texts there; others are cut."""
    if np.array_equal(grid.starts[windows], starts):
        return grid.texts.take(pa.array(windows)).cast(pa.string())
    return texts_at(token_set, starts, grid.window)


def _lists(rows: np.ndarray) -> pa.ListArray:
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows.reshape(-1)))
