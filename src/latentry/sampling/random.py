"""Random contrasts: drawn uniformly from the silent windows, without replacement, by rejection.

The silent windows are never listed: there are as many as the corpus has, less a few.
"""

from latentry.registry import ContrastConfig
from latentry.sampling.base import SourceInputs, Wanted, Windows

DRAWS_PER_WINDOW = 16
"""Draws after which a rare silent window counts as not there: it is missed with probability exp(-16) = 1e-7."""
CANDIDATES_PER_WINDOW, LARGEST_BATCH = 4, 65536
"""In a first round, for each window wanted: about half of them are of the split, and most of these silent; later rounds double."""


class Config(ContrastConfig):
    """Nothing to choose: uniform is uniform."""


class RandomContrasts:
    """Silent windows of the whole grid, each equally likely."""

    def draw(self, wanted: Wanted) -> Windows:
        """Candidates from the whole grid until there are enough."""
        n_windows = wanted.grid.n_windows
        batch = CANDIDATES_PER_WINDOW * wanted.n
        left_to_draw = DRAWS_PER_WINDOW * n_windows + batch
        drawn = Windows.none()
        if not wanted.n_silent:
            return drawn
        while drawn.starts.size < wanted.n and left_to_draw > 0:
            candidates = wanted.rng.integers(n_windows, size=min(batch, left_to_draw))
            drawn = wanted.extended(drawn, candidates)
            left_to_draw, batch = left_to_draw - candidates.size, min(2 * batch, LARGEST_BATCH)
        return drawn.taken(slice(wanted.n))


def build(config: Config, inputs: SourceInputs) -> RandomContrasts:  # noqa: ARG001
    """The source; its draws come from the generator in each request."""
    return RandomContrasts()
