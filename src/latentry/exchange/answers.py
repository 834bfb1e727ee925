"""Numbers made anew, by our metrics, from the answers that others kept: what is true of each window, and what was said of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from latentry.exchange.source import Counts, Score
from latentry.metric_kinds import METRIC_KINDS
from latentry.metrics import auroc, balanced_accuracy, f1


def recomputed(samples: Sequence[Mapping[str, Any]], scorer: str) -> Iterator[Score]:
    """Balanced accuracy, F1 and, where all answers are graded, AUROC; none where a class has no answer.

    A sample has `activating`, `prediction` (None: no answer) and, where there is one, `probability`.
    """
    answered = [sample for sample in samples if sample["prediction"] is not None]
    truth = np.array([sample["activating"] for sample in answered], dtype=bool)
    says = np.array([sample["prediction"] for sample in answered], dtype=bool)
    if not truth.any() or truth.all():
        return
    hits, alarms, ratio = says[truth].mean(), says[~truth].mean(), (~truth).sum() / truth.sum()
    values = {"balanced_accuracy": balanced_accuracy(hits, 1 - alarms), "f1": f1(hits, alarms, ratio)}
    grades = [sample.get("probability") for sample in answered]
    if None not in grades:
        values["auroc"] = auroc(np.array(grades, dtype=float), truth)
    for metric, value in values.items():
        told = f"{METRIC_KINDS[metric].definition}; over the answered windows, at their own class ratio"
        yield Score(
            scorer=scorer, metric=metric, score=float(value), definition=told, recomputed=True, counts=counts_of(answered, len(samples))
        )


def counts_of(answered: Sequence[Mapping[str, Any]], n: int) -> Counts:
    """Those of `n` samples, some of which were answered."""
    n_activating = sum(bool(sample["activating"]) for sample in answered)
    return Counts(n=len(answered), n_activating=n_activating, n_contrast=len(answered) - n_activating, n_failed=n - len(answered))
