"""One scorer over the planted concepts under every explanation, and what each of its metrics loses by a fault.

A loss is a share of the lift: 1 where a faulty explanation is as bad as the measured null, 0 where the metric does not see the fault.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentry.metric_kinds import METRIC_KINDS
from latentry.metrics import Summary, lift
from latentry.randomness import rng_for
from latentry.registry import ScorerConfig, variant
from latentry.scorers.base import Scorer, ScorerInputs, items_for, suppliers
from latentry.scorers.score import score_rows
from sanity import planted_concepts as planted

NULL = "null"
"""Stands beside the explainers: the true explanations, deranged."""
SEEN = 0.1
"""A metric sees a fault where the lower end of what it loses is above this share of the lift."""

Scores = Mapping[str, Mapping[str, Mapping[int, float]]]
"""By metric, then by explainer (or `NULL`), then by latent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A scorer on one set of examples."""

    kind: str
    contrast: str
    options: Mapping[str, Any]
    latents: Sequence[int] = tuple(planted.LATENTS)
    only_top: bool = False
    """Whether the activating windows are those of the top decile alone."""


def scores(setting: Setting, inputs: ScorerInputs) -> Scores:
    """Every metric that the scorer gives, as the stage makes them."""
    module = variant("scorers", setting.kind)
    options = dict(setting.options) | ({"contrast": setting.contrast} if setting.contrast else {})
    config: ScorerConfig = module.Config(kind=setting.kind, **options)
    scorer: Scorer = module.build(config, inputs)
    windows = {latent: planted.held_out(latent, only_top=setting.only_top) for latent in setting.latents}
    asked = planted.explanations(setting.latents)
    items = items_for(
        asked,
        windows,
        ranked=setting.latents,
        seed=inputs.seed,
        excluded=suppliers(windows, setting.contrast),
        window_fractions=dict.fromkeys(setting.latents, planted.WINDOW_FRACTION),
        class_ratio=config.class_ratio(planted.N_ACTIVATING, planted.N_HARD if setting.contrast == planted.HARD else planted.N_RANDOM),
    )
    items = [item for item in items if not item.null or item.explainer == "true"]
    rows = score_rows(scorer, asked, items, scorer.judge(items), name=setting.kind, contrast_source=setting.contrast, seed=inputs.seed)
    found: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        for metric in METRIC_KINDS:
            if row.get(metric) is not None:
                found[metric][NULL if row["null"] else row["explainer"]][row["latent"]] = row[metric]
    return found


def gain(of_metric: Mapping[str, Mapping[int, float]], above: str, below: str) -> Summary:
    """How far one explainer stands above another, paired over the latents that have both."""
    shared = sorted(of_metric.get(above, {}).keys() & of_metric.get(below, {}).keys())
    values = (np.array([of_metric[name][latent] for latent in shared], dtype=float) for name in (above, below))
    return lift(*values, rng_for(0, f"sanity {above} {below}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What one metric loses by one fault."""

    share: float
    is_seen: bool

    def __str__(self) -> str:
        """Bold where it is seen."""
        shown = f"{self.share:.2f}".replace("-0.00", "0.00")
        return f"**{shown}**" if self.is_seen else shown


def loss(of_metric: Mapping[str, Mapping[int, float]], fault: str) -> Loss | None:
    """None where the true explanation has no lift over the null, or where one was not scored."""
    whole, lost = gain(of_metric, "true", NULL), gain(of_metric, "true", fault)
    if not whole.mean or whole.low is None or whole.low <= 0 or lost.mean is None or lost.low is None:
        return None
    return Loss(share=lost.mean / whole.mean, is_seen=lost.low > SEEN * whole.mean)


Run = Callable[[Setting], Scores]
