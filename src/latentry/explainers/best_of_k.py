"""Best of k: several explanations by another explainer, of which the one is kept that a judge finds truest.

They are judged by detection on a validation part of the explain split, which the inner explainer does not see. Always
true: where a draw or a judgment failed for the moment nothing is chosen, so that `latentry retry` asks again.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field, field_validator

from latentry.clients.base import Ask
from latentry.explainers.base import Explainer, LatentExamples, SaeFacts, activating, silent
from latentry.metrics import auroc, balanced_accuracy
from latentry.records import Example, Explanation, Judgment, Message, Reply, Request, Status
from latentry.registry import ExplainerConfig, kinds, nearest, variant
from latentry.scorers.base import Item
from latentry.scorers.detection import Config as DetectionConfig
from latentry.scorers.detection import Detection

VALIDATION = "validation"
"""The contrast that validation windows are judged under."""


class Config(ExplainerConfig):
    """Whose explanations are drawn and who chooses."""

    client: str
    """The explainer model, by its name under `clients`."""
    judge: str | None = None
    """Who judges the explanations, by its name under `clients`; None: the explainer model itself."""
    of: str = "default"
    """Kind of the explainer that is asked k times, with its own defaults."""
    k: Annotated[int, Field(ge=2)] = 5
    """Explanations drawn of each latent."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 0.8
    """At which they are drawn; the first one is drawn at 0."""
    n_validation: Annotated[int, Field(ge=2)] = 8
    """Windows of each kind, activating and contrast, kept from the inner explainer to judge by: the last by rank."""

    @field_validator("of")
    @classmethod
    def _asks_a_model(cls, of: str) -> str:
        asking = [
            kind for kind in kinds("explainers") if kind != "best_of_k" and "client" in variant("explainers", kind).Config.model_fields
        ]
        if of not in asking:
            raise ValueError(f"is no explainer that asks a model{nearest(of, asking)}")
        return of


def build(config: Config, name: str, seed: int, ask: Callable[[str], Ask], sae: SaeFacts) -> "BestOfK":
    """The explainer."""
    inner = variant("explainers", config.of)
    inner_config = inner.Config(kind=config.of, client=config.client)
    drawers = [
        inner.build(inner_config, name, seed, lambda client, sample=sample: _Sampled(ask(client), sample, config.temperature), sae)
        for sample in range(config.k)
    ]
    judge_config = DetectionConfig(kind="detection", client=config.judge or config.client, contrast=VALIDATION)
    return BestOfK(config, drawers, Detection(judge_config, seed, ask(judge_config.client)))


class BestOfK:
    """Draws k explanations of each latent, judges them, and keeps the best; of equally good ones, the first drawn."""

    def __init__(self, config: Config, drawers: Sequence[Explainer], judge: Detection) -> None:
        self._n, self._drawers, self._judge = config.n_validation, drawers, judge

    def explain(self, latents: Sequence[LatentExamples]) -> list[Explanation]:
        """One explanation per latent, with the status of what failed where the choice could not be made.

        Where none of the k can be read, or there are no windows to judge by, the first stands.
        """
        shown = [dataclasses.replace(latent, examples=tuple(self._parts(latent)[0])) for latent in latents]
        drawn = [drawer.explain(shown) for drawer in self._drawers]
        draws = list(zip(*drawn, strict=True)) if latents else []
        of_latent = [_distinct(explanations) for explanations in draws]
        judged = self._judged(latents, of_latent)
        return [_chosen(of_one, texts, judged) for of_one, texts in zip(draws, of_latent, strict=True)]

    def _parts(self, latent: LatentExamples) -> tuple[list[Example], list[Example]]:
        """What the inner explainer sees, and what its explanations are judged on: never more than half of either kind."""
        seen, kept = [], []
        for examples in (activating(latent), silent(latent)):
            n = min(self._n, len(examples) // 2)
            seen += examples[: len(examples) - n]
            kept += examples[len(examples) - n :]
        return seen, [dataclasses.replace(one, contrast=VALIDATION) if not any(one.activations) else one for one in kept]

    def _judged(self, latents: Sequence[LatentExamples], of_latent: Sequence[Sequence[Explanation]]) -> "_Judged":
        """Judgments by latent and text; only where there is a choice."""
        items = [
            Item(latent=latent.latent, explainer=str(place), null=False, text=one.text, examples=tuple(self._parts(latent)[1]))
            for latent, explanations in zip(latents, of_latent, strict=True)
            if len([one for one in explanations if one.text is not None]) > 1
            for place, one in enumerate(explanations)
            if one.text is not None
        ]
        judged: dict[tuple[int, str], list[Judgment]] = {}
        for judgment in self._judge.judge(items) if items else []:
            judged.setdefault((judgment.latent, judgment.explainer), []).append(judgment)
        return {(item.latent, item.text): judged.get((item.latent, item.explainer), []) for item in items}


class _Sampled:
    """Asks for one of several replies to the same question."""

    def __init__(self, ask: Ask, sample: int, temperature: float) -> None:
        self._ask, self._sample, self._temperature = ask, sample, temperature if sample else 0.0

    def __call__(self, requests: Sequence[Request], /) -> list[Reply]:
        return self._ask([dataclasses.replace(one, temperature=self._temperature, sample=self._sample) for one in requests])

    def fits(self, messages: Sequence[Message], max_tokens: int, /) -> bool:
        return self._ask.fits(messages, max_tokens)

    def gradable(self, texts: Sequence[str], /) -> tuple[str, ...]:
        return self._ask.gradable(texts)


_Judged = Mapping[tuple[int, str], Sequence[Judgment]]


def _distinct(explanations: Sequence[Explanation]) -> list[Explanation]:
    """Readable ones of different text; where there is none, the first as it is."""
    texts: dict[str, Explanation] = {}
    for one in explanations:
        if one.text is not None:
            texts.setdefault(one.text, one)
    return list(texts.values()) or list(explanations[:1])


def _chosen(draws: Sequence[Explanation], texts: Sequence[Explanation], judged: _Judged) -> Explanation:
    """The best text of one latent; without one where a call failed for the moment, or every judgment for good."""
    of_text = [judged.get((one.latent, one.text or ""), ()) for one in texts]
    lost = [one for one in draws if one.status is Status.CLIENT_ERROR]
    if lost:
        return _unchosen(draws[0], Status.CLIENT_ERROR, f"{len(lost)} of {len(draws)} draws failed: {lost[0].detail}")
    judgments = [one for judgments in of_text for one in judgments]
    failed = [one for one in judgments if one.status is not Status.OK]
    scores = [score(judgments) for judgments in of_text]
    passing = [one for one in failed if one.status is Status.CLIENT_ERROR]
    if passing or (failed and not any(one is not None for one in scores)):
        first = (passing or failed)[0]
        return _unchosen(draws[0], first.status, f"{len(failed)} of {len(judgments)} judgments to choose by failed: {first.detail}")
    best, _ = max(zip(texts, scores, strict=True), key=lambda scored: _or_last(scored[1]))
    return dataclasses.replace(best, detail="; ".join(_notes(best, draws, len(failed), len(judgments))))


def _or_last(score: float | None) -> float:
    """A score to order by: what could not be judged comes after all that could."""
    return -1.0 if score is None else score


def _notes(best: Explanation, draws: Sequence[Explanation], n_failed: int, n_judgments: int) -> Iterator[str]:
    """What the choice was made without."""
    if best.detail:
        yield best.detail
    unreadable = Counter(one.status for one in draws if one.text is None)
    if best.text is not None and unreadable:
        counts = ", ".join(f"{n} {status}" for status, n in unreadable.most_common())
        yield f"{unreadable.total()} of {len(draws)} draws brought no text ({counts})"
    if n_failed:
        yield f"{n_failed} of {n_judgments} judgments to choose by failed"


def _unchosen(draw: Explanation, status: Status, detail: str) -> Explanation:
    return dataclasses.replace(draw, text=None, status=status, detail=detail)


def score(judgments: Sequence[Judgment]) -> float | None:
    """AUROC of graded answers, else balanced accuracy; None where a class has no judgment that succeeded."""
    fine = [one for one in judgments if one.status is Status.OK]
    truth = np.array([one.is_activating for one in fine], bool)
    if truth.all() or not truth.any():
        return None
    if all(one.confidence is not None for one in fine):
        return auroc(np.array([one.confidence for one in fine], float), truth)
    says = np.array([bool(one.says_activating) for one in fine])
    return balanced_accuracy(float(says[truth].mean()), float((~says[~truth]).mean()))
