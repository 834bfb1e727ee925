"""Adaptive judging: by rounds, until the score is known as closely as was asked, so that calls go where they tell something.

A round holds one activating window of each decile and ten contrasts, in the order of the sample. At least two rounds are
judged, and judging stops between rounds only. All latents' windows of one round are asked about together. Which windows are
judged depends on the latent's own answers alone (under `max_sae_width`: on those of all latents), never on batches or order.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from latentry.metrics import Estimate, LatentScore, Summary, balanced_accuracy, balanced_accuracy_interval, summary
from latentry.randomness import rng_for
from latentry.records import Judgment
from latentry.scorers.asking import Case
from latentry.scorers.base import Item, activating

CONTRASTS_PER_ROUND = 10
MIN_ROUNDS = 2

Judge = Callable[[Sequence[Item], Sequence[Sequence[Case]], int], list[Judgment]]
"""Judges some cases of some items; the number is that of the round, from 0."""
Width = Annotated[float, Field(gt=0, lt=1)]


class Adaptive(BaseModel):
    """When judging stops before the last held-out window; one of the two, or both: whichever comes first."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_width: Width | None = None
    """A latent is judged no further when the 95 % interval of its balanced accuracy is narrower than this."""
    max_sae_width: Width | None = None
    """No latent is judged further when that of the mean over all latents, under one explainer, is narrower than this."""

    @model_validator(mode="after")
    def _one_is_given(self) -> "Adaptive":
        if self.max_width is None and self.max_sae_width is None:
            raise ValueError("neither max_width nor max_sae_width says when to stop; give one, or take `adaptive` out to judge all")
        return self


def judged_by_rounds(
    items: Sequence[Item], cases: Sequence[Sequence[Case]], judge: Judge, adaptive: Adaptive | None, seed: int
) -> list[Judgment]:
    """The judgments on each item's cases, all of them or (where `adaptive`) those of the rounds it took; item after item."""
    if adaptive is None:
        return judge(items, cases, 0)
    rounds = [rounds_of(item, of_item) for item, of_item in zip(items, cases, strict=True)]
    place = {_key(item): i for i, item in enumerate(items)}
    judged: list[list[Judgment]] = [[] for _ in items]
    going = range(len(items))
    number = 0
    while going := [i for i in going if number < len(rounds[i])]:
        for one in judge([items[i] for i in going], [rounds[i][number] for i in going], number):
            judged[place[_key(one)]].append(one)
        number += 1
        if number >= MIN_ROUNDS:
            going = _unsettled(items, judged, going, adaptive, seed, number)
    return [one for of_item in judged for one in of_item]


def rounds_of(item: Item, cases: Sequence[Case]) -> list[list[Case]]:
    """An item's cases by round: the next of each decile, and the next ten contrasts; the last rounds hold what is left."""
    deciles = {example.example_id: example.decile for example in activating(item)}
    by_decile: dict[int, list[Case]] = defaultdict(list)
    for case in cases:
        if case.is_activating:
            by_decile[deciles[case.example_id]].append(case)
    silent = [case for case in cases if not case.is_activating]
    n_rounds = max([len(some) for some in by_decile.values()] + [-(-len(silent) // CONTRASTS_PER_ROUND)], default=0)
    return [
        [some[number] for _, some in sorted(by_decile.items()) if number < len(some)]
        + silent[number * CONTRASTS_PER_ROUND : (number + 1) * CONTRASTS_PER_ROUND]
        for number in range(n_rounds)
    ]


def known_so_far(judgments: Sequence[Judgment]) -> Estimate | None:
    """Balanced accuracy and its interval, as the score will have it; None while a class has no answer."""
    right = {True: 0, False: 0}
    n = {True: 0, False: 0}
    for one in judgments:
        if one.says_activating is not None:
            n[one.is_activating] += 1
            right[one.is_activating] += one.says_activating == one.is_activating
    if not n[True] or not n[False]:
        return None
    low, high = balanced_accuracy_interval(right[True], n[True], right[False], n[False], corrected=True)
    return Estimate(value=balanced_accuracy(right[True] / n[True], right[False] / n[False]), low=low, high=high)


def marked_if_stopped(score: LatentScore, judgments: Sequence[Judgment], cases: Sequence[Case]) -> LatentScore:
    """The score, saying so where not all cases were judged."""
    return replace(score, stopped_early=len(judgments) < len(cases))


def _key(one: Item | Judgment) -> tuple[int, str, bool]:
    return one.latent, one.explainer, one.null


def _unsettled(
    items: Sequence[Item], judged: Sequence[Sequence[Judgment]], going: Sequence[int], adaptive: Adaptive, seed: int, number: int
) -> list[int]:
    """Those of `going` that are judged further."""
    known = [known_so_far(of_item) for of_item in judged]
    settled = _settled_groups(items, known, adaptive.max_sae_width, seed, number)
    return [i for i in going if (items[i].explainer, items[i].null) not in settled and not _narrow(known[i], adaptive.max_width)]


def _narrow(known: Estimate | None, width: float | None) -> bool:
    return width is not None and known is not None and _width(known) < width


def _width(one: Estimate | Summary) -> float:
    return 0.0 if one.low is None or one.high is None else one.high - one.low


def _settled_groups(
    items: Sequence[Item], known: Sequence[Estimate | None], width: float | None, seed: int, number: int
) -> set[tuple[str, bool]]:
    """The explainers, own and null apart, whose mean over latents is known closely enough."""
    if width is None:
        return set()
    groups: dict[tuple[str, bool], list[Estimate]] = defaultdict(list)
    for item, one in sorted(zip(items, known, strict=True), key=lambda pair: pair[0].latent):
        if one is not None:
            groups[item.explainer, item.null].append(one)
    rngs = {group: rng_for(seed, f"adaptive {group[0]} {'null' if group[1] else 'own'} {number}") for group in groups}
    return {group for group, of_group in groups.items() if len(of_group) > 1 and _width_of_mean(of_group, rngs[group]) < width}


def _width_of_mean(known: Sequence[Estimate], rng: np.random.Generator) -> float:
    """Width of the mean's 95 % interval: the wider of the bootstrap over latents, and what their own intervals combine to.

    A few latents that agree by chance have a bootstrap without width.
    """
    values = np.array([one.value for one in known])
    below, above = (np.array([getattr(one, end) for one in known]) - values for end in ("low", "high"))
    own = (np.linalg.norm(below) + np.linalg.norm(above)) / len(values)
    return max(float(own), _width(summary(values, rng)))
