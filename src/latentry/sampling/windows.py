"""The windows in which one latent fires: where they start, their peaks and their deciles.

Windows are in corpus order throughout; strength is by rank, so a monotone change of the activations changes nothing.
How windows are cut out of the corpus is `fixed.py`'s and `centred.py`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float32, Int8, Int32, Int64, UInt64

from latentry.errors import ContractError
from latentry.sampling.base import Activations, Windows
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
    sounding: Int64[np.ndarray, " m"]
    """Flat positions, ascending, where it or its twin fires: the twin of a signed latent is the other sign of the same one."""

    @classmethod
    def of(cls, store: Activations, latent: int, *, signed: bool) -> "Firing":
        """From the store; in that of a signed SAE the twins are half its width apart."""
        position, activation = store.read(latent)
        own = sounding = position.astype(np.int64, copy=False)
        if signed:
            twin, _ = store.read((latent + store.width // 2) % store.width)
            sounding = np.union1d(own, twin.astype(np.int64))
        return cls(latent=latent, position=own, activation=activation.astype(np.float32, copy=False), sounding=sounding)

    def dense(self, starts: Int64[np.ndarray, " window"], window: int) -> Float32[np.ndarray, "window token"]:
        """Activations at every token of the windows."""
        order = np.argsort(starts)
        begin, end = np.empty_like(starts), np.empty_like(starts)
        begin[order] = np.searchsorted(self.position, starts[order])
        end[order] = np.searchsorted(self.position, starts[order] + window)
        n_entries = end - begin
        row = np.repeat(np.arange(starts.size), n_entries)
        entry = np.arange(row.size) + np.repeat(begin - (np.cumsum(n_entries) - n_entries), n_entries)
        activations = np.zeros((starts.size, window), dtype=np.float32)
        activations[row, self.position[entry] - starts[row]] = self.activation[entry]
        return activations


def are_silent(firings: Sequence[Firing], starts: Int64[np.ndarray, "latent window"], window: int) -> Bool[np.ndarray, "latent window"]:
    """Whether neither each latent nor its twin fires at any token of each of its windows."""
    # In ascending order: looked up one after another, neighbours are mostly in the cache.
    order = np.argsort(starts, axis=1)
    ascending = np.take_along_axis(starts, order, axis=1)
    following = np.stack([_following(one.sounding, row) for one, row in zip(firings, ascending, strict=True)])
    silent = np.empty(starts.shape, dtype=bool)
    np.put_along_axis(silent, order, (following < ascending) | (following >= ascending + window), axis=1)
    return silent


def _following(position: Int64[np.ndarray, " n"], starts: Int64[np.ndarray, " window"]) -> Int64[np.ndarray, " window"]:
    """The first position from each start on; the last one where there is none, and -1 where there are no positions."""
    return position.take(np.searchsorted(position, starts), mode="clip") if position.size else np.full(starts.size, -1)


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
    by_strength: Int64[np.ndarray, " window"]
    """Indices of the windows, the weakest first, by (peak, corpus position)."""
    texts: Int64[np.ndarray, " text"]
    """Keys of the activating windows' texts, ascending; those that no silent window can have may be left out."""

    @property
    def decile(self) -> Int8[np.ndarray, " window"]:
        """Strength of each window, 1 weakest tenth to 10 strongest."""
        return decile_of(self.by_strength)

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

    def around(self, windows: Int64[np.ndarray, "latent n"], keys: UInt64[np.ndarray, " latent"]) -> Int64[np.ndarray, "latent n"]:
        """Where to start for a silent window at each of these windows of the grid; what is drawn follows from the keys."""
        ...

    def texts(self, window: Int64[np.ndarray, "*n"], starts: Int64[np.ndarray, "*n"]) -> Int64[np.ndarray, "*n"]:
        """A key for the text of each window, cut at `starts` around those of the grid: equal texts have equal keys."""
        ...

    def are_apart(self, starts: Int64[np.ndarray, "latent n"], activating: Sequence[Windows]) -> Bool[np.ndarray, "latent n"]:
        """Whether each silent window has no token in common with these activating ones of its latent."""
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
    """Each window's first entry among the firings; up to the next one's, its own come before those outside the grid."""
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
    window, activation = window_of.take(position), firing.activation
    first = np.ones(window.size, dtype=bool)
    np.not_equal(window[1:], window[:-1], out=first[1:])
    inside = window >= 0
    if not inside.all():
        _check_kept(firing.latent, window)
        first &= inside
        activation = np.where(inside, activation, np.float32(-np.inf))
    begin = np.flatnonzero(first)
    peak = np.maximum.reduceat(activation, begin) if begin.size else np.zeros(0, dtype=np.float32)
    return GridFiring(windows=window.take(begin).astype(np.int64), begin=begin, peak=peak)


def _check_kept(latent: int, window: Int32[np.ndarray, " n"]) -> None:
    n_left_out = int(np.count_nonzero(window == LEFT_OUT))
    if n_left_out:
        raise ContractError(
            f"latent {latent}: fires at {n_left_out} positions that were left out; none may be stored; rerun `dvc repro latents`"
        )


def by_strength(peak: Float32[np.ndarray, " example"]) -> Int64[np.ndarray, " example"]:
    """Indices of examples in corpus order, the weakest first, by (peak, corpus position)."""
    # Peak and place in one number: a plain sort of these is several times faster than a stable argsort of the peaks.
    keys = _ordered_bits(peak)
    keys <<= np.int64(32)
    keys |= np.arange(peak.size)
    keys.sort()
    keys &= 0xFFFFFFFF
    return keys


def decile_of(by_strength: Int64[np.ndarray, " example"]) -> Int8[np.ndarray, " example"]:
    """Strength of each example among its latent's, by rank: 1 weakest tenth, 10 strongest.

    With fewer than ten, some deciles are empty.
    """
    decile = np.empty(by_strength.size, dtype=np.int8)
    decile[by_strength] = np.repeat(np.arange(1, N_DECILES + 1, dtype=np.int8), np.diff(decile_begins(by_strength.size)))
    return decile


def decile_begins(n: Int64[np.ndarray, "*latent"] | int) -> Int64[np.ndarray, "*latent decile+1"]:
    """The rank at which each decile of `n` examples begins, and `n`: rank r is of decile floor(10 r / n) + 1."""
    return -(-np.arange(N_DECILES + 1) * np.asarray(n)[..., None] // N_DECILES)


def _ordered_bits(values: Float32[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Whole numbers in the order of the values: a float's bits, those of negative ones turned round."""
    bits = np.ascontiguousarray(values).view(np.int32)
    if bits.size and bits.min() < 0:
        bits = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)
    return bits.astype(np.int64)
