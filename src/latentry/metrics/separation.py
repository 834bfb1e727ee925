"""How well answers tell activating examples from contrasts: AUROC, average precision, F1, precision, balanced accuracy.

Those that depend on the class ratio are given at one that is asked for, whatever the numbers judged: contrasts count
as if there were `ratio` of them beside each activating example.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from latentry.errors import NumericsError
from latentry.metrics.intervals import (
    N_DRAWS,
    Draws,
    Interval,
    Weights,
    percentile_interval,
    times_drawn_by_class,
    times_drawn_by_prompt,
    wilson_interval,
)

_ROUNDING = 1e-12
"""Draws that differ by less are equal."""

Grades = Float[np.ndarray, " example"]
Truth = Bool[np.ndarray, " example"]


@dataclass(frozen=True, slots=True)
class Separated:
    """Answers by class, each class sorted, so that their order does not matter; an answer is a grade, or 1 for yes."""

    activating: Grades
    contrast: Grades
    activating_prompts: tuple[str, ...] = ()
    contrast_prompts: tuple[str, ...] = ()
    """The prompt of each example, where whole prompts are resampled."""

    def once(self) -> tuple[Weights, Weights]:
        """The sample itself: each example once."""
        return np.ones((1, len(self.activating))), np.ones((1, len(self.contrast)))

    def drawn(self, rng: np.random.Generator) -> tuple[Weights, Weights]:
        """How often each example is in each bootstrap sample."""
        if self.activating_prompts:
            return times_drawn_by_prompt(self.activating_prompts, self.contrast_prompts, rng)
        return times_drawn_by_class(len(self.activating), len(self.contrast), rng)

    def interval(self, draws: Draws, value: float) -> Interval:
        """95 % percentiles; where all draws are equal resampling knows no spread, and Wilson's with the smaller class as n stands in."""
        if not draws.size or np.ptp(draws) < _ROUNDING:
            n = min(len(self.activating), len(self.contrast))
            return wilson_interval(value * n, n)
        return percentile_interval(draws)


def separated(answers: Grades, is_activating: Truth, prompts: tuple[str, ...] = ()) -> Separated:
    """Answers by class.

    Raises:
        ValueError: a class is empty.
        NumericsError: an answer is NaN.
    """
    if np.isnan(answers).any():
        raise NumericsError(f"{int(np.isnan(answers).sum())} of {len(answers)} confidences are NaN; a scorer must grade or fail")
    truth = np.asarray(is_activating, dtype=bool)
    if truth.all() or not truth.any():
        raise ValueError(f"AUROC of {int(truth.sum())} activating and {int((~truth).sum())} contrast examples: both must be there")
    if not prompts:
        return Separated(np.sort(answers[truth]), np.sort(answers[~truth]))
    order = sorted(range(len(answers)), key=lambda place: (answers[place], prompts[place]))
    fires, silent = ([place for place in order if truth[place] == wanted] for wanted in (True, False))
    return Separated(answers[fires], answers[silent], tuple(prompts[i] for i in fires), tuple(prompts[i] for i in silent))


def auroc(confidence: Grades, is_activating: Truth) -> float:
    """P(s+ > s-) + P(s+ = s-) / 2: how well confidence tells activating examples from contrasts.

    Raises:
        ValueError: a class is empty.
        NumericsError: a confidence is NaN.
    """
    return float(_wins(separated(confidence, is_activating)).mean())


def auroc_interval(confidence: Grades, is_activating: Truth, rng: np.random.Generator) -> Interval:
    """95 % percentile bootstrap of the AUROC within each class; the order of the examples does not matter."""
    both = separated(confidence, is_activating)
    return both.interval(auroc_draws(both, *both.drawn(rng)), float(_wins(both).mean()))


def auroc_draws(both: Separated, activating: Weights, contrast: Weights) -> Draws:
    """The AUROC of each weighted sample."""
    won = ((activating @ _wins(both)) * contrast).sum(axis=1)
    return won / (activating.sum(axis=1) * contrast.sum(axis=1))


def average_precision(confidence: Grades, is_activating: Truth, ratio: float) -> float:
    """Sum over falling thresholds of the recall gained times the precision there, at `ratio` contrasts per activating example."""
    both = separated(confidence, is_activating)
    return float(average_precision_draws(both, *both.once(), ratio)[0])


def average_precision_draws(both: Separated, activating: Weights, contrast: Weights, ratio: float) -> Draws:
    """The average precision of each weighted sample."""
    grades = np.concatenate([both.activating, both.contrast])
    falling = np.argsort(-grades, kind="stable")
    n_activating, n_draws = len(both.activating), len(activating)
    hits, alarms = np.zeros((n_draws, len(grades))), np.zeros((n_draws, len(grades)))
    hits[:, :n_activating], alarms[:, n_activating:] = activating, contrast
    # examples of one grade pass the threshold together
    ends = np.flatnonzero(np.append(np.diff(grades[falling]) != 0, True))
    hits, alarms = (np.cumsum(found[:, falling], axis=1)[:, ends] for found in (hits, alarms))
    n_hits, n_alarms = activating.sum(axis=1, keepdims=True), contrast.sum(axis=1, keepdims=True)
    expected = ratio * (n_hits / n_alarms) * alarms
    there = hits / np.maximum(hits + expected, np.finfo(float).tiny)
    # counts are summed before they are divided, so that no rounding lifts a perfect order above 1
    return (np.diff(hits, axis=1, prepend=0.0) * there).sum(axis=1) / n_hits[:, 0]


def f1(true_positive_rate: float, false_positive_rate: float, ratio: float) -> float:
    """2 precision recall / (precision + recall), at `ratio` contrasts per activating example."""
    return 2 * true_positive_rate / (true_positive_rate + ratio * false_positive_rate + 1)


def f1_draws(both: Separated, ratio: float, rng: np.random.Generator) -> Draws:
    """The F1 of each bootstrap sample of yes (1) and no (0)."""
    if both.activating_prompts:
        activating, contrast = both.drawn(rng)
        hits = (activating @ both.activating) / activating.sum(axis=1)
        alarms = (contrast @ both.contrast) / contrast.sum(axis=1)
    else:  # how many yes a sample holds is binomial
        hits, alarms = (rng.binomial(len(side), side.mean(), N_DRAWS) / len(side) for side in (both.activating, both.contrast))
    return 2 * hits / (hits + ratio * alarms + 1)


def precision(true_positive_rate: float, false_positive_rate: float, prevalence: float) -> float:
    """TPR pi / (TPR pi + FPR (1 - pi)): the share of activating examples among those said to be, where a share pi is activating."""
    hits, alarms = true_positive_rate * prevalence, false_positive_rate * (1 - prevalence)
    return hits / (hits + alarms)


def balanced_accuracy(true_positive_rate: float, true_negative_rate: float) -> float:
    """(TPR + TNR) / 2: .5 for one who does not look, whatever the class ratio."""
    return (true_positive_rate + true_negative_rate) / 2


def _wins(both: Separated) -> Float[np.ndarray, "activating contrast"]:
    """1 where the activating example is graded higher than the contrast, 1/2 where equal; rows and columns sorted."""
    positive, negative = both.activating[:, None], both.contrast[None, :]
    return (positive > negative) + 0.5 * (positive == negative)
