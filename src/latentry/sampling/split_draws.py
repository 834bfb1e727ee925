"""The activating windows of both splits, and which documents belong to each, for latents worked on together.

Both splits are first drawn for all latents at once, from a few windows of each decile. Where these do not fill them, and
where the explain split is not drawn by decile, a latent's windows are all looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int8, Int64

from latentry.randomness import rng_for
from latentry.sampling.deciles import drawn_by_decile, drawn_early
from latentry.sampling.explain_split import chosen_to_explain
from latentry.sampling.grid import Grid
from latentry.sampling.splits import Sides, side_keys, sides_of, units_of
from latentry.sampling.windows import ActivatingWindows


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenWindows:
    """Some of one latent's activating windows, by rank."""

    index: Int64[np.ndarray, " chosen"]
    """Into all of them."""
    decile: Int8[np.ndarray, " chosen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitDraw:
    """One latent's activating windows in both splits."""

    sides: Sides
    held_out: ChosenWindows
    explain: ChosenWindows


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitDrawing:
    """How both splits are drawn."""

    seed: int
    grid: Grid
    split_by: str
    n_held_out: int
    n_explain: int
    how: str
    """To explain, as `explain_split` has it."""

    def of(self, found: Sequence[ActivatingWindows], latents: Sequence[int]) -> list[SplitDraw | None]:
        """Of each latent, None where no division lets both splits fill; each has ten windows at least."""
        if self.how != "deciles" or not found:
            return [self._from_all(one, latent) for one, latent in zip(found, latents, strict=True)]
        asked = np.array(latents)
        held_out, explain = drawn_early(found, (self.n_held_out, self.n_explain), self.grid, self.split_by, self.seed, asked)
        keys, is_filled = side_keys(self.seed, asked), held_out.is_filled & explain.is_filled
        return [
            SplitDraw(
                sides=Sides.by_key(keys[row], self.n_held_out, self.n_explain),
                held_out=ChosenWindows(index=held_out.index[row], decile=held_out.decile[row]),
                explain=ChosenWindows(index=explain.index[row], decile=explain.decile[row]),
            )
            if is_filled[row]
            else self._from_all(found[row], latents[row])
            for row in range(len(found))
        ]

    def _from_all(self, found: ActivatingWindows, latent: int) -> SplitDraw | None:
        units, decile = units_of(self.grid, found.window, self.split_by), found.decile
        usable = np.flatnonzero(units >= 0)
        key = side_keys(self.seed, np.array([latent]))[0]
        sides = sides_of(units[usable], decile[usable], self.n_held_out, self.n_explain, self.how == "deciles", key)
        if sides is None:
            return None
        is_held_out = sides.is_held_out(units[usable])
        candidates = usable[is_held_out]
        held_out = candidates[drawn_by_decile(decile[candidates], self.n_held_out, rng_for(self.seed, "held_out", latent))]
        explain = chosen_to_explain(found, usable[~is_held_out], self.how, self.n_explain, rng_for(self.seed, "explain", latent))
        return SplitDraw(
            sides=sides,
            held_out=ChosenWindows(index=held_out, decile=decile[held_out]),
            explain=ChosenWindows(index=explain, decile=decile[explain]),
        )
