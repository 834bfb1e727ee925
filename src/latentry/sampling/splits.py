"""Which documents a latent's two splits may use, and which of its windows are drawn into each.

Explain and held-out share no unit: a document, or a block of contexts. The units are divided before anything is drawn,
so that both splits can be filled; then the held-out windows are drawn, then those to explain from what is left.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int, Int64, UInt64

from latentry.sampling.grid import Grid
from latentry.sampling.windows import N_DECILES

CONTEXTS_PER_BLOCK = 8
"""Split by context: this many contexts are one unit, whose first context is not used, so that one lies between any two units."""
NEAR = 0.03
"""How far from the wanted fraction the division is first looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """To which split each unit of the corpus belongs, for one latent."""

    units: Int64[np.ndarray, " unit"]
    """The units in which the latent fires, ascending."""
    held_out: Bool[np.ndarray, " unit"]
    examples_held_out: Bool[np.ndarray, " example"]
    """For each of the examples that were divided."""
    key: int
    """Decides over the other units, which cost nothing until one is asked for."""
    held_out_fraction: float

    def is_held_out(self, units: Int64[np.ndarray, " asked"]) -> Bool[np.ndarray, " asked"]:
        """Whether each unit belongs to the held-out split; else it belongs to the explain split."""
        places = np.minimum(np.searchsorted(self.units, units), self.units.size - 1)
        held_out = self.held_out[places]
        others = np.flatnonzero(self.units[places] != units)
        if others.size:
            held_out[others] = _uniform(units[others], self.key) < self.held_out_fraction
        return held_out


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
    rng: np.random.Generator,
) -> Sides | None:
    """Divide the units at random, near the proportion of the two splits, so that both can be filled; None if they cannot.

    Preferably every decile fills its share on both sides (only held out where the explain split asks for no deciles);
    else both sides have windows enough.
    """
    key = int(rng.integers(2**63))
    present, unit, sizes = _distinct(units)
    uniform = _uniform(present, key)
    wanted, fraction = (n_held_out, n_explain), n_held_out / max(n_held_out + n_explain, 1)
    held_out = _nearest_division(uniform, sizes, fraction)
    if held_out is None or not _fills(decile, held_out[unit], wanted, explain_by_decile):
        held_out = _searched_division(unit, decile, np.argsort(uniform), wanted, explain_by_decile)
    if held_out is None:
        return None
    return Sides(units=present, held_out=held_out, examples_held_out=held_out[unit], key=key, held_out_fraction=fraction)


def _distinct(
    units: Int64[np.ndarray, " example"],
) -> tuple[Int64[np.ndarray, " unit"], Int64[np.ndarray, " example"], Int64[np.ndarray, " unit"]]:
    """The units, ascending, the place of each example's, and their sizes; no sort where they come in order, as in a corpus they do."""
    if units.size and (units[1:] < units[:-1]).any():
        return np.unique(units, return_inverse=True, return_counts=True)
    first = np.ones(units.size, dtype=bool)
    np.not_equal(units[1:], units[:-1], out=first[1:])
    begins = np.flatnonzero(first)
    return units[begins], np.cumsum(first) - 1, np.diff(begins, append=units.size)


def _nearest_division(
    uniform: Float64[np.ndarray, " unit"], sizes: Int64[np.ndarray, " unit"], fraction: float
) -> Bool[np.ndarray, " unit"] | None:
    """The first units in random order, as many as come nearest to the fraction, found among those near it; None if they are not there.

    Only the few units whose number is near the fraction are sorted: a latent may fire in very many.
    """
    held = uniform <= fraction - NEAR
    near = np.flatnonzero((uniform <= fraction + NEAR) & ~held)
    near = near[np.argsort(uniform[near])]
    n_held = np.cumsum(sizes[near]) + sizes[held].sum()
    target = sizes.sum() * fraction
    if not near.size or not n_held[0] <= target <= n_held[-1] < sizes.sum():
        return None
    held[near[: int(np.argmin(np.abs(n_held - target))) + 1]] = True
    return held


def _fills(
    decile: Int[np.ndarray, " example"], is_held: Bool[np.ndarray, " example"], sizes: tuple[int, int], explain_by_decile: bool
) -> bool:
    """Whether every decile fills its share on both sides (only held out where the explain split asks for no deciles)."""
    n_held_out, n_explain = sizes
    rest, held = np.bincount(decile - 1 + N_DECILES * is_held, minlength=2 * N_DECILES).reshape(2, N_DECILES)
    even = held.min() >= n_held_out // N_DECILES and (not explain_by_decile or rest.min() >= n_explain // N_DECILES)
    return bool(even and held.sum() >= n_held_out and rest.sum() >= n_explain)


def _searched_division(
    unit: Int64[np.ndarray, " example"],
    decile: Int[np.ndarray, " example"],
    order: Int64[np.ndarray, " unit"],
    sizes: tuple[int, int],
    explain_by_decile: bool,
) -> Bool[np.ndarray, " unit"] | None:
    """The units held out by the best of all divisions there are; None where none lets both sides fill."""
    counts = np.bincount(unit * N_DECILES + decile - 1, minlength=order.size * N_DECILES).reshape(-1, N_DECILES)
    held = _random_division(counts, order, sizes, explain_by_decile)
    held = _greedy_division(counts.sum(axis=1), *sizes) if held is None else held
    if held is None:
        return None
    held_out = np.zeros(order.size, dtype=bool)
    held_out[held] = True
    return held_out


def _random_division(
    counts: Int64[np.ndarray, "unit decile"], order: Int64[np.ndarray, " unit"], sizes: tuple[int, int], explain_by_decile: bool
) -> Int64[np.ndarray, " held"] | None:
    """The first units in random order, as many as come nearest to the wanted proportion among all that let both sides fill."""
    n_held_out, n_explain = sizes
    held = np.cumsum(counts[order], axis=0)[:-1]
    rest = counts.sum(axis=0) - held
    n_held, n_rest = held.sum(axis=1), rest.sum(axis=1)
    enough = (n_held >= n_held_out) & (n_rest >= n_explain)
    even = enough & (held >= n_held_out // N_DECILES).all(axis=1)
    if explain_by_decile:
        even &= (rest >= n_explain // N_DECILES).all(axis=1)
    for possible in (even, enough):
        if possible.any():
            target = counts.sum() * (n_held_out / (n_held_out + n_explain))
            distance = np.where(possible, np.abs(n_held - target), np.inf)
            return order[: int(np.argmin(distance)) + 1]
    return None


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


def shares_of(available: Int[np.ndarray, " decile"], n: int, rng: np.random.Generator) -> Int64[np.ndarray, " decile"]:
    """How many to take from each decile: equally many, the remainder from deciles drawn at random.

    A decile that cannot fill its share takes from the nearest with surplus, the lower first.
    """
    wanted = np.full(N_DECILES, n // N_DECILES)
    wanted[rng.permutation(N_DECILES)[: n % N_DECILES]] += 1
    shares = np.minimum(wanted, available)
    if (shares == wanted).all():
        return shares
    for decile in range(N_DECILES):
        missing = wanted[decile] - min(wanted[decile], available[decile])
        for other in _nearest_deciles(decile):
            taken = min(missing, available[other] - shares[other])
            shares[other], missing = shares[other] + taken, missing - taken
    return shares


def _nearest_deciles(decile: int) -> Iterator[int]:
    for distance in range(1, N_DECILES):
        yield from (other for other in (decile - distance, decile + distance) if 0 <= other < N_DECILES)


def drawn_by_decile(decile: Int[np.ndarray, " candidate"], n: int, rng: np.random.Generator) -> Int64[np.ndarray, " drawn"]:
    """Indices of `n` candidates, equally many of each decile, ordered so that each prefix is even over the deciles."""
    available = np.bincount(decile, minlength=N_DECILES + 1)[1:]
    shares = shares_of(available, n, rng)
    shuffled = rng.permutation(decile.size)
    # The first of each decile mostly stand early in a random order; else all of it is looked through.
    few = shuffled[: 8 * n]
    available_early = np.bincount(decile[few], minlength=N_DECILES + 1)[1:]
    if (available_early < shares).any():
        few, available_early = shuffled, available
    by_decile = few[np.argsort(decile[few].astype(np.int8), kind="stable")]
    place = np.arange(shares.sum()) - np.repeat(np.cumsum(shares) - shares, shares)
    drawn = by_decile[np.repeat(np.cumsum(available_early) - available_early, shares) + place]
    return drawn[np.lexsort((rng.random(drawn.size), place))]


def _uniform(units: Int64[np.ndarray, " unit"], key: int) -> np.ndarray:
    """A number in [0, 1) for each unit, by the finaliser of splitmix64: any unit's at once, without those of the others."""
    x: UInt64[np.ndarray, " unit"] = (units.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
