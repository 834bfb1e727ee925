"""Neighbour contrasts: windows of the most similar latents in which this one is silent: what else they share does not tell.

Similarity is the Jaccard index of the positions where two latents fire, or the cosine of their decoder rows.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt64
from pydantic import Field
from scipy.sparse import csr_array

from latentry.randomness import rng_for
from latentry.registry import ContrastConfig
from latentry.sampling.base import NO_SUPPLIER, Activations, SourceInputs, Windows, in_turns
from latentry.sampling.draws import uniform
from latentry.sampling.grid import Grid
from latentry.sampling.wanted import Wanted, usable_windows

SPARE = 6
"""Draws from each neighbour in the first round, as a multiple of its share: mostly enough are silent and of this split."""
MANY = 8
"""As many times more draws in the second round, from those that were short."""
LARGEST_COUNTER = 1 << 32
"""How far the numbers drawn for one neighbour are from those of the next."""
SIMILARITIES_AT_ONCE = 4_000_000
"""Numbers of one similarity matrix in memory."""
POSITIONS_AT_ONCE = 65536
"""Positions of one latent whose other latents are in memory."""
DECIMALS = 5
"""Similarities are rounded, and of equal ones the first latent comes first: their last bits depend on the latents computed together."""


class Config(ContrastConfig):
    """How near latents are found."""

    by: Literal["jaccard", "cosine"] = "jaccard"
    """`jaccard`: of firing positions; `cosine`: of decoder rows."""
    n_neighbours: Annotated[int, Field(ge=1)] = 10
    """Latents that supply windows, equally many each."""
    max_activations: Annotated[int, Field(ge=1)] = 25_000_000
    """Activations compared by `jaccard`: all where there are no more (exact), else those at a seeded sample of positions; 20 bytes each."""

    @property
    def reads_decoder(self) -> bool:
        """By cosine it does."""
        return self.by == "cosine"

    def source(self, contrasts: object) -> str:  # noqa: ARG002
        """With the kind of similarity: the two are not comparable."""
        return f"{self.kind}_{self.by}"


class Similarity(Protocol):
    """How near every latent is to some."""

    def rows(self, latents: Int64[np.ndarray, " asked"]) -> Float32[np.ndarray, "asked latent"]:
        """Similarity of each asked latent to all; zero or less where there is none."""
        ...


def build(config: Config, inputs: SourceInputs) -> "Neighbours":
    """The source, with what similarities are computed from."""
    similarity = Cosine(inputs.decoder()) if config.by == "cosine" else Jaccard.of(inputs, config.max_activations)
    return Neighbours(inputs.grid, inputs.store, similarity, config.n_neighbours)


class Neighbours:
    """Windows of similar latents, by turns, the most similar latent first."""

    def __init__(self, grid: Grid, store: Activations, similarity: Similarity, n_neighbours: int) -> None:
        self._grid, self._store, self._similarity, self._n_neighbours = grid, store, similarity, n_neighbours
        self._neighbours: dict[int, Int64[np.ndarray, " neighbour"]] = {}
        self._some: dict[int, Int64[np.ndarray, "neighbour draw"]] = {}

    def draw(self, wanted: Sequence[Wanted]) -> list[Windows]:
        """Equally many windows of each neighbour, uniformly; where one has too few, the others give more."""
        neighbours = self._neighbours_of([each.latent for each in wanted])
        n_draws = SPARE * -(-wanted[0].n // self._n_neighbours)
        windows = np.stack([self._some_windows(each, nearest, n_draws) for each, nearest in zip(wanted, neighbours, strict=True)])
        windows = windows.reshape(len(wanted), -1)
        starts, is_usable = usable_windows(wanted, np.maximum(windows, 0))
        is_usable &= windows >= 0
        return [
            self._filled(
                each,
                each.joined(
                    Windows.none(), windows[row], starts[row], np.flatnonzero(is_usable[row]), _suppliers(nearest, n_draws, windows[row])
                ),
                nearest,
            )
            for row, (each, nearest) in enumerate(zip(wanted, neighbours, strict=True))
        ]

    def _filled(self, wanted: Wanted, drawn: Windows, neighbours: Int64[np.ndarray, " neighbour"]) -> Windows:
        """With more draws from the neighbours that gave too few, then with all of their windows."""
        if not neighbours.size:
            return drawn
        share = -(-wanted.n // neighbours.size)
        for n_draws in (MANY * SPARE * share, None):
            short = neighbours[_counts(drawn, neighbours) < share]
            if short.size:
                drawn = self._offered(wanted, drawn, short, n_draws)
        if drawn.starts.size < wanted.n:
            drawn = self._offered(wanted, drawn, neighbours, None)
        return drawn.taken(in_turns((drawn.supplier[:, None] == neighbours).argmax(axis=1))[: wanted.n])

    def _neighbours_of(self, latents: Sequence[int]) -> list[Int64[np.ndarray, " neighbour"]]:
        """Those of the latents worked on together, kept for their other split."""
        if not set(latents) <= self._neighbours.keys():
            at_once = max(1, SIMILARITIES_AT_ONCE // self._store.width)
            parts = [latents[first : first + at_once] for first in range(0, len(latents), at_once)]
            self._neighbours = {
                latent: most_similar(row, latent, self._n_neighbours)
                for part in parts
                for latent, row in zip(part, self._similarity.rows(np.array(part)), strict=True)
            }
            self._some = {}
        return [self._neighbours[latent] for latent in latents]

    def _some_windows(
        self, wanted: Wanted, neighbours: Int64[np.ndarray, " neighbour"], n_draws: int
    ) -> Int64[np.ndarray, "neighbour draw"]:
        """Grid windows in which each neighbour fires, -1 where a draw counts for none; more draws begin with the same ones.

        A position counts only if it is the first of its window, so that all windows are equally likely. One that comes
        twice is as if it came once. They are kept for the latent's other split.
        """
        known = self._some.get(int(wanted.key))
        if known is None or known.shape[1] < n_draws:
            counters = np.arange(neighbours.size)[:, None] * LARGEST_COUNTER + np.arange(n_draws)
            numbers, windows = uniform(wanted.key, counters), np.full((self._n_neighbours, n_draws), -1)
            for row, neighbour in enumerate(neighbours.tolist()):
                windows[row] = self._windows_at(self._store.read(neighbour)[0], numbers[row])
            known = self._some[int(wanted.key)] = windows
        return known[:, :n_draws]

    def _windows_at(self, position: UInt64[np.ndarray, " n"], numbers: Float64[np.ndarray, " draw"]) -> Int64[np.ndarray, " draw"]:
        if not position.size:
            return np.full(numbers.size, -1)
        entry = (numbers * position.size).astype(np.int64)
        window, before = self._grid.window_of[position[entry]], self._grid.window_of[position[entry - 1]]
        return np.where((window != before) | (entry == 0), window, -1)

    def _offered(self, wanted: Wanted, drawn: Windows, suppliers: Int64[np.ndarray, " supplier"], n_draws: int | None) -> Windows:
        """What was drawn, and what may be used of the suppliers' windows, of so many draws or all, in random order."""
        generator = wanted.generator()
        lists = []
        for latent in suppliers.tolist():
            position = self._store.read(latent)[0]
            if n_draws is None:
                lists.append(generator.permutation(np.unique(self._grid.window_of[position]).astype(np.int64)))
            else:
                lists.append(self._windows_at(position, generator.random(n_draws)))
        windows, supplier = np.concatenate(lists), np.repeat(suppliers, [part.size for part in lists])
        return wanted.extended(drawn, windows[windows >= 0], supplier[windows >= 0])


def _suppliers(
    neighbours: Int64[np.ndarray, " neighbour"], n_draws: int, windows: Int64[np.ndarray, " window"]
) -> Int64[np.ndarray, " window"]:
    """Whose each window is, of so many draws from each neighbour; places without one are at the end."""
    supplier = np.full(windows.size, NO_SUPPLIER)
    supplier[: neighbours.size * n_draws] = np.repeat(neighbours, n_draws)
    return supplier


def _counts(drawn: Windows, neighbours: Int64[np.ndarray, " neighbour"]) -> Int64[np.ndarray, " neighbour"]:
    return (drawn.supplier[:, None] == neighbours).sum(axis=0)


def most_similar(similarity: Float32[np.ndarray, " latent"], latent: int, n: int) -> Int64[np.ndarray, " neighbour"]:
    """The latents of largest positive similarity, itself left out; of equal ones the first."""
    rounded = np.round(similarity, DECIMALS)
    rounded[latent] = 0
    n = min(n, rounded.size - 1)
    if n < 1:
        return np.zeros(0, dtype=np.int64)
    least = max(np.partition(rounded, rounded.size - n)[rounded.size - n], np.finfo(np.float32).tiny)
    candidates = np.flatnonzero(rounded >= least)
    return candidates[np.argsort(-rounded[candidates], kind="stable")][:n]


class Jaccard:
    """c_ij / (c_i + c_j - c_ij) for the positions at which latents i and j fire, from a sparse product."""

    def __init__(self, by_latent: csr_array) -> None:
        """Ones at [latent, position]."""
        self._by_latent = by_latent
        self._by_position = csr_array(by_latent.T.tocsr())
        self._counts = np.diff(by_latent.indptr).astype(np.float32)

    @classmethod
    def of(cls, inputs: SourceInputs, max_activations: int) -> "Jaccard":
        """Of all activations, or of those at as many positions, drawn by the seed, as hold `max_activations`."""
        n_positions, share = inputs.token_set.tokens.size, max_activations / max(int(inputs.firing_counts.sum()), 1)
        compared = np.ones(n_positions, dtype=bool)
        if share < 1:
            compared = rng_for(inputs.seed, "compared positions").random(n_positions, dtype=np.float32) < share
        column = np.cumsum(compared, dtype=np.int32) - 1
        columns = []
        for latent in range(inputs.store.width):
            position = inputs.store.read(latent)[0].astype(np.int64)
            columns.append(column[position[compared[position]]])
        indptr = np.concatenate([[0], np.cumsum([part.size for part in columns])])
        indices = np.concatenate(columns)
        shape = (inputs.store.width, int(column[-1]) + 1)
        return cls(csr_array((np.ones(indices.size, dtype=np.float32), indices, indptr), shape=shape))

    def rows(self, latents: Int64[np.ndarray, " asked"]) -> Float32[np.ndarray, "asked latent"]:
        """As `Similarity.rows`."""
        both = np.stack([self._fires_with(latent) for latent in latents.tolist()]).astype(np.float32)
        return both / np.maximum(self._counts[latents][:, None] + self._counts - both, 1)

    def _fires_with(self, latent: int) -> Int64[np.ndarray, " latent"]:
        """At how many positions of one latent each latent fires: its row of the sparse product, several times faster than scipy's."""
        both = np.zeros(self._counts.size, dtype=np.int64)
        positions = self._by_latent.indices[self._by_latent.indptr[latent] : self._by_latent.indptr[latent + 1]]
        for first in range(0, positions.size, POSITIONS_AT_ONCE):
            part = positions[first : first + POSITIONS_AT_ONCE]
            begin = self._by_position.indptr.take(part)
            n_latents = self._by_position.indptr.take(part + 1) - begin
            entry = np.arange(n_latents.sum()) + np.repeat(begin - (np.cumsum(n_latents) - n_latents), n_latents)
            both += np.bincount(self._by_position.indices.take(entry), minlength=both.size)
        return both


class Cosine:
    """Cosine of decoder rows; their scale does not matter."""

    def __init__(self, decoder: Float32[np.ndarray, "latent d_in"]) -> None:
        rows = decoder.astype(np.float32)
        self._unit_rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)

    def rows(self, latents: Int64[np.ndarray, " asked"]) -> Float32[np.ndarray, "asked latent"]:
        """As `Similarity.rows`."""
        return self._unit_rows[latents] @ self._unit_rows.T
