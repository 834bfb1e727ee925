"""95 % intervals: Wilson's of one share, what is combined of two of them, and percentiles of bootstrap draws."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy import stats

N_DRAWS = 2000
"""Bootstrap draws, of latents or of judgments."""
TAIL = 0.025
Z = float(stats.norm.ppf(1 - TAIL))

Interval = tuple[float, float]
Draws = Float[np.ndarray, " draw"]
Weights = Float[np.ndarray, "draw example"]


def wilson_interval(successes: float, n: int) -> Interval:
    """Wilson's 95 % interval of a share; `successes` may be a fraction of one.

    Raises:
        ValueError: n is not positive.
    """
    if n < 1:
        raise ValueError(f"an interval of {successes} among {n}: n must be at least 1")
    share = successes / n
    centre = share + Z**2 / (2 * n)
    spread = Z * np.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    scale = 1 + Z**2 / n
    # rounding may leave the bound of an extreme share a hair inside it
    return max(0.0, min(share, float((centre - spread) / scale))), min(1.0, max(share, float((centre + spread) / scale)))


def corrected_wilson_interval(successes: int, n: int) -> Interval:
    """The same with a correction for continuity (Newcombe 1998, method 4): wider, and safe for shares near 0 and 1 of few."""
    share, square = successes / n, Z**2

    def root(sign: int) -> float:
        return Z * np.sqrt(max(0.0, square - sign * (2 - 4 * share) - 1 / n + 4 * share * n * (1 - share)))

    scale = 2 * (n + square)
    low = 0.0 if successes == 0 else max(0.0, float((2 * successes + square - 1 - root(1)) / scale))
    high = 1.0 if successes == n else min(1.0, float((2 * successes + square + 1 + root(-1)) / scale))
    return low, high


def balanced_accuracy_interval(
    n_true_positive: int, n_activating: int, n_true_negative: int, n_contrast: int, *, corrected: bool = False
) -> Interval:
    """95 % interval of the balanced accuracy, from the Wilson bounds of both rates (Newcombe's combination)."""
    rates = n_true_positive / n_activating, n_true_negative / n_contrast
    bounds_of = corrected_wilson_interval if corrected else wilson_interval
    bounds = bounds_of(n_true_positive, n_activating), bounds_of(n_true_negative, n_contrast)
    middle = (rates[0] + rates[1]) / 2
    below, above = (np.hypot(rates[0] - bounds[0][end], rates[1] - bounds[1][end]) / 2 for end in (0, 1))
    return float(middle - below), float(middle + above)


def precision_interval(n_true_positive: int, n_activating: int, n_false_positive: int, n_contrast: int, prevalence: float) -> Interval:
    """95 % interval of TPR pi / (TPR pi + FPR (1 - pi)), from the Wilson bounds of both rates.

    The bounds of TPR / FPR are combined as Donner and Zou (2012) do for a ratio; precision grows with that ratio.

    Raises:
        ValueError: nothing was said to be activating, so that there is no precision, or pi is not between 0 and 1.
    """
    if (not n_true_positive and not n_false_positive) or not 0 < prevalence < 1:
        raise ValueError(f"precision of {n_true_positive} true and {n_false_positive} false positives at a prevalence of {prevalence}")
    rates = n_true_positive / n_activating, n_false_positive / n_contrast
    (a_low, a_high), (b_low, b_high) = wilson_interval(n_true_positive, n_activating), wilson_interval(n_false_positive, n_contrast)
    odds = prevalence / (1 - prevalence)
    low = _ratio_below(*rates, a_low, b_high) * odds
    high = _ratio_above(*rates, a_high, b_low) * odds
    return low / (1 + low), 1.0 if np.isinf(high) else high / (1 + high)


def _ratio_below(a: float, b: float, a_low: float, b_high: float) -> float:
    upper = a_low * (2 * a - a_low)
    root = np.sqrt(max(0.0, (a * b) ** 2 - upper * b_high * (2 * b - b_high)))
    return float(upper / (a * b + root)) if upper > 0 else 0.0


def _ratio_above(a: float, b: float, a_high: float, b_low: float) -> float:
    lower = b_low * (2 * b - b_low)
    root = np.sqrt(max(0.0, (a * b) ** 2 - a_high * (2 * a - a_high) * lower))
    return float((a * b + root) / lower) if lower > 0 else float("inf")


def percentile_interval(draws: Draws) -> Interval:
    """The middle 95 % of bootstrap draws."""
    low, high = np.quantile(draws, [TAIL, 1 - TAIL])
    return float(low), float(high)


def times_drawn(n: int, rng: np.random.Generator) -> Weights:
    """How often each of n is in each bootstrap sample; one product with these makes all draws of a mean."""
    drawn = rng.integers(0, n, size=(N_DRAWS, n)) + np.arange(N_DRAWS)[:, None] * n
    return np.bincount(drawn.ravel(), minlength=N_DRAWS * n).reshape(N_DRAWS, n).astype(float)


def times_drawn_by_class(n_activating: int, n_contrast: int, rng: np.random.Generator) -> tuple[Weights, Weights]:
    """The same of activating examples and of contrasts, each drawn among its own."""
    return times_drawn(n_activating, rng), times_drawn(n_contrast, rng)


def times_drawn_by_prompt(activating: Sequence[str], contrast: Sequence[str], rng: np.random.Generator) -> tuple[Weights, Weights]:
    """The same, with whole prompts drawn, by the prompt of each example; samples that lack a class are left out."""
    prompts = sorted({*activating, *contrast})
    drawn = times_drawn(len(prompts), rng)
    of_class = [drawn[:, [prompts.index(prompt) for prompt in some]] for some in (activating, contrast)]
    both = (of_class[0].sum(axis=1) > 0) & (of_class[1].sum(axis=1) > 0)
    return of_class[0][both], of_class[1][both]
