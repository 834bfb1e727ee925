"""Semantic contrasts: the silent windows whose texts are nearest in embedding to the activating ones, spread over these.

Every window of the grid is embedded once per run, and remembered by the embedding cache.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from jaxtyping import Float32, Int32, Int64
from pydantic import Field

from latentry.registry import ContrastConfig
from latentry.sampling.base import SourceInputs, Windows, by_turns
from latentry.sampling.grid import Grid
from latentry.sampling.wanted import Wanted

FIRST_NEAREST = 64
"""Windows looked at of each query in a first round; eight times as many in each further one."""
_TEXTS_AT_ONCE = 8192


class Config(ContrastConfig):
    """With which model nearness is measured."""

    model: str
    """A sentence-transformers model, by its name under `models`. The embedding scorer with the same model refuses these contrasts."""
    n_queries: Annotated[int, Field(ge=1)] = 50
    """Activating windows of each split that are asked for, the first by rank."""

    def source(self, contrasts: object) -> str:  # noqa: ARG002
        """With the model: other embeddings give other contrasts."""
        return f"{self.kind}_{self.model}"


def build(config: Config, inputs: SourceInputs) -> "Semantic":
    """The source, with every window of the grid embedded."""
    grid = inputs.grid
    parts = [
        inputs.embedded(config.model, grid.texts.slice(first, _TEXTS_AT_ONCE).to_pylist())
        for first in range(0, grid.n_windows, _TEXTS_AT_ONCE)
    ]
    return Semantic(grid, np.concatenate(parts), config.n_queries)


class Semantic:
    """The nearest windows by turns: the nearest of every query, then the second nearest, and so on."""

    def __init__(self, grid: Grid, embedded: Float32[np.ndarray, "window d_embedding"], n_queries: int) -> None:
        """`embedded` holds unit vectors, so that the nearest are those of largest cosine."""
        from sklearn.neighbors import NearestNeighbors

        self._grid, self._embedded, self._n_queries = grid, embedded, n_queries
        self._index = NearestNeighbors(algorithm="brute").fit(embedded)
        self._known: dict[int, Int32[np.ndarray, " nearest"]] = {}

    def draw(self, wanted: Sequence[Wanted]) -> list[Windows]:
        """As `ContrastSource.draw`. What is near the queries of all latents is searched for at once, which is several times faster."""
        self._learn([query for each in wanted for query in each.activating.window[: self._n_queries].tolist()])
        return [self._of(each) for each in wanted]

    def _of(self, wanted: Wanted) -> Windows:
        queries = wanted.activating.window[: self._n_queries]
        drawn, n_nearest = Windows.none(), 0
        while queries.size and drawn.starts.size < wanted.n and n_nearest < self._grid.n_windows:
            n_nearest = min(max(8 * n_nearest, FIRST_NEAREST), self._grid.n_windows)
            table = self._nearest(queries, n_nearest)
            drawn = wanted.extended(Windows.none(), table.reshape(-1)[by_turns(table)])
        return drawn.taken(slice(wanted.n))

    def _learn(self, queries: Sequence[int]) -> None:
        """Remember the nearest windows of a first round, for latents share windows."""
        unknown = np.array([query for query in dict.fromkeys(queries) if query not in self._known], dtype=np.int64)
        if unknown.size:
            nearest = self._search(unknown, min(FIRST_NEAREST, self._grid.n_windows))
            self._known.update(zip(unknown.tolist(), nearest.astype(np.int32), strict=True))

    def _nearest(self, queries: Int64[np.ndarray, " query"], n: int) -> Int64[np.ndarray, "query nearest"]:
        """The nearest windows of each query, nearest first."""
        if n > FIRST_NEAREST:
            return self._search(queries, n)
        return np.stack([self._known[query] for query in queries.tolist()]).astype(np.int64)

    def _search(self, queries: Int64[np.ndarray, " query"], n: int) -> Int64[np.ndarray, "query nearest"]:
        return self._index.kneighbors(self._embedded[queries], n_neighbors=n, return_distance=False)
