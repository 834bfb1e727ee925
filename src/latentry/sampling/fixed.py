"""Fixed windows: those of the grid, as they are."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt64

from latentry.sampling.base import Windows, first_of_each
from latentry.sampling.grid import Grid
from latentry.sampling.windows import ActivatingWindows, Firing, by_strength, grid_firing


class FixedCut:
    """Every window is one of the grid."""

    def __init__(self, grid: Grid, window_of: Int32[np.ndarray, " position"]) -> None:
        """`window_of` as `windows.looked_up` gives it."""
        self._grid, self._window_of = grid, window_of

    def activating(self, firing: Firing) -> ActivatingWindows:
        """The grid windows in which it fires; of those with equal text, the first in the corpus.

        For equal texts only the few windows are looked at whose text is repeated in the corpus.
        """
        found = grid_firing(firing, self._window_of)
        windows, peak = found.windows, found.peak
        repeated = np.flatnonzero(self._grid.repeated.take(windows))
        texts = self._grid.text_id[windows[repeated]]
        first = first_of_each(texts)
        if first.size < repeated.size:
            fresh = np.ones(windows.size, dtype=bool)
            fresh[np.delete(repeated, first)] = False
            windows, peak = windows[fresh], peak[fresh]
        return ActivatingWindows(
            n_grid=found.windows.size,
            window=windows,
            cut=None,
            peak=peak,
            by_strength=by_strength(peak),
            texts=np.sort(texts[first]),
        )

    def around(
        self,
        windows: Int64[np.ndarray, "latent n"],
        keys: UInt64[np.ndarray, " latent"],  # noqa: ARG002
    ) -> Int64[np.ndarray, "latent n"]:
        """The windows' own starts; nothing is drawn."""
        return self._grid.starts[windows]

    def texts(self, window: Int64[np.ndarray, "*n"], starts: Int64[np.ndarray, "*n"]) -> Int64[np.ndarray, "*n"]:  # noqa: ARG002
        """The first window of the corpus with the same text."""
        return self._grid.text_id[window]

    def are_apart(
        self,
        starts: Int64[np.ndarray, "latent n"],
        activating: Sequence[Windows],  # noqa: ARG002
    ) -> Bool[np.ndarray, "latent n"]:
        """All of them: two windows of the grid have no token in common."""
        return np.ones(starts.shape, dtype=bool)

    def first_of_each(self, windows: Windows) -> Int64[np.ndarray, " kept"]:
        """The first of each text."""
        return first_of_each(self._grid.text_id[windows.window])
