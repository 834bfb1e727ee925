"""Centred windows: each cut around the strongest token of a grid window, which stands at three quarters of it.

A window is shifted to stay inside its document's span of the row, holds the true activations of its tokens, and may
reach into the ends that the grid drops. No two windows of a latent overlap.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64, UInt64

from latentry.sampling.base import Tokens, Windows, first_of_each, overlaps
from latentry.sampling.draws import uniform
from latentry.sampling.grid import Grid
from latentry.sampling.texts import TextKeys
from latentry.sampling.windows import ActivatingWindows, Firing, GridFiring, by_strength, grid_firing

CENTRE = 0.75
"""Where in the window the peak stands: what comes before explains an activation better than what follows."""


class CentredCut:
    """Every window is cut around one token."""

    def __init__(self, grid: Grid, window_of: Int32[np.ndarray, " position"], token_set: Tokens) -> None:
        """`window_of` as `windows.looked_up` gives it."""
        self._grid, self._window_of, self._keys = grid, window_of, TextKeys(token_set)

    def activating(self, firing: Firing) -> ActivatingWindows:
        """One window per grid window in which it fires; of overlapping ones the strongest, of equal text the first."""
        found = grid_firing(firing, self._window_of)
        centre = _peak_positions(firing, found)
        starts = self._around(found.windows, centre)
        peak = _peaks(firing, starts, self._grid.window)
        texts = self._keys.at(starts, self._grid.window)
        kept = np.flatnonzero(strongest_apart(starts, _strength(peak, found.peak), self._grid.window))
        kept = kept[first_of_each(texts[kept])]
        return ActivatingWindows(
            n_grid=found.windows.size,
            window=found.windows[kept],
            cut=starts[kept],
            peak=peak[kept],
            by_strength=by_strength(peak[kept]),
            texts=np.unique(texts),
        )

    def around(self, windows: Int64[np.ndarray, "latent n"], keys: UInt64[np.ndarray, " latent"]) -> Int64[np.ndarray, "latent n"]:
        """A window around a random token of each window of the grid."""
        place = (uniform(keys[:, None], windows) * self._grid.window).astype(np.int64)
        return self._around(windows, self._grid.starts[windows] + place)

    def texts(self, window: Int64[np.ndarray, "*n"], starts: Int64[np.ndarray, "*n"]) -> Int64[np.ndarray, "*n"]:  # noqa: ARG002
        """A hash of the characters."""
        return self._keys.at(starts, self._grid.window)

    def are_apart(self, starts: Int64[np.ndarray, "latent n"], activating: Sequence[Windows]) -> Bool[np.ndarray, "latent n"]:
        """As `Cut.are_apart`."""
        return np.stack([~overlaps(row, one.starts, self._grid.window) for row, one in zip(starts, activating, strict=True)])

    def first_of_each(self, windows: Windows) -> Int64[np.ndarray, " kept"]:
        """The first of each text, and of those with tokens in common."""
        taken: list[int] = []
        kept = []
        for index in first_of_each(self._keys.at(windows.starts, self._grid.window)).tolist():
            start = int(windows.starts[index])
            place = bisect_left(taken, start - self._grid.window + 1)
            if place == len(taken) or taken[place] >= start + self._grid.window:
                taken.insert(place, start)
                kept.append(index)
        return np.array(kept, dtype=np.int64)

    def _around(self, windows: Int64[np.ndarray, "*n"], centre: Int64[np.ndarray, "*n"]) -> Int64[np.ndarray, "*n"]:
        window = self._grid.window
        return np.clip(centre - int(CENTRE * window), self._grid.span_start[windows], self._grid.span_end[windows] - window)


def _peak_positions(firing: Firing, found: GridFiring) -> Int64[np.ndarray, " window"]:
    """Where each grid window's largest activation stands, the first of equal ones."""
    n_entries = np.diff(found.begin, append=firing.position.size)
    window = np.repeat(np.arange(n_entries.size), n_entries)
    entry = np.arange(window.size) + np.repeat(found.begin - (np.cumsum(n_entries) - n_entries), n_entries)
    at_peak = np.flatnonzero(firing.activation[entry] == found.peak[window])
    first = np.ones(at_peak.size, dtype=bool)
    np.not_equal(window[at_peak[1:]], window[at_peak[:-1]], out=first[1:])
    return firing.position[entry[at_peak[first]]]


def _strength(peak: Float32[np.ndarray, " window"], own: Float32[np.ndarray, " window"]) -> Int64[np.ndarray, " window"]:
    """Rank by peak. Of equal peaks, which are mostly one token's, the window centred on it is the stronger, then the first."""
    strength = np.empty(peak.size, dtype=np.int64)
    strength[np.lexsort((-np.arange(peak.size), own, peak))] = np.arange(peak.size)
    return strength


def _peaks(firing: Firing, starts: Int64[np.ndarray, " window"], window: int) -> Float32[np.ndarray, " window"]:
    """The largest activation in each window; every window has one."""
    if not starts.size:
        return np.zeros(0, dtype=np.float32)
    begin, end = np.searchsorted(firing.position, starts), np.searchsorted(firing.position, starts + window)
    bounds = np.stack([begin, end], axis=1).reshape(-1)
    # A last bound past the end is not allowed: a value no peak can be below stands there.
    return np.maximum.reduceat(np.append(firing.activation, np.float32(-np.inf)), bounds)[::2]


def strongest_apart(
    starts: Int64[np.ndarray, " window"], strength: Int64[np.ndarray, " window"], window: int
) -> Bool[np.ndarray, " window"]:
    """Which windows stay when, from the strongest down, each takes the place of those that overlap it.

    Windows are ascending and overlap their next neighbours only; strengths are distinct whole numbers from 0.
    """
    n = starts.size
    overlaps = np.diff(starts) < window
    kept = np.zeros(n, dtype=bool)
    # Strength of those still undecided, -1 of the others, with room for a neighbour at both ends.
    open_strength = np.full(n + 2, -1, dtype=np.int64)
    open_strength[1:-1] = strength
    while (undecided := open_strength[1:-1] >= 0).any():
        left = np.concatenate([[-1], np.where(overlaps, open_strength[1:-2], -1)]) if n else overlaps
        right = np.concatenate([np.where(overlaps, open_strength[2:-1], -1), [-1]]) if n else overlaps
        winner = undecided & (open_strength[1:-1] > np.maximum(left, right))
        kept |= winner
        beaten = winner.copy()
        beaten[1:] |= overlaps & winner[:-1]
        beaten[:-1] |= overlaps & winner[1:]
        open_strength[1:-1][beaten] = -1
    return kept
