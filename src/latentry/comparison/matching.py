"""Latents that two SAEs of one place share: decoder rows paired so that the sum of their cosines is largest.

Hungarian over sparse candidates (each row's nearest of the other SAE, methods.md "From judgments to numbers"); in blocks, so that
the whole matrix of cosines is never there.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

CANDIDATES = 20
SHARED = 0.7
"""Least cosine of two latents that are the same."""

_PRODUCT = 32_000_000
"""Cosines held at once: 128 MB."""
_UNPAIRED = 2.0
"""Cost of a row without a partner; that of a pair is this less its cosine. None is 0, which a sparse matrix would drop."""

Decoder = Float32[np.ndarray, "latent d_out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Pairs of latents, ascending by the first; no latent stands in two."""

    latent_a: Int64[np.ndarray, " pair"]
    latent_b: Int64[np.ndarray, " pair"]
    cosine: Float32[np.ndarray, " pair"]


def matched(a: Decoder, b: Decoder) -> Matched:
    """The latents of `a` and `b` that are one direction, at a cosine of `SHARED` or more.

    Raises:
        ValueError: the rows are not equally long.
    """
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"decoder rows of length {a.shape[1]} and {b.shape[1]}; only SAEs that write at one place have latents in common")
    rows, columns, cosines = _candidates(_unit(a), _unit(b))
    if not len(rows):
        return Matched(latent_a=rows, latent_b=columns, cosine=cosines)
    everyone = np.arange(len(a))
    costs = np.concatenate([_UNPAIRED - cosines.astype(float), np.full(len(a), _UNPAIRED)])
    places = (np.concatenate([rows, everyone]), np.concatenate([columns, len(b) + everyone]))
    of_a, of_b = min_weight_full_bipartite_matching(coo_array((costs, places), shape=(len(a), len(b) + len(a))).tocsr())
    paired = of_b < len(b)
    of_a, of_b = of_a[paired].astype(np.int64), of_b[paired].astype(np.int64)
    found = csr_array((cosines, (rows, columns)), shape=(len(a), len(b)))
    return Matched(latent_a=of_a, latent_b=of_b, cosine=np.array(found[of_a, of_b], np.float32).ravel())


def _unit(rows: Decoder) -> Decoder:
    """Rows of length 1; one of length 0 stays, and is like no other."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _candidates(a: Decoder, b: Decoder) -> tuple[Int64[np.ndarray, " edge"], Int64[np.ndarray, " edge"], Float32[np.ndarray, " edge"]]:
    """Each row's nearest of the other side that reach `SHARED`: row of `a`, row of `b`, cosine."""
    at_once = max(1, _PRODUCT // max(1, len(b)))
    rows, columns, cosines = [], [], []
    for first in range(0, len(a), at_once):
        product = a[first : first + at_once] @ b.T
        row, column = np.nonzero(product >= SHARED)
        value = product[row, column]
        near = _place_in_row(row, value) < CANDIDATES
        rows.append(row[near] + first)
        columns.append(column[near])
        cosines.append(value[near])
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(cosines)


def _place_in_row(row: Int64[np.ndarray, " edge"], value: Float32[np.ndarray, " edge"]) -> Int64[np.ndarray, " edge"]:
    """How many larger values of its row each has before it; rows ascend."""
    order = np.lexsort((-value, row))
    place = np.empty(len(row), np.int64)
    place[order] = np.arange(len(row)) - np.searchsorted(row, row[order])
    return place
