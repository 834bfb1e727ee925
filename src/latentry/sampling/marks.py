"""Which characters of an example are marked.

Marks are computed for a whole table at once; a mark is a stretch of the example's own text, which stays as it is.
"""

import numpy as np
from jaxtyping import Float32, Int, Int32, Int64

MARK_FRACTION = 0.3
"""A token is marked from this share of its window's peak on."""


def marks_of(
    activations: Float32[np.ndarray, "example token"],
    span_start: Int[np.ndarray, "example token"],
    span_end: Int[np.ndarray, "example token"],
) -> tuple[Int32[np.ndarray, " flat"], Int64[np.ndarray, " example+1"]]:
    """Marked stretches in characters, flat (start, end, start, end, ...), and where each example's begin in that list.

    Adjacent marked tokens make one stretch, with what stands between them. Marked tokens that share a character (pieces
    of one emoji) make one stretch too. Tokens without characters mark nothing, silent windows have no marks.
    """
    peak = activations.max(axis=1, initial=0.0, keepdims=True)
    marked = (activations > 0) & (activations >= MARK_FRACTION * peak)
    # With a column of nothing on both sides, marks begin and end by turns in the flat array, and none goes on into the next row.
    padded = np.pad(marked, ((0, 0), (1, 1))).reshape(-1)
    n_columns = marked.shape[1] + 2
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    example, first = np.divmod(edges[::2], n_columns)
    last = edges[1::2] % n_columns - 1
    start, end = span_start[example, first], span_end[example, last]
    visible = end > start
    example, start, end = example[visible], start[visible], end[visible]
    if not example.size:
        return np.zeros(0, dtype=np.int32), np.zeros(len(activations) + 1, dtype=np.int64)
    begins = np.ones(example.size, dtype=bool)
    begins[1:] = (example[1:] != example[:-1]) | (start[1:] >= end[:-1])
    group = np.flatnonzero(begins)
    flat = np.stack([start[group], np.maximum.reduceat(end, group)], axis=1).reshape(-1).astype(np.int32)
    n_marks = np.bincount(example[group], minlength=len(activations))
    return flat, np.concatenate([[0], np.cumsum(2 * n_marks)])
