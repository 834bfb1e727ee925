"""From judgments to numbers: the score of one latent with its intervals, and what is said of one SAE or of two.

Pure: numpy and scipy, no files, no models, and chance only by the generator passed in. A failed judgment is counted
and is in no mean. Definitions are those of methods.md, "From judgments to numbers".
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from latentry.errors import NumericsError
from latentry.metric_kinds import ENDS
from latentry.records import Judgment, Status

N_DRAWS = 2000
"""Bootstrap draws, of latents or of judgments."""

_TAIL = 0.025
_Z, _Z_POWER = float(stats.norm.ppf(1 - _TAIL)), float(stats.norm.ppf(0.80))
_DRAWN_AT_ONCE = 4_000_000
"""Values held at once by a bootstrap over latents: 32 MB, whatever the number of latents."""

Interval = tuple[float, float]
Values = Float[np.ndarray, " latent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One number with its 95 % interval; an end that nothing is known of is None."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentScore:
    """What one scorer's judgments say of one latent's explanation."""

    status: Status
    detail: str
    """Why there is no score, or what failed beside it; empty when every judgment succeeded."""
    values: Mapping[str, Estimate] = field(default_factory=dict)
    """By name of `METRIC_KINDS`; what the answers do not give is left out."""
    decile_found: tuple[float | None, ...] = ()
    """Share of the activating examples of each decile, the weakest first, that were said to be; None where none was judged."""
    n_activating: int
    """Activating examples (or prompts, trials, texts) whose judgment succeeded."""
    n_contrast: int
    """Contrasts whose judgment succeeded."""
    n_failed: int
    stopped_early: bool = False
    """Whether judging stopped before the last example, since the interval was narrow enough."""

    def row(self) -> dict[str, Any]:
        """Its columns in `scores.parquet`."""
        columns = {f"{name}{end}": value for name, one in self.values.items() for end, value in zip(ENDS, _ends(one), strict=True)}
        rest = ("status", "detail", "n_activating", "n_contrast", "n_failed", "stopped_early")
        return {name: getattr(self, name) for name in rest} | columns | {"decile_found": list(self.decile_found) or None}


def _ends(one: Estimate) -> tuple[float | None, float | None, float | None]:
    return one.value, one.low, one.high


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


def auroc(confidence: Float[np.ndarray, " example"], is_activating: Bool[np.ndarray, " example"]) -> float:
    """P(s+ > s-) + P(s+ = s-) / 2: how well confidence tells activating examples from contrasts.

    Raises:
        ValueError: a class is empty.
        NumericsError: a confidence is NaN.
    """
    return float(_wins(confidence, is_activating).mean())


def auroc_interval(
    confidence: Float[np.ndarray, " example"], is_activating: Bool[np.ndarray, " example"], rng: np.random.Generator
) -> Interval:
    """95 % percentile bootstrap of the AUROC within each class; the order of the examples does not matter.

    Where all draws are equal (perfect separation, one example each, all tied) resampling knows no spread, and
    Wilson's interval with the smaller class as n stands in.
    """
    wins = _wins(confidence, is_activating)
    n_activating, n_contrast = wins.shape
    # times each example is drawn instead of the examples themselves: one product makes all draws
    draws = ((_times_drawn(n_activating, rng) @ wins) * _times_drawn(n_contrast, rng)).sum(axis=1) / wins.size
    if draws.min() == draws.max():
        n = min(wins.shape)
        return wilson_interval(float(wins.mean()) * n, n)
    low, high = np.quantile(draws, [_TAIL, 1 - _TAIL])
    return float(low), float(high)


def wilson_interval(successes: float, n: int) -> Interval:
    """Wilson's 95 % interval of a share; `successes` may be a fraction of one.

    Raises:
        ValueError: n is not positive.
    """
    if n < 1:
        raise ValueError(f"an interval of {successes} among {n}: n must be at least 1")
    share = successes / n
    centre = share + _Z**2 / (2 * n)
    spread = _Z * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    scale = 1 + _Z**2 / n
    # rounding may leave the bound of an extreme share a hair inside it
    return max(0.0, min(share, float((centre - spread) / scale))), min(1.0, max(share, float((centre + spread) / scale)))


def balanced_accuracy(true_positive_rate: float, true_negative_rate: float) -> float:
    """(TPR + TNR) / 2: .5 for one who does not look, whatever the class ratio."""
    return (true_positive_rate + true_negative_rate) / 2


def balanced_accuracy_interval(n_true_positive: int, n_activating: int, n_true_negative: int, n_contrast: int) -> Interval:
    """95 % interval of the balanced accuracy, from the Wilson bounds of both rates (Newcombe's combination)."""
    rates = n_true_positive / n_activating, n_true_negative / n_contrast
    bounds = wilson_interval(n_true_positive, n_activating), wilson_interval(n_true_negative, n_contrast)
    middle = balanced_accuracy(*rates)
    below, above = (np.hypot(rates[0] - bounds[0][end], rates[1] - bounds[1][end]) / 2 for end in (0, 1))
    return float(middle - below), float(middle + above)


def latent_score(judgments: Sequence[Judgment], rng: np.random.Generator) -> LatentScore:
    """The score of one latent under one explainer (or one null) from all its judgments, in any order.

    When no judgment succeeded the status is that of most of them; when only one class is left, `single_class`.
    """
    fine = [judgment for judgment in judgments if judgment.status is Status.OK]
    failed = [judgment for judgment in judgments if judgment.status is not Status.OK]
    truth = np.array([judgment.is_activating for judgment in fine], dtype=bool)
    n_activating, n_contrast = int(truth.sum()), int((~truth).sum())
    counts: dict[str, Any] = {"n_activating": n_activating, "n_contrast": n_contrast, "n_failed": len(failed)}
    if failed and not fine:
        return LatentScore(status=_commonest(failed), detail=_failures(failed), **counts)
    if not n_activating or not n_contrast:
        there = f"{n_activating} activating and {n_contrast} contrast examples were judged"
        detail = "; ".join(filter(None, [there, _failures(failed)]))
        return LatentScore(status=Status.SINGLE_CLASS, detail=detail, **counts)
    values = _graded(fine, truth, rng) | _decided(fine, truth)
    return LatentScore(status=Status.OK, detail=_failures(failed), values=values, **counts)


def summary(values: Values, rng: np.random.Generator, frequencies: Values | None = None) -> Summary:
    """A metric over latents, each of which has it; `frequencies` are their firing frequencies."""
    n = len(values)
    if not n:
        return Summary(mean=None, low=None, high=None, median=None, quartile_1=None, quartile_3=None, frequency_weighted_mean=None, n=0)
    low, high = _interval(_mean_draws(values, rng)) if n > 1 else (None, None)
    quartile_1, median, quartile_3 = (float(value) for value in np.quantile(values, [0.25, 0.5, 0.75]))
    return Summary(
        mean=float(values.mean()),
        low=low,
        high=high,
        median=median,
        quartile_1=quartile_1,
        quartile_3=quartile_3,
        frequency_weighted_mean=_weighted_mean(values, frequencies),
        n=n,
    )


def lift(scores: Values, nulls: Values, rng: np.random.Generator) -> Summary:
    """How far the scores stand above their nulls, over exactly the latents that have both; NaN where one is lacking."""
    gains = scores - nulls
    return summary(gains[~np.isnan(gains)], rng)


def difference(a: Values, b: Values, rng: np.random.Generator) -> Difference:
    """mean(a) - mean(b) of unpaired latents, with a bootstrap interval and Welch's p-value."""
    sizes = {"n_a": len(a), "n_b": len(b)}
    if not len(a) or not len(b):
        return Difference(difference=None, low=None, high=None, p_value=None, **sizes)
    apart = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return Difference(difference=apart, low=None, high=None, p_value=None, **sizes)
    low, high = _interval(_mean_draws(a, rng) - _mean_draws(b, rng))
    return Difference(difference=apart, low=low, high=high, p_value=_welch(a, b), **sizes)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment of one family of tests; a test that could not be made stays None and counts for nothing."""
    made = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(made):
        largest = max(largest, min(1.0, (len(made) - rank) * p))
        adjusted[place] = largest
    return adjusted


def smallest_detectable(a: Values, b: Values) -> float | None:
    """The difference of means that such samples would show at 80 % power and 5 %; None below two latents on a side."""
    if min(len(a), len(b)) < 2:
        return None
    return smallest_detectable_with(float(a.std(ddof=1)), len(a), float(b.std(ddof=1)), len(b))


def smallest_detectable_with(spread_a: float, n_a: int, spread_b: float, n_b: int) -> float:
    """The same from standard deviations over latents and numbers of latents: for a run that is only planned."""
    return float((_Z + _Z_POWER) * np.sqrt(spread_a**2 / n_a + spread_b**2 / n_b))


def _wins(
    confidence: Float[np.ndarray, " example"], is_activating: Bool[np.ndarray, " example"]
) -> Float[np.ndarray, "activating contrast"]:
    """1 where the activating example is graded higher than the contrast, 1/2 where equal; rows and columns sorted."""
    if np.isnan(confidence).any():
        raise NumericsError(f"{int(np.isnan(confidence).sum())} of {len(confidence)} confidences are NaN; a scorer must grade or fail")
    truth = np.asarray(is_activating, dtype=bool)
    positive, negative = np.sort(confidence[truth])[:, None], np.sort(confidence[~truth])[None, :]
    if not positive.size or not negative.size:
        raise ValueError(f"AUROC of {positive.size} activating and {negative.size} contrast examples: both must be there")
    return (positive > negative) + 0.5 * (positive == negative)


def _times_drawn(n: int, rng: np.random.Generator) -> Float[np.ndarray, " draw example"]:
    drawn = rng.integers(0, n, size=(N_DRAWS, n)) + np.arange(N_DRAWS)[:, None] * n
    return np.bincount(drawn.ravel(), minlength=N_DRAWS * n).reshape(N_DRAWS, n).astype(float)


def _graded(fine: Sequence[Judgment], truth: Bool[np.ndarray, " example"], rng: np.random.Generator) -> dict[str, Estimate]:
    confidence = [judgment.confidence for judgment in fine]
    if None in confidence:
        return {}
    grades = np.array(confidence, dtype=float)
    low, high = auroc_interval(grades, truth, rng)
    return {"auroc": Estimate(value=auroc(grades, truth), low=low, high=high)}


def _decided(fine: Sequence[Judgment], truth: Bool[np.ndarray, " example"]) -> dict[str, Estimate]:
    answers = [judgment.says_activating for judgment in fine]
    if None in answers:
        return {}
    right = np.array(answers, dtype=bool) == truth
    n_activating, n_contrast = int(truth.sum()), int((~truth).sum())
    hits, rejections = int(right[truth].sum()), int(right[~truth].sum())
    low, high = balanced_accuracy_interval(hits, n_activating, rejections, n_contrast)
    found = balanced_accuracy(hits / n_activating, rejections / n_contrast)
    recall_low, recall_high = wilson_interval(hits, n_activating)
    return {
        "balanced_accuracy": Estimate(value=found, low=low, high=high),
        "recall": Estimate(value=hits / n_activating, low=recall_low, high=recall_high),
    }


def _commonest(failed: Sequence[Judgment]) -> Status:
    counts = Counter(judgment.status for judgment in failed)
    return min(counts, key=lambda status: (-counts[status], status))


def _failures(failed: Sequence[Judgment]) -> str:
    counts = Counter(judgment.status for judgment in failed)
    return "failed: " + ", ".join(f"{counts[status]} {status}" for status in sorted(counts)) if counts else ""


def _mean_draws(values: Values, rng: np.random.Generator) -> Float[np.ndarray, " draw"]:
    """Means of bootstrap samples, a bounded number of values at a time."""
    at_once = max(1, min(N_DRAWS, _DRAWN_AT_ONCE // len(values)))
    sizes = [min(at_once, N_DRAWS - first) for first in range(0, N_DRAWS, at_once)]
    return np.concatenate([values[rng.integers(0, len(values), size=(size, len(values)))].mean(axis=1) for size in sizes])


def _interval(draws: Float[np.ndarray, " draw"]) -> Interval:
    low, high = np.quantile(draws, [_TAIL, 1 - _TAIL])
    return float(low), float(high)


def _weighted_mean(values: Values, weights: Values | None) -> float | None:
    if weights is None or np.isnan(weights).any() or weights.sum() <= 0:
        return None
    return float((values * weights).sum() / weights.sum())


def _welch(a: Values, b: Values) -> float | None:
    # a sample of equal numbers may keep a variance of rounding size, which would make a p-value of 0
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return None
    return float(np.asarray(stats.ttest_ind(a, b, equal_var=False))[1])
