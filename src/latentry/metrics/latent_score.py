"""The score of one latent from its judgments: answers by class, numbers measured, or simulated levels."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from latentry.metric_kinds import ENDS, METRIC_KINDS
from latentry.metrics import separation
from latentry.metrics.intervals import (
    N_DRAWS,
    Draws,
    Weights,
    balanced_accuracy_interval,
    percentile_interval,
    precision_interval,
    times_drawn_by_class,
    wilson_interval,
)
from latentry.records import Judgment, Status

N_DECILES = 10


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
class Design:
    """What was designed beside the judgments themselves, where numbers depend on it."""

    ratio: float = 1.0
    """Contrasts per activating example."""
    window_fraction: float | None = None
    """pi, the share of all windows in which the latent fires; None unless the contrasts are drawn uniformly among the others."""
    deciles: Mapping[str, int] = field(default_factory=dict)
    """Decile of the activating examples, by example id; empty: no shares by decile."""
    by_prompt: bool = False
    """Whether several examples stood in one prompt (of one reply key), so that a bootstrap draws prompts."""
    adaptive: bool = False
    """Whether the answers decided how many there are; the balanced accuracy's interval is then corrected for continuity,
    which holds its coverage near 1, where judging stops after few."""


_PLAIN = Design()


def latent_score(judgments: Sequence[Judgment], rng: np.random.Generator, design: Design = _PLAIN) -> LatentScore:
    """The score of one latent under one explainer (or one null) from all its judgments, in any order.

    When no judgment succeeded the status is that of most of them; when only one class is left, `single_class`.
    """
    fine, failed = _by_success(judgments)
    truth = np.array([judgment.is_activating for judgment in fine], dtype=bool)
    n_activating, n_contrast = int(truth.sum()), int((~truth).sum())
    counts: dict[str, Any] = {"n_activating": n_activating, "n_contrast": n_contrast, "n_failed": len(failed)}
    if failed and not fine:
        return LatentScore(status=_commonest(failed), detail=_failures(failed), **counts)
    if not n_activating or not n_contrast:
        return LatentScore(status=Status.SINGLE_CLASS, detail=_one_class(n_activating, n_contrast, failed), **counts)
    values = _graded(fine, truth, rng, design) | _decided(fine, truth, rng, design)
    found = _found_by_decile(fine, design.deciles)
    return LatentScore(status=Status.OK, detail=_failures(failed), values=values, decile_found=found, **counts)


def mean_score(metric: str, judgments: Sequence[Judgment], rng: np.random.Generator) -> LatentScore:
    """The mean of what was measured (`Judgment.value`): a share, of 0 and 1 with Wilson's interval, or an unbounded number.

    When no judgment succeeded the status is that of most of them, and `undersampled` where there was none.
    """
    fine, failed = _by_success(judgments)
    counts: dict[str, Any] = {"n_activating": len(fine), "n_contrast": 0, "n_failed": len(failed)}
    if not fine:
        status, detail = (_commonest(failed), _failures(failed)) if failed else (Status.UNDERSAMPLED, "nothing was measured")
        return LatentScore(status=status, detail=detail, **counts)
    values = np.sort(np.array([judgment.value for judgment in fine], dtype=float))
    share = METRIC_KINDS[metric].limits == (0.0, 1.0)
    estimate = _share(values) if share else _mean(values, rng)
    return LatentScore(status=Status.OK, detail=_failures(failed), values={metric: estimate}, **counts)


def simulation_score(
    judgments: Sequence[Judgment], activations: Mapping[str, Sequence[float]], rng: np.random.Generator, metric: str = "pearson"
) -> LatentScore:
    """Pearson's r of simulated levels and true activations over the tokens of all examples together.

    `activations` are those of each example by its id. The interval draws whole examples within each class. Where either
    side is constant there is no r: `constant`.

    Raises:
        ValueError: a judgment has not one level per token.
    """
    fine, failed = _by_success(judgments)
    fine = sorted(fine, key=lambda judgment: judgment.example_id)
    truth = np.array([judgment.is_activating for judgment in fine], dtype=bool)
    n_activating, n_contrast = int(truth.sum()), int((~truth).sum())
    counts: dict[str, Any] = {"n_activating": n_activating, "n_contrast": n_contrast, "n_failed": len(failed)}
    if failed and not fine:
        return LatentScore(status=_commonest(failed), detail=_failures(failed), **counts)
    if not n_activating or not n_contrast:
        return LatentScore(status=Status.SINGLE_CLASS, detail=_one_class(n_activating, n_contrast, failed), **counts)
    pairs = [(np.array(judgment.levels, dtype=float), np.array(activations[judgment.example_id], dtype=float)) for judgment in fine]
    levels, actual = (np.concatenate(side) for side in zip(*pairs, strict=True))
    constant = [name for name, side in (("simulated levels", levels), ("activations", actual)) if np.ptp(side) == 0]
    if constant:
        detail = "; ".join(filter(None, [f"{' and '.join(constant)} are the same at every token", _failures(failed)]))
        return LatentScore(status=Status.CONSTANT, detail=detail, **counts)
    draws = _pearson_draws(_moments(pairs, levels.mean(), actual.mean()), truth, rng)
    low, high = percentile_interval(draws) if draws.size else (None, None)
    r = float(np.clip(np.corrcoef(levels, actual)[0, 1], -1, 1))
    return LatentScore(status=Status.OK, detail=_failures(failed), values={metric: Estimate(value=r, low=low, high=high)}, **counts)


def _by_success(judgments: Sequence[Judgment]) -> tuple[list[Judgment], list[Judgment]]:
    fine = [judgment for judgment in judgments if judgment.status is Status.OK]
    return fine, [judgment for judgment in judgments if judgment.status is not Status.OK]


def _one_class(n_activating: int, n_contrast: int, failed: Sequence[Judgment]) -> str:
    there = f"{n_activating} activating and {n_contrast} contrast examples were judged"
    return "; ".join(filter(None, [there, _failures(failed)]))


def _prompts(fine: Sequence[Judgment], design: Design) -> tuple[str, ...]:
    """The prompt of each judgment; one without a reply key stands alone."""
    return tuple(judgment.reply_key or judgment.example_id for judgment in fine) if design.by_prompt else ()


def _graded(fine: Sequence[Judgment], truth: Bool[np.ndarray, " example"], rng: np.random.Generator, design: Design) -> dict[str, Estimate]:
    confidence = [judgment.confidence for judgment in fine]
    if None in confidence:
        return {}
    both = separation.separated(np.array(confidence, dtype=float), truth, _prompts(fine, design))
    once, drawn = both.once(), both.drawn(rng)

    def estimate(draws_of: Callable[[separation.Separated, Weights, Weights], Draws]) -> Estimate:
        return _estimate(both, float(draws_of(both, *once)[0]), draws_of(both, *drawn))

    precise = partial(separation.average_precision_draws, ratio=design.ratio)
    return {"auroc": estimate(separation.auroc_draws), "average_precision": estimate(precise)}


def _estimate(both: separation.Separated, value: float, draws: Draws) -> Estimate:
    low, high = both.interval(draws, value)
    return Estimate(value=value, low=low, high=high)


def _decided(
    fine: Sequence[Judgment], truth: Bool[np.ndarray, " example"], rng: np.random.Generator, design: Design
) -> dict[str, Estimate]:
    answers = [judgment.says_activating for judgment in fine]
    if None in answers:
        return {}
    says = np.array(answers, dtype=bool)
    n_activating, n_contrast = int(truth.sum()), int((~truth).sum())
    hits, alarms = int(says[truth].sum()), int(says[~truth].sum())
    low, high = balanced_accuracy_interval(hits, n_activating, n_contrast - alarms, n_contrast, corrected=design.adaptive)
    found = separation.balanced_accuracy(hits / n_activating, (n_contrast - alarms) / n_contrast)
    recall_low, recall_high = wilson_interval(hits, n_activating)
    both = separation.separated(says.astype(float), truth, _prompts(fine, design))
    f1 = separation.f1(hits / n_activating, alarms / n_contrast, design.ratio)
    return {
        "balanced_accuracy": Estimate(value=found, low=low, high=high),
        "recall": Estimate(value=hits / n_activating, low=recall_low, high=recall_high),
        "f1": _estimate(both, f1, separation.f1_draws(both, design.ratio, rng)),
        **_precisions(hits, n_activating, alarms, n_contrast, design),
    }


def _precisions(hits: int, n_activating: int, alarms: int, n_contrast: int, design: Design) -> dict[str, Estimate]:
    """Precision at the designed class ratio and at the real frequency; none where nothing was said to be activating."""
    wanted = {"precision": 1 / (1 + design.ratio), "precision_at_frequency": design.window_fraction}
    found = {}
    for name, prevalence in wanted.items():
        if prevalence is not None and 0 < prevalence < 1 and hits + alarms:
            low, high = precision_interval(hits, n_activating, alarms, n_contrast, prevalence)
            value = separation.precision(hits / n_activating, alarms / n_contrast, prevalence)
            found[name] = Estimate(value=value, low=min(low, value), high=max(high, value))
    return found


def _found_by_decile(fine: Sequence[Judgment], deciles: Mapping[str, int]) -> tuple[float | None, ...]:
    answers: dict[int, list[bool]] = {}
    for judgment in fine:
        if judgment.is_activating and judgment.says_activating is not None and judgment.example_id in deciles:
            answers.setdefault(deciles[judgment.example_id], []).append(judgment.says_activating)
    of_each = [answers.get(decile) for decile in range(1, N_DECILES + 1)]
    return tuple(sum(some) / len(some) if some else None for some in of_each) if answers else ()


def _share(values: Float[np.ndarray, " trial"]) -> Estimate:
    low, high = wilson_interval(float(values.sum()), len(values))
    return Estimate(value=float(values.mean()), low=low, high=high)


def _mean(values: Float[np.ndarray, " prompt"], rng: np.random.Generator) -> Estimate:
    """With a percentile bootstrap; equal values, or one alone, tell nothing of their spread."""
    if np.ptp(values) == 0:
        return Estimate(value=float(values.mean()))
    low, high = percentile_interval(values[rng.integers(0, len(values), size=(N_DRAWS, len(values)))].mean(axis=1))
    return Estimate(value=float(values.mean()), low=low, high=high)


def _moments(pairs: Sequence[tuple[np.ndarray, np.ndarray]], level_mean: float, actual_mean: float) -> Float[np.ndarray, "example moment"]:
    """n, sums, sums of squares and of products of each example, about the means of all, which keeps digits."""
    centred = [(levels - level_mean, actual - actual_mean) for levels, actual in pairs]
    if any(len(x) != len(y) for x, y in centred):
        raise ValueError("a simulation needs one level per token of its example")
    return np.array([(len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y) for x, y in centred], dtype=float)


def _pearson_draws(moments: Float[np.ndarray, "example moment"], truth: Bool[np.ndarray, " example"], rng: np.random.Generator) -> Draws:
    """r of each bootstrap sample of examples; samples in which a side is constant are left out."""
    activating, contrast = times_drawn_by_class(int(truth.sum()), int((~truth).sum()), rng)
    n, x, y, xx, yy, xy = (activating @ moments[truth] + contrast @ moments[~truth]).T
    spread = (xx - x * x / n) * (yy - y * y / n)
    there = spread > 1e-12 * np.maximum(xx * yy, np.finfo(float).tiny)
    return np.clip((xy - x * y / n)[there] / np.sqrt(spread[there]), -1, 1)


def _commonest(failed: Sequence[Judgment]) -> Status:
    counts = Counter(judgment.status for judgment in failed)
    return min(counts, key=lambda status: (-counts[status], status))


def _failures(failed: Sequence[Judgment]) -> str:
    counts = Counter(judgment.status for judgment in failed)
    return "failed: " + ", ".join(f"{counts[status]} {status}" for status in sorted(counts)) if counts else ""
