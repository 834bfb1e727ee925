"""What a contrast source is asked for, and which windows it may give: the rules that hold for all sources.

Every window that goes through here is silent, of its split, of a text of its own, and shares no token with another.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from latentry.records import Split
from latentry.sampling.base import NO_SUPPLIER, Windows, is_in
from latentry.sampling.draws import generator_of
from latentry.sampling.grid import Grid
from latentry.sampling.splits import Sides, are_held_out, units_of
from latentry.sampling.windows import Cut, Firing, are_silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Windows wanted for one latent and one split."""

    n: int
    grid: Grid
    cut: Cut
    firing: Firing
    """Where the latent fires: every contrast is silent."""
    n_silent: int
    """Windows of the grid in which it is silent, whatever its twin does."""
    refused_texts: Int64[np.ndarray, " text"]
    """Keys of texts that no contrast may have, ascending: those of activating windows, and of contrasts drawn before."""
    split: Split
    split_by: str
    sides: Sides
    """The windows lie in units of this split."""
    activating: Windows
    """The split's activating windows, by rank: no contrast shares a token with them."""
    key: np.uint64
    """Of the seed, the latent and the source: all that is drawn follows from it. Both splits share it; their units are others."""

    @property
    def latent(self) -> int:
        """The latent that must be silent."""
        return self.firing.latent

    def generator(self) -> np.random.Generator:
        """A new one, which begins where the others did."""
        return generator_of(self.key)

    def extended(
        self, drawn: Windows, windows: Int64[np.ndarray, " candidate"], supplier: Int64[np.ndarray, " candidate"] | None = None
    ) -> Windows:
        """What was drawn, and those of the candidate windows of the grid that may be used, in the order given.

        They are cut, silent, of this split, without a token of its activating windows, and of a text that is neither
        refused nor there already.
        """
        starts, is_usable = usable_windows([self], windows[None])
        return self.joined(drawn, windows, starts[0], np.flatnonzero(is_usable[0]), supplier)

    def joined(
        self,
        drawn: Windows,
        windows: Int64[np.ndarray, " candidate"],
        starts: Int64[np.ndarray, " candidate"],
        usable: Int64[np.ndarray, " usable"],
        supplier: Int64[np.ndarray, " candidate"] | None = None,
    ) -> Windows:
        """What was drawn, and those of the usable candidates whose text is neither refused nor there already."""
        fresh = Windows(
            window=windows[usable],
            starts=starts[usable],
            supplier=np.full(usable.size, NO_SUPPLIER) if supplier is None else supplier[usable],
            part=np.zeros(usable.size, dtype=np.int64),
        )
        if self.refused_texts.size:
            fresh = fresh.taken(np.flatnonzero(~is_in(self.cut.texts(fresh.window, fresh.starts), self.refused_texts)))
        both = drawn.followed_by(fresh)
        return both.taken(self.cut.first_of_each(both))


def usable_windows(
    wanted: Sequence[Wanted], windows: Int64[np.ndarray, "latent candidate"]
) -> tuple[Int64[np.ndarray, "latent candidate"], Bool[np.ndarray, "latent candidate"]]:
    """Where the candidate windows of the grid are cut for each latent, all asked for one split, and which may be used but for their text."""
    one = wanted[0]
    starts = one.cut.around(windows, np.array([each.key for each in wanted]))
    units = units_of(one.grid, windows, one.split_by)
    in_split = (units >= 0) & (are_held_out([each.sides for each in wanted], units) == (one.split is Split.HELD_OUT))
    is_silent = are_silent([each.firing for each in wanted], starts, one.grid.window)
    return starts, in_split & is_silent & one.cut.are_apart(starts, [each.activating for each in wanted])
