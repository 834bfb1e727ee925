"""One metric over the latents of one SAE, over its lift above the null, and of two SAEs: means, intervals, tests.

Where latents were drawn with unequal probabilities, each weighs one over its own, in every mean, quantile and bootstrap; with
equal weights everything is as if there were none, to the last digit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from latentry.metrics.intervals import N_DRAWS, Draws, Z, percentile_interval

_Z_POWER = float(stats.norm.ppf(0.80))
_DRAWN_AT_ONCE = 4_000_000
"""Values held at once by a bootstrap over latents: 32 MB, whatever the number of latents."""

Values = Float[np.ndarray, " latent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One metric over the latents of one SAE. The interval covers latents and judge noise, not corpus or seed."""

    mean: float | None = None
    low: float | None = None
    """95 %; None below two latents."""
    high: float | None = None
    median: float | None = None
    quartile_1: float | None = None
    quartile_3: float | None = None
    frequency_weighted_mean: float | None = None
    """sum(f s) / sum(f), with f the firing frequency; None where that is not known for all of them."""
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Mean of one SAE's latents minus that of another's."""

    difference: float | None
    low: float | None
    """95 %, by bootstrap over the latents of either; None where one of them has fewer than two."""
    high: float | None
    p_value: float | None
    """Welch's t test, two-sided; None below two latents, or where neither side varies."""
    n_a: int
    n_b: int


def summary(values: Values, rng: np.random.Generator, frequencies: Values | None = None, weights: Values | None = None) -> Summary:
    """A metric over latents, each of which has it; `frequencies` are their firing frequencies."""
    n, weights = len(values), _unequal(weights)
    if not n:
        return Summary(n=0)
    low, high = percentile_interval(mean_draws(values, rng, weights)) if n > 1 else (None, None)
    quartile_1, median, quartile_3 = _quartiles(values, weights)
    return Summary(
        mean=weighted_mean(values, weights),
        low=low,
        high=high,
        median=median,
        quartile_1=quartile_1,
        quartile_3=quartile_3,
        frequency_weighted_mean=_frequency_weighted(values, frequencies, weights),
        n=n,
    )


def lift(scores: Values, nulls: Values, rng: np.random.Generator, weights: Values | None = None) -> Summary:
    """How far the scores stand above their nulls, over exactly the latents that have both; NaN where one is lacking."""
    gains = scores - nulls
    both = ~np.isnan(gains)
    return summary(gains[both], rng, weights=None if weights is None else weights[both])


def difference(
    a: Values, b: Values, rng: np.random.Generator, weights_a: Values | None = None, weights_b: Values | None = None
) -> Difference:
    """mean(a) - mean(b) of unpaired latents, with a bootstrap interval and Welch's p-value."""
    sizes = {"n_a": len(a), "n_b": len(b)}
    if not len(a) or not len(b):
        return Difference(difference=None, low=None, high=None, p_value=None, **sizes)
    weights_a, weights_b = _unequal(weights_a), _unequal(weights_b)
    apart = weighted_mean(a, weights_a) - weighted_mean(b, weights_b)
    if min(len(a), len(b)) < 2:
        return Difference(difference=apart, low=None, high=None, p_value=None, **sizes)
    low, high = percentile_interval(mean_draws(a, rng, weights_a) - mean_draws(b, rng, weights_b))
    return Difference(difference=apart, low=low, high=high, p_value=_welch(a, b, weights_a, weights_b), **sizes)


def paired_p_value(a: Values, b: Values, weights: Values | None = None) -> float | None:
    """Student's paired t test, two-sided; None below two latents, or where the differences do not vary."""
    gains, weights = a - b, _unequal(weights)
    if len(gains) < 2 or spread(gains) == 0:
        return None
    if weights is None:
        return float(np.asarray(stats.ttest_rel(a, b))[1])
    t = weighted_mean(gains, weights) / (spread(gains, weights) / np.sqrt(len(gains)))
    return float(2 * stats.t.sf(abs(t), len(gains) - 1))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment of one family of tests; a test that could not be made stays None and counts for nothing."""
    made = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(made):
        largest = max(largest, min(1.0, (len(made) - rank) * p))
        adjusted[place] = largest
    return adjusted


def smallest_detectable(a: Values, b: Values, weights_a: Values | None = None, weights_b: Values | None = None) -> float | None:
    """The difference of means that such samples would show at 80 % power and 5 %; None below two latents on a side."""
    if min(len(a), len(b)) < 2:
        return None
    return smallest_detectable_with(spread(a, weights_a), len(a), spread(b, weights_b), len(b))


def smallest_detectable_with(spread_a: float, n_a: int, spread_b: float, n_b: int) -> float:
    """The same from standard deviations over latents and numbers of latents: for a run that is only planned."""
    return float((Z + _Z_POWER) * np.sqrt(spread_a**2 / n_a + spread_b**2 / n_b))


def spread(values: Values, weights: Values | None = None) -> float:
    """Standard deviation over two latents or more, such that over the root of their number it is the (weighted) mean's error."""
    weights = _unequal(weights)
    if weights is None:
        return float(values.std(ddof=1))
    n = len(values)
    squares = (weights * (values - weighted_mean(values, weights))) ** 2
    return float(n * np.sqrt(squares.sum() / (n - 1)) / weights.sum())


def _unequal(weights: Values | None) -> Values | None:
    """The weights, or None where they are all the same and change nothing."""
    return None if weights is None or not len(weights) or np.ptp(weights) == 0 else weights


def weighted_mean(values: Values, weights: Values | None) -> float:
    """The mean, each latent counted by its weight where there are weights."""
    return float(values.mean() if weights is None else (values * weights).sum() / weights.sum())


def _quartiles(values: Values, weights: Values | None) -> tuple[float, float, float]:
    wanted = [0.25, 0.5, 0.75]
    found = np.quantile(values, wanted) if weights is None else np.quantile(values, wanted, weights=weights, method="inverted_cdf")
    return float(found[0]), float(found[1]), float(found[2])


def mean_draws(values: Values, rng: np.random.Generator, weights: Values | None) -> Draws:
    """Means of bootstrap samples, a bounded number of values at a time."""
    at_once = max(1, min(N_DRAWS, _DRAWN_AT_ONCE // len(values)))
    sizes = [min(at_once, N_DRAWS - first) for first in range(0, N_DRAWS, at_once)]
    drawn = (rng.integers(0, len(values), size=(size, len(values))) for size in sizes)
    if weights is None:
        return np.concatenate([values[places].mean(axis=1) for places in drawn])
    weighted = values * weights
    return np.concatenate([weighted[places].sum(axis=1) / weights[places].sum(axis=1) for places in drawn])


def _frequency_weighted(values: Values, frequencies: Values | None, weights: Values | None) -> float | None:
    if frequencies is None or np.isnan(frequencies).any() or frequencies.sum() <= 0:
        return None
    both = frequencies if weights is None else frequencies * weights
    return float((values * both).sum() / both.sum())


def _welch(a: Values, b: Values, weights_a: Values | None, weights_b: Values | None) -> float | None:
    # a sample of equal numbers may keep a variance of rounding size, which would make a p-value of 0
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return None
    if weights_a is None and weights_b is None:
        return float(np.asarray(stats.ttest_ind(a, b, equal_var=False))[1])
    errors = [spread(values, weights) ** 2 / len(values) for values, weights in ((a, weights_a), (b, weights_b))]
    freedom = sum(errors) ** 2 / sum(error**2 / (len(values) - 1) for error, values in zip(errors, (a, b), strict=True))
    t = (weighted_mean(a, weights_a) - weighted_mean(b, weights_b)) / np.sqrt(sum(errors))
    return float(2 * stats.t.sf(abs(t), freedom))
