"""Every number that a scorer can give a latent: what it means, which way is better, what chance gives, and its whole name.

How they are computed is the room `metrics`'s. The order is that of preference: the first that a scorer gives stands for it.
A reported name says all that two numbers must share to be comparable: kind, contrast source, class ratio where it matters,
and whether judging was adaptive, as in `f1_random_1to1`.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

JACOBIAN_THRESHOLDS = {"above_0_005": 0.005, "above_0_01": 0.01, "above_0_02": 0.02, "above_0_04": 0.04}
JACOBIAN_FIGURES: Mapping[str, str] = {
    "mean_abs": "mean |J|",
    **{name: f"|J| > {threshold:g}".replace("0.", ".") for name, threshold in JACOBIAN_THRESHOLDS.items()},
    "kurtosis": "kurtosis (excess)",
}
"""What is said of an MLP's Jacobian between the latents of two SAEs, and its titles; computed in `edges/figures.py`."""

ENDS = ("", "_low", "_high")
"""Suffixes of a metric's columns: the value, and its 95 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricKind:
    """One kind of number."""

    title: str
    """As it stands in a table or at an axis."""
    definition: str
    chance: float | None
    """What an answer that does not look at the explanation gives; None where only a measured null tells."""
    unit: str = ""
    higher_is_better: bool = True
    at_class_ratio: bool = False
    """Whether it depends on how many contrasts stand beside an activating example, which is then part of the metric's name."""
    chance_is_prevalence: bool = False
    """Whether chance is the share of activating examples at the class ratio."""
    limits: tuple[float, float] | None = (0.0, 1.0)
    """Smallest and largest possible; None: unbounded."""
    of: str = ""
    """The kind of scorer whose own number it is; the AUROC is that of all others."""


METRIC_KINDS: Mapping[str, MetricKind] = {
    "auroc": MetricKind(title="AUROC", definition="P(s+ > s-) + P(s+ = s-) / 2 over activating (+) and contrast (-) examples", chance=0.5),
    "balanced_accuracy": MetricKind(title="balanced accuracy", definition="(TPR + TNR) / 2", chance=0.5),
    "pearson": MetricKind(
        of="simulation",
        title="correlation (Pearson)",
        definition="correlation of simulated levels 0 to 10 and true activations over all held-out tokens",
        chance=0.0,
        limits=(-1.0, 1.0),
    ),
    "pearson_0to9": MetricKind(
        title="correlation (Pearson, levels 0 to 9)",
        definition="the same with levels 0 to 9, for a judge whose tokenizer has no single token 10",
        chance=0.0,
        limits=(-1.0, 1.0),
    ),
    "nats": MetricKind(
        of="intervention",
        title="gain in log p(explanation)",
        definition="mean over prompts of log p(explanation | steered) - log p(explanation | clean)",
        chance=None,
        unit="nats",
        limits=None,
    ),
    "accuracy": MetricKind(of="intruder", title="intruders found", definition="share of intruders found among five windows", chance=0.2),
    "fired_share": MetricKind(
        of="sensitivity",
        title="share of texts that fire",
        definition="share of texts written from the explanation in which the latent fires",
        chance=None,
    ),
    "average_precision": MetricKind(
        title="average precision",
        definition="sum over recall steps of their width times the precision there; chance is the share of activating examples",
        chance=None,
        at_class_ratio=True,
        chance_is_prevalence=True,
    ),
    "f1": MetricKind(title="F1", definition="2 precision recall / (precision + recall)", chance=None, at_class_ratio=True),
    "precision": MetricKind(
        title="precision",
        definition="share of activating examples among those said to be; chance is their share among all",
        chance=None,
        at_class_ratio=True,
        chance_is_prevalence=True,
    ),
    "recall": MetricKind(title="recall", definition="TPR: share of the activating examples said to be", chance=None),
    "precision_at_frequency": MetricKind(
        title="precision at the real frequency",
        definition="TPR pi / (TPR pi + FPR (1 - pi)), pi the share of windows in which the latent fires; random contrasts only",
        chance=None,
    ),
}
"""By name; each has three columns in a table of scores (`ENDS`)."""

COLUMNS = tuple(f"{name}{end}" for name in METRIC_KINDS for end in ENDS)

_ADAPTIVE = "adaptive"
_RATIO = re.compile(r"_(\d+)to(\d+)(?:_adaptive)?$")


def own_kind(scorer_kind: str) -> str:
    """The number that a kind of scorer is for, which stands for it also where no latent has one."""
    return next((name for name, kind in METRIC_KINDS.items() if kind.of and kind.of == scorer_kind), "auroc")


def reported_name(kind: str, contrast_source: str, class_ratio: tuple[int, int], *, adaptive: bool) -> str:
    """The whole name of a kind of number; an empty contrast source is left out."""
    ratio = "{}to{}".format(*class_ratio) if METRIC_KINDS[kind].at_class_ratio else ""
    parts = (kind, contrast_source.replace("-", "_"), ratio, _ADAPTIVE if adaptive else "")
    return "_".join(part for part in parts if part)


@functools.cache  # asked once a latent where latents are drawn
def kind_of(reported: str) -> str:
    """The kind of number behind a whole name, which is the latents' column too: `auroc_random` is read from `auroc`."""
    return max((kind for kind in METRIC_KINDS if f"{reported}_".startswith(f"{kind}_")), key=len)


def context_of(reported: str) -> str:
    """What a whole name says beside the kind, in words: `random, 1 to 1`."""
    rest = reported[len(kind_of(reported)) + 1 :]
    ratio = _ratio_of(reported)
    if ratio:
        rest = _RATIO.sub("_adaptive" if rest.endswith(_ADAPTIVE) else "", f"_{rest}")[1:]
    stops = rest.endswith(_ADAPTIVE)
    source = rest.removesuffix(_ADAPTIVE).strip("_").replace("_", " ")
    return ", ".join(
        filter(None, [source and f"{source} contrasts", "{} to {}".format(*ratio) if ratio else "", _ADAPTIVE if stops else ""])
    )


@functools.cache
def chance_of(reported: str) -> float | None:
    """What chance gives by a whole name; None where only a measured null tells."""
    kind, ratio = METRIC_KINDS[kind_of(reported)], _ratio_of(reported)
    if kind.chance_is_prevalence and ratio:
        return ratio[0] / sum(ratio)
    return kind.chance


def _ratio_of(reported: str) -> tuple[int, int] | None:
    found = _RATIO.search(reported) if METRIC_KINDS[kind_of(reported)].at_class_ratio else None
    return (int(found[1]), int(found[2])) if found else None
