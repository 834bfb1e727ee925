"""Intervention: how much more probable an explanation is after what the subject says with the latent steered (Paulo et al. 2025).

For latents that are better described by what they cause. A base model reads a passage and names what it turns to; only the
explanation's own tokens count. A score is one of a KL and a mode, which stand in its detail.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from latentry.metrics import LatentScore, mean_score
from latentry.prompts import neutral
from latentry.records import Judgment, Message, Purpose, Reply, Request, Status
from latentry.registry import ScorerConfig
from latentry.scorers.base import Item, ScorerInputs
from latentry.scorers.passages import Mode, Passage, Steered

SENTENCE = "At its end the passage turns to:"
"""What the explanation follows, on a line of its own."""
WORKED = (
    (
        "The committee met again in the spring to settle what had been left open, and its chairman hoisted the sails, the anchor and the",
        "ships and sailing",
    ),
    ("When the letter came she read it twice and put it away in 1914, 1915, 1916 and again in 1917", "years written in digits"),
    ("He said that the price of bread had gone up once more, and and and so and", 'the word "and"'),
    ("We walked along the river until the rain began, and by then the court, the judge and both lawyers", "courts and the law"),
)
"""Passages and what they turn to."""

_CLEAN = " | clean: "
"""In a judgment's detail: before it, what holds for the whole score; after it, the clean continuation."""


class Config(ScorerConfig):
    """How latents are steered, and who reads what comes of it."""

    client: str
    """A base model, by its name under `clients`: one in process with `chat: false`, or an endpoint that grades given texts."""
    contrast: str = ""
    """None: nothing is set against activating examples."""
    kl: Annotated[float, Field(gt=0)] = 1.0
    """Mean KL(clean || steered) at the last prompt token, in nats, that the strength is sought for: 0.1, 0.33, 1 and 3 are usual."""
    mode: Mode = "steer"
    """`ablate` takes the latent's own contribution away instead, and counts how much more probable the explanation is without that;
    it has no strength, and `kl` is not used."""

    @property
    def runs_subject(self) -> bool:
        """It does."""
        return True

    @property
    def steers(self) -> bool:
        """It does."""
        return True


def build(config: Config, inputs: ScorerInputs) -> "Intervention":
    """The scorer."""
    return Intervention(config, inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One passage under one explanation, and the places of its two requests."""

    item: Item
    steered: Steered
    passage: Passage
    changed: Request
    clean: Request


class Intervention:
    """Steers each latent once, and reads its passages under every explanation."""

    def __init__(self, config: Config, inputs: ScorerInputs) -> None:
        self.contrast = config.contrast
        self._config, self._ask, self._steer = config, inputs.ask(config.client), inputs.steered

    def judge(self, items: Sequence[Item]) -> list[Judgment]:
        """One judgment per item and prompt; one alone where there is nothing to read, and none of a latent without prompts."""
        latents = list(dict.fromkeys(item.latent for item in items))
        steered = dict(self._steer(latents, self._config.kl, self._config.mode)) if latents else {}
        unread = [one for item in items if item.latent in steered and (one := self._unread(item, steered[item.latent]))]
        asked = [one for item in items if item.latent in steered and item.text.strip() for one in self._asked(item, steered[item.latent])]
        replies = self._replies([request for one in asked for request in (one.changed, one.clean)])
        return [self._judgment(one, replies[one.changed], replies[one.clean]) for one in asked] + unread

    def score(self, item: Item, judgments: Sequence[Judgment], rng: np.random.Generator) -> LatentScore:
        """The mean over prompts in nats; its detail says at which KL and strength, and how long the explanation is."""
        if not judgments:
            return replace(mean_score("nats", judgments, rng), detail=f"latent {item.latent} has no steering prompts to score on")
        found = mean_score("nats", judgments, rng)
        said = dict.fromkeys(
            one.detail.partition(_CLEAN)[0] for one in judgments if one.status in (Status.OK, Status.KL_UNREACHED, Status.UNSUPPORTED)
        )
        return replace(found, detail="; ".join(part for part in (*said, found.detail) if part))

    def _asked(self, item: Item, steered: Steered) -> list[_Asked]:
        return [
            _Asked(
                item=item,
                steered=steered,
                passage=passage,
                changed=request(passage.prompt + passage.changed, item.text),
                clean=request(passage.prompt + passage.clean, item.text),
            )
            for passage in steered.of(Purpose.SCORE)[: self._config.max_examples]
        ]

    def _replies(self, requests: Sequence[Request]) -> Mapping[Request, Reply]:
        distinct = list(dict.fromkeys(requests))
        return dict(zip(distinct, self._ask(distinct), strict=True)) if distinct else {}

    def _judgment(self, one: _Asked, changed: Reply, clean: Reply) -> Judgment:
        nats = nats_of(clean, changed) if self._config.mode == "ablate" else nats_of(changed, clean)
        failed = next((reply for reply in (changed, clean) if reply.status is not Status.OK), None)
        if failed is not None:
            status, detail = failed.status, failed.detail
        elif nats is None:
            status, detail = Status.PARSE_ERROR, "no log-probabilities of the explanation's tokens"
        else:
            status, detail = Status.OK, f"{one.steered.change}, explanation of {len(changed.continuation)} tokens"
        detail = f"{detail}{_CLEAN}{one.passage.clean}"
        return _made(one.item, one.passage.example_id, status, detail, changed.key, nats, one.passage.changed)

    def _unread(self, item: Item, steered: Steered) -> Judgment | None:
        """The judgment of an item that there is nothing to read of; None where there is."""
        if not steered.reached:
            status, detail = Status.KL_UNREACHED, f"{steered.change} is nearest to the {self._config.kl:g} nats asked for"
        elif not item.text.strip():
            status, detail = Status.UNSUPPORTED, "the explanation is empty: it has no tokens that could grow more probable"
        else:
            return None
        return _made(item, f"{item.latent}/steering", status, detail, "", None, None)


def request(passage: str, explanation: str) -> Request:
    """Worked passages with what they turn to, then the passage; what is wanted are the log-probabilities of the explanation."""
    turns = [turn for text, answer in WORKED for turn in (_turn(text), Message(role="assistant", content=answer))]
    return Request(messages=(*turns, _turn(passage)), max_tokens=1, continuation=neutral(explanation))


def nats_of(passage: Reply, other: Reply) -> float | None:
    """How much more log-probability the explanation's tokens have after the first passage; None where a reply gives none."""
    fine = passage.status is Status.OK is other.status and len(passage.continuation) == len(other.continuation) > 0
    return sum(passage.continuation) - sum(other.continuation) if fine else None


def _turn(passage: str) -> Message:
    return Message(role="user", content=f"Passage: {neutral(passage)}\n{SENTENCE}")


def _made(item: Item, example_id: str, status: Status, detail: str, key: str, value: float | None, text: str | None) -> Judgment:
    return Judgment(
        latent=item.latent,
        explainer=item.explainer,
        example_id=example_id,
        null=item.null,
        is_activating=True,
        says_activating=None,
        confidence=None,
        status=status,
        detail=detail,
        reply_key=key or None,
        value=value,
        text=text,
    )
