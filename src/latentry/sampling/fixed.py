"""Fixed windows: those of the grid, as they are."""

import numpy as np
from jaxtyping import Bool, Int32, Int64

from latentry.sampling.base import first_of_each
from latentry.sampling.grid import Grid
from latentry.sampling.windows import ActivatingWindows, Firing, decile_of, grid_firing


class FixedCut:
    """Every window is one of the grid."""

    def __init__(self, grid: Grid, window_of: Int32[np.ndarray, " position"]) -> None:
        """`window_of` as `windows.looked_up` gives it."""
        self._grid, self._window_of = grid, window_of

    def activating(self, firing: Firing) -> ActivatingWindows:
        """The grid windows in which it fires; of those with equal text, the first in the corpus."""
        found = grid_firing(firing, self._window_of)
        windows, peak = found.windows, found.peak
        fresh, texts = self._first_of_text(windows)
        if texts.size < np.count_nonzero(self._grid.repeated[windows]):
            windows, peak = windows[fresh], peak[fresh]
        return ActivatingWindows(
            n_grid=found.windows.size,
            starts=self._grid.starts[windows],
            document=self._grid.document[windows],
            peak=peak,
            decile=decile_of(peak),
            texts=texts,
        )

    def _first_of_text(self, windows: Int64[np.ndarray, " window"]) -> tuple[Bool[np.ndarray, " window"], Int64[np.ndarray, " text"]]:
        """Whether each window is the first of its text among them, and the texts, ascending, that other windows have as well.

        Only the few windows whose text is repeated in the corpus are looked at.
        """
        fresh = np.ones(windows.size, dtype=bool)
        repeated = np.flatnonzero(self._grid.repeated[windows])
        texts, first = np.unique(self._grid.text_id[windows[repeated]], return_index=True)
        fresh[repeated] = False
        fresh[repeated[first]] = True
        return fresh, texts

    def around(self, windows: Int64[np.ndarray, " n"], rng: np.random.Generator) -> Int64[np.ndarray, " n"]:  # noqa: ARG002
        """The windows' own starts; nothing is drawn."""
        return self._grid.starts[windows]

    def texts(self, starts: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """The first window of the corpus with the same text."""
        return self._grid.text_id[self._grid.window_of[starts]]

    def first_of_each(self, starts: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " kept"]:
        """The first of each text; windows of the grid have no tokens in common."""
        return first_of_each(self.texts(starts))
