"""Which latents are looked at, in which order, and with which probability each was.

The order is always a seeded permutation, so that its head of any length is a sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from latentry.errors import ParamsError
from latentry.randomness import rng_for

ONE_STRATUM = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentSample:
    """The latents asked for, in the order in which they are looked at."""

    latents: Int64[np.ndarray, " asked"]
    stratum: Int64[np.ndarray, " asked"]
    """Stratum of each, by rank of frequency; 0 for those that never fire, and where there are no strata."""

    def inclusion_probability(self, n_looked_at: int) -> Float64[np.ndarray, " looked_at"]:
        """For each of the first latents, the share looked at of its stratum: what its weight is one over."""
        asked = np.bincount(self.stratum)
        looked_at = np.bincount(self.stratum[:n_looked_at], minlength=asked.size)
        return (looked_at / np.maximum(asked, 1))[self.stratum[:n_looked_at]]


def asked_latents(latents: Any, width: int) -> Int64[np.ndarray, " asked"]:
    """The latents that `examples.latents` names, ascending: `all`, a list, or a range from `first` to `last`.

    Raises:
        ParamsError: some of them are not latents of the SAE.
    """
    if latents == "all":
        return np.arange(width)
    is_range = hasattr(latents, "first")
    asked = np.arange(latents.first, latents.last + 1) if is_range else np.unique(np.array(latents, dtype=np.int64))
    outside = asked[(asked < 0) | (asked >= width)].tolist()
    if outside:
        raise ParamsError("examples.latents", [f"{outside[:5]}: the SAE has latents 0 to {width - 1}; take these out"])
    return asked


def sample_of_latents(
    seed: int, latents: Any, width: int, strata: int | None = None, firing_counts: Sequence[int] | np.ndarray = ()
) -> LatentSample:
    """A seeded permutation of the latents asked for, in whatever order they are given; with strata, these take turns.

    Strata are equally wide in the logarithm of the firing count; latents that never fire are a stratum of their own.

    Raises:
        ParamsError: as `asked_latents`.
    """
    permutation = rng_for(seed, "latents").permutation(asked_latents(latents, width))
    if strata is None:
        return LatentSample(latents=permutation, stratum=np.full(permutation.size, ONE_STRATUM))
    stratum = strata_of(np.asarray(firing_counts)[permutation], strata)
    turn = np.empty(permutation.size, dtype=np.int64)
    for members in (np.flatnonzero(stratum == number) for number in np.unique(stratum)):
        turn[members] = np.arange(members.size)
    order = np.lexsort((stratum, turn))
    return LatentSample(latents=permutation[order], stratum=stratum[order])


def strata_of(firing_counts: Int64[np.ndarray, " latent"], n: int) -> Int64[np.ndarray, " latent"]:
    """1 rarest to `n` commonest, in equal steps of the logarithm between the smallest and the largest count; 0 where none."""
    stratum = np.zeros(firing_counts.size, dtype=np.int64)
    fires = np.flatnonzero(firing_counts > 0)
    if fires.size:
        logarithm = np.log(firing_counts[fires].astype(np.float64))
        low, high = logarithm.min(), logarithm.max()
        step = (high - low) / n if high > low else 1.0
        stratum[fires] = np.minimum(((logarithm - low) / step).astype(np.int64), n - 1) + 1
    return stratum
