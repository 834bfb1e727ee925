"""The explanations nearest in meaning to each explanation, by the cosine of their embeddings.

Exact up to `EXACT` texts; beyond, each is compared with the texts of the nearest clusters only, which finds nearly all.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float32, Int64

N_SIMILAR = 8
EXACT = 30_000
_ROWS_AT_ONCE = 1024
_CLUSTERS_SEARCHED = 12

Vectors = Float32[np.ndarray, "text d_embedding"]


def nearest(vectors: Vectors, n: int = N_SIMILAR) -> tuple[Int64[np.ndarray, "text near"], Float32[np.ndarray, "text near"]]:
    """For each unit vector the places of the `n` nearest others, and their cosines; fewer than `n` others: -1 and 0."""
    places = np.full((len(vectors), n), -1, np.int64)
    cosines = np.zeros((len(vectors), n), np.float32)
    everything = np.arange(len(vectors))
    for rows, candidates in _searches(vectors) if len(vectors) > EXACT else [(everything, everything)]:
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            places[some], cosines[some] = _best(vectors, some, candidates, n)
    return places, cosines


def _best(
    vectors: Vectors, rows: Int64[np.ndarray, " row"], candidates: Int64[np.ndarray, " candidate"], n: int
) -> tuple[Int64[np.ndarray, "row near"], Float32[np.ndarray, "row near"]]:
    found = vectors[rows] @ vectors[candidates].T
    found[candidates[None, :] == rows[:, None]] = -np.inf
    n_there = min(n, len(candidates) - 1)
    best = np.argpartition(-found, n_there - 1, axis=1)[:, :n_there] if n_there > 0 else np.empty((len(rows), 0), np.int64)
    cosines = np.take_along_axis(found, best, axis=1)
    order = np.argsort(-cosines, axis=1, kind="stable")
    places = np.full((len(rows), n), -1, np.int64)
    values = np.zeros((len(rows), n), np.float32)
    places[:, :n_there] = candidates[np.take_along_axis(best, order, axis=1)]
    values[:, :n_there] = np.take_along_axis(cosines, order, axis=1)
    return places, values


def _searches(vectors: Vectors) -> Iterator[tuple[Int64[np.ndarray, " row"], Int64[np.ndarray, " candidate"]]]:
    """Each cluster's texts with those of the clusters near it, a coarse quantiser's inverted lists."""
    from sklearn.cluster import MiniBatchKMeans

    n_clusters = int(np.sqrt(len(vectors)))
    means = MiniBatchKMeans(n_clusters, random_state=0, n_init="auto", max_iter=20, batch_size=8192).fit(vectors)
    label, centres = np.asarray(means.labels_), np.asarray(means.cluster_centers_)
    order = np.argsort(label, kind="stable")
    bounds = np.searchsorted(label[order], np.arange(n_clusters + 1))
    members = [order[first:last] for first, last in pairwise(bounds)]
    distance = (centres**2).sum(axis=1) - 2 * centres @ centres.T  # but for what is the same along a row
    for cluster in range(n_clusters):
        near = np.argsort(distance[cluster], kind="stable")[:_CLUSTERS_SEARCHED]
        if len(members[cluster]):
            yield members[cluster], np.concatenate([members[other] for other in near])


def similar_rows(texts: Sequence[tuple[int, str]], embedded: Callable[[Sequence[str]], Vectors]) -> dict[int, list[tuple[int, float]]]:
    """For each row the rows whose explanations are nearest to any of its own; `texts` holds (row, explanation).

    Equal texts are embedded once; a row is named once, at its largest cosine.
    """
    rows_of: dict[str, list[int]] = {}
    for row, text in texts:
        rows_of.setdefault(text, []).append(row)
    distinct = list(rows_of)
    if len(distinct) < 2:
        return {}
    places, cosines = nearest(np.asarray(embedded(distinct), np.float32))
    found: dict[int, dict[int, float]] = {}
    for text, near, values in zip(distinct, places.tolist(), cosines.tolist(), strict=True):
        for row in rows_of[text]:
            mine = found.setdefault(row, {})
            for other in rows_of[text][:N_SIMILAR]:
                mine[other] = 1.0
            for place, value in zip(near, values, strict=True):
                for other in rows_of[distinct[place]][:N_SIMILAR] if place >= 0 else []:
                    mine[other] = max(mine.get(other, 0.0), round(value, 3))
    return {
        row: sorted(((other, value) for other, value in mine.items() if other != row), key=lambda one: (-one[1], one[0]))[:N_SIMILAR]
        for row, mine in found.items()
    }
