"""Draws of equally many windows of every decile: from all candidates of one latent, or from a few of many latents at once.

Every draw is without replacement, each window of a decile equally likely, and every prefix of it is even over the deciles.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, Int8, Int64, UInt64

from latentry.sampling.draws import keys_of, uniform
from latentry.sampling.grid import Grid
from latentry.sampling.splits import is_held_out_by_key, side_keys, units_of
from latentry.sampling.windows import N_DECILES, ActivatingWindows, decile_begins

DRAWS_PER_WINDOW, SPARE_DRAWS = 3, 6
"""Windows of a decile looked at: so many for each one wanted, and some more. Ordinary latents have both splits filled from these."""


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
    """Indices of `n` candidates, all where there are fewer."""
    available = np.bincount(decile, minlength=N_DECILES + 1)[1:]
    shares = shares_of(available, n, rng)
    shuffled = rng.permutation(decile.size)
    by_decile = shuffled[np.argsort(decile[shuffled].astype(np.int8), kind="stable")]
    place = np.arange(shares.sum()) - np.repeat(np.cumsum(shares) - shares, shares)
    drawn = by_decile[np.repeat(np.cumsum(available) - available, shares) + place]
    return drawn[np.lexsort((rng.random(drawn.size), place))]


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyDraw:
    """Windows drawn into one split of some latents."""

    index: Int64[np.ndarray, "latent drawn"]
    """Into each latent's windows."""
    decile: Int8[np.ndarray, "latent drawn"]
    is_filled: Bool[np.ndarray, " latent"]
    """Whether every decile gave its share; else the latent's row means nothing."""


def drawn_early(
    found: Sequence[ActivatingWindows], sizes: tuple[int, int], grid: Grid, split_by: str, seed: int, latents: Int64[np.ndarray, " latent"]
) -> tuple[EarlyDraw, EarlyDraw]:
    """The held-out and the explain split, of these sizes, from a few windows of each decile that are drawn first.

    Units are on the sides on which `Sides.by_key` has them; each latent has ten windows at least. Whether a split is filled
    depends on all windows of a decile and side alike, so that those of the filled ones are equally likely.
    """
    n_draws = DRAWS_PER_WINDOW * -(-sum(sizes) // N_DECILES) + SPARE_DRAWS
    ranks = _ranks(np.array([one.window.size for one in found]), n_draws, seed, latents)
    index = np.stack([one.by_strength[rank] for one, rank in zip(found, ranks, strict=True)])
    units = units_of(grid, np.stack([one.window[places] for one, places in zip(found, index, strict=True)]), split_by)
    usable = (units >= 0) & ~_is_repeated(ranks)
    is_held_out = is_held_out_by_key(side_keys(seed, latents)[:, None, None], units, *sizes)
    held_out = _first_of_each_decile(usable & is_held_out, sizes[0], index, keys_of(seed, "held_out", latents))
    return held_out, _first_of_each_decile(usable & ~is_held_out, sizes[1], index, keys_of(seed, "explain", latents))


def _ranks(
    n: Int64[np.ndarray, " latent"], n_draws: int, seed: int, latents: Int64[np.ndarray, " latent"]
) -> Int64[np.ndarray, "latent decile draw"]:
    """So many ranks of strength in each decile, any of these equally likely, some of them twice."""
    numbers = uniform(keys_of(seed, "ranks", latents)[:, None], np.arange(N_DECILES * n_draws)).reshape(-1, N_DECILES, n_draws)
    begins = decile_begins(n)
    return begins[:, :-1, None] + (numbers * np.diff(begins)[:, :, None]).astype(np.int64)


def _is_repeated(ranks: Int64[np.ndarray, "latent decile draw"]) -> Bool[np.ndarray, "latent decile draw"]:
    """Whether each came before in its decile."""
    order = np.argsort(ranks, axis=2, kind="stable")
    ascending = np.take_along_axis(ranks, order, axis=2)
    repeated = np.zeros(ranks.shape, dtype=bool)
    np.put_along_axis(repeated, order[:, :, 1:], ascending[:, :, 1:] == ascending[:, :, :-1], axis=2)
    return repeated


def _first_of_each_decile(
    usable: Bool[np.ndarray, "latent decile draw"],
    n: int,
    index: Int64[np.ndarray, "latent decile draw"],
    keys: UInt64[np.ndarray, " latent"],
) -> EarlyDraw:
    """The first usable draws of every decile, equally many, the remainder from deciles drawn at random."""
    n_latents, _, n_draws = usable.shape
    numbers = uniform(keys[:, None], np.arange(N_DECILES + n))
    by_lot = np.argsort(np.argsort(numbers[:, :N_DECILES], axis=1), axis=1)
    shares = n // N_DECILES + (by_lot < n % N_DECILES)
    turn = np.cumsum(usable, axis=2)
    taken = usable & (turn <= shares[:, :, None])
    is_filled = (taken.sum(axis=2) == shares).all(axis=1)
    place = np.zeros((n_latents, n), dtype=np.int64)
    place[is_filled] = np.nonzero(taken[is_filled].reshape(-1, N_DECILES * n_draws))[1].reshape(-1, n)
    turn_of = np.take_along_axis(turn.reshape(n_latents, -1), place, axis=1)
    place = np.take_along_axis(place, np.argsort(turn_of + numbers[:, N_DECILES:], axis=1), axis=1)
    drawn = np.take_along_axis(index.reshape(n_latents, -1), place, axis=1)
    return EarlyDraw(index=drawn, decile=(place // n_draws + 1).astype(np.int8), is_filled=is_filled)
