"""What every scorer is given and gives: items (one explanation with held-out examples) in, judgments and scores out.

Also the null: each explanation judged on another latent's examples. Numbers are made of judgments by `metrics.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from latentry.clients.base import Ask
from latentry.metrics import LatentScore
from latentry.randomness import rng_for
from latentry.records import NO_EXPLAINER, Example, Explanation, Judgment, Kind, Split, Status
from latentry.scorers.matching import completed
from latentry.scorers.passages import Mode, Steered

if TYPE_CHECKING:
    from latentry.embeddings import Embedder

WRONG_POSITION = "wrong-position"
"""The contrast that fuzzing makes itself, of activating windows with silent tokens marked."""

_TRIES = 50
"""Random partners looked at for a swap before all are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One explanation and the held-out examples it is judged on."""

    latent: int
    """Whose examples they are."""
    explainer: str
    null: bool
    """True when the text is another latent's explanation."""
    text: str
    """The explanation judged."""
    examples: tuple[Example, ...]
    """Activating ones and those of every contrast, each kind in the order of `rank`."""
    partner: int | None = None
    """Whose explanation the text is; None when it is the latent's own."""
    window_fraction: float | None = None
    """Share of all windows of the corpus in which the latent fires; None where it is not known."""
    class_ratio: tuple[int, int] = (1, 1)
    """Activating examples and contrasts that it was designed to have: see `ScorerConfig.class_ratio`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerInputs:
    """All that a scorer may be built from. What is behind a function is loaded when it is called, and not before."""

    seed: int
    ask: Callable[[str], Ask]
    """A client by its name under `clients`."""
    embedder: Callable[[str], Embedder]
    """An embedding model by its name under `models`."""
    explain_split: Callable[[], Mapping[int, Sequence[Example]]]
    """Every latent's windows that explainers saw, for scorers that need no explanation."""
    steered: Callable[[Sequence[int], float, Mode], Iterable[tuple[int, Steered]]]
    """What the subject says with each of some latents steered to a KL, or ablated: those that have prompts, one after another."""
    fired: Callable[[Sequence[str], int], Sequence[frozenset[int]]]
    """The latents that fire at an unmasked token of each text, of which the first so many tokens are read."""


class Scorer(Protocol):
    """One way to judge explanations, or the latents themselves."""

    contrast: str
    """The entry of `examples.contrasts` it uses, or `wrong-position`; empty where it sets nothing against activating examples."""

    def judge(self, items: Sequence[Item]) -> list[Judgment]:
        """One judgment per item and held-out example used (or prompt, trial, text), failed ones included."""
        ...

    def score(self, item: Item, judgments: Sequence[Judgment], rng: np.random.Generator) -> LatentScore:
        """The score of one item from its judgments, in any order."""
        ...


def activating(item: Item) -> list[Example]:
    """The item's activating examples, by rank."""
    return sorted((example for example in item.examples if example.kind is Kind.ACTIVATING), key=lambda example: example.rank)


def contrasts(item: Item, contrast: str) -> list[Example]:
    """The item's examples of one contrast, by rank."""
    chosen = (example for example in item.examples if example.kind is Kind.CONTRAST and example.contrast == contrast)
    return sorted(chosen, key=lambda example: example.rank)


def used_examples(item: Item, contrast: str, max_examples: int | None) -> list[Example]:
    """The first `max_examples` of each kind."""
    return activating(item)[:max_examples] + contrasts(item, contrast)[:max_examples]


def derangement(texts: Mapping[int, str], *, seed: int, excluded: Mapping[int, Collection[int]] | None = None) -> dict[int, int]:
    """For each latent another one, whose explanation it is judged under; no two have the same partner.

    A partner never has an equal text, nor is it among the latent's `excluded` (those that supplied its contrasts). A
    latent for which no partner is left is missing in the answer: all of them, where there is one latent or all texts
    are equal.
    """
    latents = sorted(texts)
    barred = {latent: set(excluded.get(latent, ())) for latent in latents} if excluded else {}
    order = [latents[i] for i in rng_for(seed, "null").permutation(len(latents))]
    partner = dict(zip(order, order[1:] + order[:1], strict=True))

    def fits(latent: int, other: int) -> bool:
        return latent != other and _plain(texts[latent]) != _plain(texts[other]) and other not in barred.get(latent, ())

    for latent in order:
        if fits(latent, partner[latent]):
            continue
        for other in _candidates(latents, rng_for(seed, "null partner", latent)):
            if fits(latent, partner[other]) and fits(other, partner[latent]):
                partner[latent], partner[other] = partner[other], partner[latent]
                break
    found = {latent: partner[latent] for latent in latents if fits(latent, partner[latent])}
    return found if len(found) == len(latents) else _completed(found, texts, barred, seed)


def _completed(found: Mapping[int, int], texts: Mapping[int, str], barred: Mapping[int, Collection[int]], seed: int) -> dict[int, int]:
    """Partners for those too whom only a chain of exchanges gives one."""
    latents = sorted(texts)
    place = {latent: i for i, latent in enumerate(latents)}
    _, text = np.unique([_plain(texts[latent]) for latent in latents], return_inverse=True)

    def allowed(i: int) -> np.ndarray:
        others = text != text[i]
        others[[place[other] for other in barred.get(latents[i], ()) if other in place]] = False
        return others

    paired = completed({place[latent]: place[other] for latent, other in found.items()}, len(latents), allowed, seed)
    return {latents[i]: latents[paired[i]] for i in sorted(paired)}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _candidates(latents: Sequence[int], rng: np.random.Generator) -> list[int]:
    """A few at random first, so that in a large SAE the search ends soon; then all."""
    return [latents[i] for i in rng.integers(len(latents), size=_TRIES)] + list(latents)


def items_for(
    explanations: Sequence[Explanation],
    held_out: Mapping[int, Sequence[Example]],
    *,
    ranked: Sequence[int],
    seed: int,
    null_latents: int | None = None,
    excluded: Mapping[int, Collection[int]] | None = None,
    window_fractions: Mapping[int, float] | None = None,
    class_ratio: tuple[int, int] = (1, 1),
) -> list[Item]:
    """What there is to judge: every readable explanation on its latent's examples, then the nulls.

    `ranked` holds the latents in the order of the sample: others are left out, and the null is judged on the first
    `null_latents` of those with a partner (None: all). An explanation with another status than OK gives no item; nor
    does a latent without held-out examples.
    """
    items: list[Item] = []
    for explainer in sorted({explanation.explainer for explanation in explanations}):
        texts = {
            explanation.latent: explanation.text
            for explanation in explanations
            if explanation.explainer == explainer and explanation.text is not None and explanation.status is Status.OK
        }
        known = [latent for latent in ranked if latent in texts and held_out.get(latent)]
        partner = derangement({latent: texts[latent] for latent in known}, seed=seed, excluded=excluded)
        fractions = window_fractions or {}
        items += [_item(latent, explainer, texts[latent], held_out[latent], None, fractions.get(latent), class_ratio) for latent in known]
        for latent in [latent for latent in known if latent in partner][:null_latents]:
            text, fraction = texts[partner[latent]], fractions.get(latent)
            items.append(_item(latent, explainer, text, held_out[latent], partner[latent], fraction, class_ratio))
    return items


def unexplained_items(
    held_out: Mapping[int, Sequence[Example]],
    *,
    ranked: Sequence[int],
    seed: int,
    null_latents: int | None = None,
    class_ratio: tuple[int, int] = (1, 1),
) -> list[Item]:
    """What there is to judge for a scorer that reads no explanation: the latents, then nulls (another latent as `partner`)."""
    known = [latent for latent in ranked if held_out.get(latent)]
    partner = derangement({latent: str(latent) for latent in known}, seed=seed)
    items = [_item(latent, NO_EXPLAINER, "", held_out[latent], None, None, class_ratio) for latent in known]
    nulls = [latent for latent in known if latent in partner][:null_latents]
    return items + [_item(latent, NO_EXPLAINER, "", held_out[latent], partner[latent], None, class_ratio) for latent in nulls]


def suppliers(examples: Mapping[int, Sequence[Example]], contrast: str) -> dict[int, set[int]]:
    """For each latent, those whose windows are its examples of one contrast: no partner for its null."""
    return {
        latent: {example.supplier for example in of_latent if example.contrast == contrast and example.supplier is not None}
        for latent, of_latent in examples.items()
    }


def _item(
    latent: int,
    explainer: str,
    text: str,
    examples: Sequence[Example],
    partner: int | None,
    window_fraction: float | None,
    class_ratio: tuple[int, int],
) -> Item:
    seen = [example for example in examples if example.split is not Split.HELD_OUT]
    if seen:
        raise ValueError(f"latent {latent}: example {seen[0].example_id} is of the explain split; scorers are given held-out ones only")
    ordered = tuple(sorted(examples, key=lambda example: (example.kind, example.contrast, example.rank)))
    return Item(
        latent=latent,
        explainer=explainer,
        null=partner is not None,
        text=text,
        examples=ordered,
        partner=partner,
        window_fraction=window_fraction,
        class_ratio=class_ratio,
    )
