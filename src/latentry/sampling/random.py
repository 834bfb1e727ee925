"""Random contrasts: drawn uniformly from the silent windows, without replacement, by rejection.

The silent windows are never listed: there are as many as the corpus has, less a few.
"""

import numpy as np
from jaxtyping import Int64

from latentry.registry import VariantConfig
from latentry.sampling.base import Wanted, is_in

DRAWS_PER_WINDOW = 16
"""Draws after which a rare silent window counts as not there: it is missed with probability exp(-16) = 1e-7."""
FIRST_BATCH, LARGEST_BATCH = 256, 65536


class Config(VariantConfig):
    """Nothing to choose: uniform is uniform."""


class RandomContrasts:
    """Silent windows of the whole grid, each equally likely."""

    def draw(self, wanted: Wanted) -> Int64[np.ndarray, " drawn"]:
        """Silent allowed windows of distinct, not refused text, in drawn order."""
        grid = wanted.grid
        left_to_draw, batch = DRAWS_PER_WINDOW * grid.n_windows + FIRST_BATCH, FIRST_BATCH
        drawn = np.zeros(0, dtype=np.int64)
        if wanted.activating.size == grid.n_windows:
            return drawn
        while drawn.size < wanted.n and left_to_draw > 0:
            candidates = wanted.rng.integers(grid.n_windows, size=min(batch, left_to_draw))
            drawn = _first_of_each_text(np.concatenate([drawn, _accepted(candidates, wanted)]), grid.text_id)
            left_to_draw, batch = left_to_draw - candidates.size, min(2 * batch, LARGEST_BATCH)
        return drawn[: wanted.n]


def build(config: Config) -> RandomContrasts:  # noqa: ARG001
    """The source; its draws come from the generator in each request."""
    return RandomContrasts()


def _accepted(candidates: Int64[np.ndarray, " candidate"], wanted: Wanted) -> Int64[np.ndarray, " accepted"]:
    silent = candidates[~is_in(candidates, wanted.activating)]
    other_text = silent[~is_in(wanted.grid.text_id[silent], wanted.refused_texts)]
    return other_text[wanted.allowed(other_text)]


def _first_of_each_text(windows: Int64[np.ndarray, " drawn"], text_id: Int64[np.ndarray, " window"]) -> Int64[np.ndarray, " distinct"]:
    _, first = np.unique(text_id[windows], return_index=True)
    return windows[np.sort(first)]
