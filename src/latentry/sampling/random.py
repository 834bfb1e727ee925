"""Random contrasts: drawn uniformly from the silent windows, without replacement, by rejection.

The silent windows are never listed: there are as many as the corpus has, less a few.
"""

from collections.abc import Sequence

import numpy as np

from latentry.registry import ContrastConfig
from latentry.sampling.base import SourceInputs, Windows
from latentry.sampling.draws import uniform
from latentry.sampling.wanted import Wanted, usable_windows

CANDIDATES_PER_WINDOW = 4
"""Drawn at once for each window wanted: about half of them are of the split, and most of these silent."""
DRAWS_PER_WINDOW = 16
"""Draws after which a rare silent window counts as not there: it is missed with probability exp(-16) = 1e-7."""
LARGEST_BATCH = 65536


class Config(ContrastConfig):
    """Nothing to choose: uniform is uniform."""


class RandomContrasts:
    """Silent windows of the whole grid, each equally likely."""

    def draw(self, wanted: Sequence[Wanted]) -> list[Windows]:
        """First some candidates for all latents at once; for those that need more, one by one."""
        n_windows, n_candidates = wanted[0].grid.n_windows, CANDIDATES_PER_WINDOW * wanted[0].n
        numbers = uniform(np.array([each.key for each in wanted])[:, None], np.arange(n_candidates))
        windows = (numbers * n_windows).astype(np.int64)
        starts, is_usable = usable_windows(wanted, windows)
        drawn = [each.joined(Windows.none(), windows[row], starts[row], np.flatnonzero(is_usable[row])) for row, each in enumerate(wanted)]
        return [self._filled(each, some).taken(slice(each.n)) for each, some in zip(wanted, drawn, strict=True)]

    def _filled(self, wanted: Wanted, drawn: Windows) -> Windows:
        """With further candidates from the whole grid until there are enough."""
        n_windows, batch = wanted.grid.n_windows, 2 * CANDIDATES_PER_WINDOW * wanted.n
        left_to_draw = DRAWS_PER_WINDOW * n_windows if wanted.n_silent else 0
        generator = None if drawn.starts.size >= wanted.n else wanted.generator()
        while generator and drawn.starts.size < wanted.n and left_to_draw > 0:
            candidates = generator.integers(n_windows, size=min(batch, left_to_draw))
            drawn = wanted.extended(drawn, candidates)
            left_to_draw, batch = left_to_draw - candidates.size, min(2 * batch, LARGEST_BATCH)
        return drawn


def build(config: Config, inputs: SourceInputs) -> RandomContrasts:  # noqa: ARG001
    """The source; its draws come from the keys in each request."""
    return RandomContrasts()
