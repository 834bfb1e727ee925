"""From judgments to numbers: the score of one latent with its intervals, and what is said of one SAE or of two.

Pure: numpy and scipy, no files, no models, and chance only by the generator passed in. A failed judgment is counted
and is in no mean. Definitions are those of methods.md, "From judgments to numbers"; what each number is called, and which
way is better, stands in `metric_kinds.py`.
"""

from latentry.metrics.intervals import Interval, balanced_accuracy_interval, precision_interval, wilson_interval
from latentry.metrics.latent_score import Design, Estimate, LatentScore, latent_score, mean_score, simulation_score
from latentry.metrics.over_latents import (
    Difference,
    Summary,
    Values,
    difference,
    holm,
    lift,
    paired_p_value,
    smallest_detectable,
    smallest_detectable_with,
    spread,
    summary,
)
from latentry.metrics.separation import auroc, auroc_interval, average_precision, balanced_accuracy, f1, precision
from latentry.metrics.standardised import Standardised, standardised_difference

__all__ = [
    "Design",
    "Difference",
    "Estimate",
    "Interval",
    "LatentScore",
    "Standardised",
    "Summary",
    "Values",
    "auroc",
    "auroc_interval",
    "average_precision",
    "balanced_accuracy",
    "balanced_accuracy_interval",
    "difference",
    "f1",
    "holm",
    "latent_score",
    "lift",
    "mean_score",
    "paired_p_value",
    "precision",
    "precision_interval",
    "simulation_score",
    "smallest_detectable",
    "smallest_detectable_with",
    "spread",
    "standardised_difference",
    "summary",
    "wilson_interval",
]
