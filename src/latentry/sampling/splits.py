"""Which documents each of a latent's two splits may use.

Explain and held-out share no unit: a document, or a block of contexts. The units are divided before anything is drawn,
so that both splits can be filled.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, Int64, UInt64

from latentry.sampling.draws import keys_of, uniform
from latentry.sampling.grid import Grid
from latentry.sampling.windows import N_DECILES

CONTEXTS_PER_BLOCK = 8
"""Split by context: this many contexts are one unit, whose first context is not used, so that one lies between any two units."""
ORDERS = 4
"""Random orders of the units in which a division is looked for, where the key's own does not do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """To which split each unit of the corpus belongs, for one latent."""

    key: np.uint64
    """Decides over the units, which cost nothing until one is asked for."""
    n_held_out: int
    n_explain: int
    units: Int64[np.ndarray, " unit"]
    """Those that were divided otherwise, because the key's division could not fill both splits, ascending."""
    held_out: Bool[np.ndarray, " unit"]

    @classmethod
    def by_key(cls, key: np.uint64, n_held_out: int, n_explain: int) -> "Sides":
        """Each unit by the key alone."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(key=key, n_held_out=n_held_out, n_explain=n_explain, units=nothing, held_out=nothing.astype(bool))

    def is_held_out(self, units: Int64[np.ndarray, " asked"]) -> Bool[np.ndarray, " asked"]:
        """Whether each unit belongs to the held-out split; else it belongs to the explain split."""
        return are_held_out([self], units[None])[0]


def are_held_out(sides: Sequence[Sides], units: Int64[np.ndarray, "latent asked"]) -> Bool[np.ndarray, "latent asked"]:
    """`Sides.is_held_out` of several latents, all with splits of the same sizes."""
    keys = np.array([one.key for one in sides])
    held_out = is_held_out_by_key(keys[:, None], units, sides[0].n_held_out, sides[0].n_explain)
    for row, one in enumerate(sides):
        if one.units.size:
            places = np.minimum(np.searchsorted(one.units, units[row]), one.units.size - 1)
            held_out[row] = np.where(one.units[places] == units[row], one.held_out[places], held_out[row])
    return held_out


def side_keys(seed: int, latents: Int64[np.ndarray, " latent"]) -> UInt64[np.ndarray, " latent"]:
    """The keys by which the units of each latent are divided."""
    return keys_of(seed, "sides", latents)


def is_held_out_by_key(
    keys: UInt64[np.ndarray, "*key"] | np.uint64, units: Int64[np.ndarray, "*unit"], n_held_out: int, n_explain: int
) -> Bool[np.ndarray, "*unit"]:
    """At random, in the proportion of the two splits."""
    return uniform(keys, units) < n_held_out / (n_held_out + n_explain)


def units_of(grid: Grid, windows: Int64[np.ndarray, " window"], split_by: str) -> Int64[np.ndarray, " window"]:
    """What the splits must not share: each window's document, or its block of contexts; -1 for a window of no use."""
    if split_by == "document":
        return grid.document.take(windows).astype(np.int64)
    context = grid.starts[windows] // grid.context_length
    return np.where(context % CONTEXTS_PER_BLOCK == 0, -1, context // CONTEXTS_PER_BLOCK)


def sides_of(
    units: Int64[np.ndarray, " example"],
    decile: Int[np.ndarray, " example"],
    n_held_out: int,
    n_explain: int,
    explain_by_decile: bool,
    key: np.uint64,
) -> Sides | None:
    """Divide the units at random, near the proportion of the two splits, so that both can be filled; None if they cannot.

    Preferably every decile fills its share on both sides (only held out where the explain split asks for no deciles);
    else both sides have windows enough.
    """
    sides, wanted = Sides.by_key(key, n_held_out, n_explain), (n_held_out, n_explain)
    if _fills(decile, sides.is_held_out(units), wanted, explain_by_decile):
        return sides
    present, unit = np.unique(units, return_inverse=True)
    counts = np.bincount(unit * N_DECILES + decile - 1, minlength=present.size * N_DECILES).reshape(-1, N_DECILES)
    orders = (np.argsort(uniform(key ^ np.uint64(number), present)) for number in range(ORDERS))
    held = _searched_division(counts, orders, wanted, explain_by_decile)
    return None if held is None else dataclasses.replace(sides, units=present, held_out=np.isin(np.arange(present.size), held))


def _fills(
    decile: Int[np.ndarray, " example"], is_held: Bool[np.ndarray, " example"], sizes: tuple[int, int], explain_by_decile: bool
) -> bool:
    """Whether every decile fills its share on both sides (only held out where the explain split asks for no deciles)."""
    n_held_out, n_explain = sizes
    rest, held = np.bincount(decile - 1 + N_DECILES * is_held, minlength=2 * N_DECILES).reshape(2, N_DECILES)
    even = held.min() >= n_held_out // N_DECILES and (not explain_by_decile or rest.min() >= n_explain // N_DECILES)
    return bool(even and held.sum() >= n_held_out and rest.sum() >= n_explain)


def _searched_division(
    counts: Int64[np.ndarray, "unit decile"],
    orders: Iterable[Int64[np.ndarray, " unit"]],
    sizes: tuple[int, int],
    explain_by_decile: bool,
) -> Int64[np.ndarray, " held"] | None:
    """Units held out so that every decile fills its share, else so that both sides have enough; None where neither is found."""
    found = [division for order in orders for division in _random_divisions(counts, order, sizes, explain_by_decile)]
    return min(found, key=lambda division: not division[0])[1] if found else _greedy_division(counts.sum(axis=1), *sizes)


def _random_divisions(
    counts: Int64[np.ndarray, "unit decile"], order: Int64[np.ndarray, " unit"], sizes: tuple[int, int], explain_by_decile: bool
) -> Iterator[tuple[bool, Int64[np.ndarray, " held"]]]:
    """The first units in random order, as many as come nearest to the wanted proportion among all that fill every decile's
    share, if any do, and among all that give both sides enough; each with whether it does the former."""
    n_held_out, n_explain = sizes
    held = np.cumsum(counts[order], axis=0)[:-1]
    rest = counts.sum(axis=0) - held
    n_held, n_rest = held.sum(axis=1), rest.sum(axis=1)
    enough = (n_held >= n_held_out) & (n_rest >= n_explain)
    even = enough & (held >= n_held_out // N_DECILES).all(axis=1)
    if explain_by_decile:
        even &= (rest >= n_explain // N_DECILES).all(axis=1)
    distance = np.abs(n_held - counts.sum() * (n_held_out / (n_held_out + n_explain)))
    for is_even, possible in ((True, even), (False, enough)):
        if possible.any():
            yield is_even, order[: int(np.argmin(np.where(possible, distance, np.inf))) + 1]


def _greedy_division(sizes: Int64[np.ndarray, " unit"], n_held_out: int, n_explain: int) -> Int64[np.ndarray, " held"] | None:
    """For few units of very unequal size: one side takes the largest that leave enough for the other; then the reverse."""
    held = _largest_units(sizes, n_held_out, n_explain)
    if held is not None:
        return held
    explain = _largest_units(sizes, n_explain, n_held_out)
    return None if explain is None else np.setdiff1d(np.arange(sizes.size), explain)


def _largest_units(sizes: Int64[np.ndarray, " unit"], n_taken: int, n_left: int) -> Int64[np.ndarray, " taken"] | None:
    taken, n_so_far, rest = [], 0, int(sizes.sum())
    for unit in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[unit])
        if n_so_far < n_taken and rest - size >= n_left:
            taken, n_so_far, rest = [*taken, unit], n_so_far + size, rest - size
    return np.array(taken, dtype=np.int64) if n_so_far >= n_taken else None
