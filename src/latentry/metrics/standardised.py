"""Two SAEs at like firing frequency: what is left of a difference of scores when latents that fire equally often are compared."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from latentry.metrics.intervals import percentile_interval
from latentry.metrics.over_latents import Values, mean_draws, weighted_mean

BINS_PER_DECADE = 2
FEWEST = 2
"""Latents that either SAE needs in a bin for the bin to count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standardised:
    """A difference of means within bins of frequency, averaged over the latents of both in the bins that both have."""

    difference: float | None = None
    """None where no bin has `FEWEST` latents of each."""
    low: float | None = None
    """95 %, by bootstrap over the latents within each bin."""
    high: float | None = None
    n: int = 0
    """Latents in the common bins, of both together."""


def standardised_difference(
    a: Values,
    b: Values,
    frequency_a: Values,
    frequency_b: Values,
    rng: np.random.Generator,
    weights_a: Values | None = None,
    weights_b: Values | None = None,
) -> Standardised:
    """mean(a) - mean(b) at the pooled distribution over bins of firing frequency, `BINS_PER_DECADE` to a power of ten.

    Latents whose frequency is not known, or that never fire, count for nothing.
    """
    total, point, draws = 0, 0.0, 0.0
    for in_a, in_b in _common(frequency_a, frequency_b):
        n = len(in_a) + len(in_b)
        sides = [
            (values[places], None if of is None else of[places]) for values, of, places in ((a, weights_a, in_a), (b, weights_b, in_b))
        ]
        (mean_a, drawn_a), (mean_b, drawn_b) = [(weighted_mean(*side), mean_draws(side[0], rng, side[1])) for side in sides]
        total, point, draws = total + n, point + n * (mean_a - mean_b), draws + n * (drawn_a - drawn_b)
    if not total:
        return Standardised()
    low, high = percentile_interval(np.asarray(draws) / total)
    return Standardised(difference=point / total, low=low, high=high, n=total)


def _common(a: Values, b: Values) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The places of either side's latents in each bin that both have enough of."""
    bins_a, bins_b = _bins(a), _bins(b)
    for number in np.intersect1d(bins_a[np.isfinite(bins_a)], bins_b[np.isfinite(bins_b)]):
        in_a, in_b = np.flatnonzero(bins_a == number), np.flatnonzero(bins_b == number)
        if min(len(in_a), len(in_b)) >= FEWEST:
            yield in_a, in_b


def _bins(frequency: Values) -> Values:
    """The number of each latent's bin; infinite or NaN where there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.floor(BINS_PER_DECADE * np.log10(frequency))
