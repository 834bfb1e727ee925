"""The windows in which one latent fires: peaks, duplicates, deciles.

Windows are in corpus order throughout; strength is by rank, so a monotone change of the activations changes nothing.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64, Shaped

from latentry.sampling.grid import Grid

N_DECILES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivatingWindows:
    """Where one latent fires."""

    position: Int64[np.ndarray, " n"]
    """Flat positions inside grid windows, ascending."""
    activation: Float32[np.ndarray, " n"]
    windows: Int64[np.ndarray, " window"]
    """All activating windows, ascending, duplicates included."""
    begin: Int64[np.ndarray, " window"]
    """Each window's first entry in `position`."""
    end: Int64[np.ndarray, " window"]
    """One past each window's last entry."""
    peak: Float32[np.ndarray, " window"]
    """Largest activation in each window."""
    texts: Int64[np.ndarray, " text"]
    """Text ids of the activating windows, ascending, each once."""
    distinct: Int64[np.ndarray, " distinct"]
    """Indices into `windows`: of those with equal text, the first in the corpus."""
    decile: Int64[np.ndarray, " distinct"]
    """Strength of each distinct window, 1 weakest tenth to 10 strongest."""

    def dense(self, chosen: Int64[np.ndarray, " example"], grid: Grid) -> Float32[np.ndarray, "example token"]:
        """Activations at every token of the chosen ones of `windows`."""
        n_entries = self.end[chosen] - self.begin[chosen]
        example = np.repeat(np.arange(chosen.size), n_entries)
        entry = np.arange(example.size) + np.repeat(self.begin[chosen] - (np.cumsum(n_entries) - n_entries), n_entries)
        activations = np.zeros((chosen.size, grid.window), dtype=np.float32)
        activations[example, self.position[entry] - grid.starts[self.windows[chosen]][example]] = self.activation[entry]
        return activations


def activating_windows(position: Shaped[np.ndarray, " n"], activation: Shaped[np.ndarray, " n"], grid: Grid) -> ActivatingWindows:
    """The grid windows in which a latent fires, from its ascending positions and its activations there.

    Positions outside the grid (dropped pieces) are left out.
    """
    position = position.astype(np.int64)
    window = grid.window_of[position]
    inside = window >= 0
    position, window = position[inside], window[inside]
    activation = activation[inside].astype(np.float32)
    begin = np.flatnonzero(np.diff(window, prepend=-1))
    windows = window[begin].astype(np.int64)
    peak = np.maximum.reduceat(activation, begin) if begin.size else np.zeros(0, dtype=np.float32)
    texts, first = np.unique(grid.text_id[windows], return_index=True)
    distinct = np.sort(first)
    return ActivatingWindows(
        position=position,
        activation=activation,
        windows=windows,
        begin=begin,
        end=np.append(begin[1:], position.size) if begin.size else begin,
        peak=peak,
        texts=texts,
        distinct=distinct,
        decile=decile_of(peak[distinct]),
    )


def decile_of(peak: Float32[np.ndarray, " example"]) -> Int64[np.ndarray, " example"]:
    """Strength of each example among its latent's, by rank over (peak, corpus position): 1 weakest tenth, 10 strongest.

    Examples come in corpus order. With fewer than ten, some deciles are empty.
    """
    decile = np.empty(peak.size, dtype=np.int64)
    decile[np.argsort(peak, kind="stable")] = N_DECILES * np.arange(peak.size) // max(peak.size, 1) + 1
    return decile
