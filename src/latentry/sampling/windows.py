"""The windows in which one latent fires: where they start, their peaks and their deciles.

Windows are in corpus order throughout; strength is by rank, so a monotone change of the activations changes nothing.
How windows are cut out of the corpus is `fixed.py`'s and `centred.py`'s.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float32, Int8, Int32, Int64

from latentry.errors import ContractError
from latentry.sampling.base import Windows
from latentry.sampling.grid import Grid

N_DECILES = 10
LEFT_OUT = -2
"""In place of a position's window: the position was left out of the activations, so nothing may fire there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """Where one latent fires, and how much."""

    latent: int
    position: Int64[np.ndarray, " n"]
    """Flat positions, ascending."""
    activation: Float32[np.ndarray, " n"]

    def is_silent(self, starts: Int64[np.ndarray, " window"], window: int) -> Bool[np.ndarray, " window"]:
        """Whether it fires at no token of each window."""
        after = np.searchsorted(self.position, starts)
        following = self.position.take(after, mode="clip")
        return (following < starts) | (following >= starts + window)

    def dense(self, starts: Int64[np.ndarray, " window"], window: int) -> Float32[np.ndarray, "window token"]:
        """Activations at every token of the windows."""
        begin, end = np.searchsorted(self.position, starts), np.searchsorted(self.position, starts + window)
        n_entries = end - begin
        row = np.repeat(np.arange(starts.size), n_entries)
        entry = np.arange(row.size) + np.repeat(begin - (np.cumsum(n_entries) - n_entries), n_entries)
        activations = np.zeros((starts.size, window), dtype=np.float32)
        activations[row, self.position[entry] - starts[row]] = self.activation[entry]
        return activations


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivatingWindows:
    """The windows of distinct text in which one latent fires, in corpus order."""

    n_grid: int
    """Windows of the grid in which it fires, duplicates included."""
    window: Int64[np.ndarray, " window"]
    """The window of the grid that each is, or was cut around a token of."""
    cut: Int64[np.ndarray, " window"] | None
    """Where each begins; None where it is the window of the grid."""
    peak: Float32[np.ndarray, " window"]
    """Largest activation in each window."""
    decile: Int8[np.ndarray, " window"]
    """Strength of each window, 1 weakest tenth to 10 strongest."""
    texts: Int64[np.ndarray, " text"]
    """Keys of the activating windows' texts, ascending; those that no silent window can have may be left out."""

    def starts(self, grid: Grid, chosen: Int64[np.ndarray, " chosen"] | slice = slice(None)) -> Int64[np.ndarray, " chosen"]:
        """Flat position of the first token of the chosen ones."""
        return grid.starts[self.window[chosen]] if self.cut is None else self.cut[chosen]


class Cut(Protocol):
    """One way to cut windows out of the corpus."""

    def activating(self, firing: Firing) -> ActivatingWindows:
        """The windows in which a latent fires.

        Raises:
            ContractError: it fires at a position that is not in the corpus, or was left out.
        """
        ...

    def around(self, windows: Int64[np.ndarray, " n"], rng: np.random.Generator) -> Int64[np.ndarray, " n"]:
        """Where to start for a silent window at each of these windows of the grid."""
        ...

    def texts(self, windows: Windows) -> Int64[np.ndarray, " n"]:
        """A key for the text of each window: equal texts have equal keys."""
        ...

    def first_of_each(self, windows: Windows) -> Int64[np.ndarray, " kept"]:
        """Indices, ascending, of the windows left when of those with one text, or with tokens in common, the first stays."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GridFiring:
    """What one latent does in the windows of the grid."""

    windows: Int64[np.ndarray, " window"]
    """Those in which it fires, ascending."""
    begin: Int64[np.ndarray, " window"]
    """Each window's first entry among the firings."""
    end: Int64[np.ndarray, " window"]
    """One past each window's last entry."""
    peak: Float32[np.ndarray, " window"]


def looked_up(grid: Grid, kept: np.ndarray) -> Int32[np.ndarray, " position"]:
    """The window of each flat position: -1 where none, `LEFT_OUT` where the position was left out."""
    return np.where(kept.reshape(-1) != 0, grid.window_of, np.int32(LEFT_OUT))


def grid_firing(firing: Firing, window_of: Int32[np.ndarray, " position"]) -> GridFiring:
    """The grid windows in which a latent fires; positions outside the grid (dropped pieces) are left out.

    Raises:
        ContractError: it fires at a position that is not in the corpus, or was left out.
    """
    position = firing.position
    if position.size and position[-1] >= window_of.size:
        raise ContractError(
            f"latent {firing.latent}: fires at position {position[-1]}, the tokens have {window_of.size}; the latents were made"
            " from other tokens; rerun `dvc repro latents`"
        )
    window = window_of.take(position)
    first = np.ones(window.size, dtype=bool)
    np.not_equal(window[1:], window[:-1], out=first[1:])
    begin = np.flatnonzero(first)
    windows, end = window.take(begin).astype(np.int64), np.append(begin[1:], window.size)
    peak = np.maximum.reduceat(firing.activation, begin) if begin.size else np.zeros(0, dtype=np.float32)
    if windows.size and windows.min() < 0:
        _check_kept(firing.latent, window)
        inside = np.flatnonzero(windows >= 0)
        windows, begin, end, peak = windows[inside], begin[inside], end[inside], peak[inside]
    return GridFiring(windows=windows, begin=begin, end=end if begin.size else begin, peak=peak)


def _check_kept(latent: int, window: Int32[np.ndarray, " n"]) -> None:
    n_left_out = int(np.count_nonzero(window == LEFT_OUT))
    if n_left_out:
        raise ContractError(
            f"latent {latent}: fires at {n_left_out} positions that were left out; none may be stored; rerun `dvc repro latents`"
        )


def decile_of(peak: Float32[np.ndarray, " example"]) -> Int8[np.ndarray, " example"]:
    """Strength of each example among its latent's, by rank over (peak, corpus position): 1 weakest tenth, 10 strongest.

    Examples come in corpus order. With fewer than ten, some deciles are empty.
    """
    n = peak.size
    # Peak and place in one number: a plain sort of these is several times faster than a stable argsort of the peaks.
    keys = (_ordered_bits(peak) << np.int64(32)) | np.arange(n)
    keys.sort()
    # Rank r is of decile floor(10 r / n) + 1, so decile d begins at rank ceil((d - 1) n / 10).
    begins = -(-np.arange(N_DECILES + 1) * n // N_DECILES)
    decile = np.empty(n, dtype=np.int8)
    decile[keys & 0xFFFFFFFF] = np.repeat(np.arange(1, N_DECILES + 1, dtype=np.int8), np.diff(begins))
    return decile


def _ordered_bits(values: Float32[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Whole numbers in the order of the values: a float's bits, those of negative ones turned round."""
    bits = np.ascontiguousarray(values).view(np.int32)
    if bits.size and bits.min() < 0:
        bits = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)
    return bits.astype(np.int64)
