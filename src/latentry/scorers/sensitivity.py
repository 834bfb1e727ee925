"""Sensitivity: texts are written from the explanation, and the latent should fire on them.

Its null counts the same latent on texts written from another latent's explanation, which are the ones that latent is scored
on: a dense latent fires on anything.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from latentry.metrics import LatentScore, mean_score
from latentry.prompts import neutral
from latentry.records import Judgment, Message, Reply, Request, Status
from latentry.registry import ScorerConfig
from latentry.scorers.base import Item, ScorerInputs

SYSTEM = (
    "You write short passages of text. You are given a description of something that may occur in a text. Write one passage of two or"
    " three sentences in which it clearly occurs, in whatever setting you like. Begin at once with the passage, do not mention the"
    " description, and write nothing after the passage."
)
WORKED = (
    (
        "names of musical instruments",
        "Her violin lay where she had left it, beside the old piano. Outside somebody practised the same four bars on a trumpet, over and over.",
    ),
    (
        'the word "although"',
        "Although the road was dry, the carriage made slow progress, and although nobody complained, everyone was tired.",
    ),
    (
        "years written in digits",
        "The bridge was begun in 1871 and stood unfinished until 1883. A flood took its middle arch in 1902.",
    ),
)
"""Descriptions and a passage for each."""
_TOKENS_ASKED = 2
"""Tokens that a reply may have for each that is read: the judge's are not the subject's."""


class Config(ScorerConfig):
    """Who writes, and how much."""

    client: str
    """Who writes the texts, by its name under `clients`."""
    contrast: str = ""
    """None: nothing is set against activating examples."""
    n_texts: Annotated[int, Field(ge=1)] = 10
    """Texts written from one explanation."""
    n_tokens: Annotated[int, Field(ge=1)] = 32
    """Tokens of a text that are read, by the subject's tokenizer."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 1.0
    """At which texts are drawn: at 0 all would be one."""

    @property
    def runs_subject(self) -> bool:
        """It does."""
        return True


def build(config: Config, inputs: ScorerInputs) -> "Sensitivity":
    """The scorer."""
    return Sensitivity(config, inputs)


class Sensitivity:
    """Has texts written from every explanation, and looks at what fires in them."""

    def __init__(self, config: Config, inputs: ScorerInputs) -> None:
        self.contrast = config.contrast
        self._config, self._ask, self._fired = config, inputs.ask(config.client), inputs.fired

    def judge(self, items: Sequence[Item]) -> list[Judgment]:
        """One judgment per item and text, of value 1 where the latent fires and 0 where it does not."""
        requests = {item.text: self._requests(item.text) for item in items}
        replies = self._written(requests)
        texts = list(dict.fromkeys(text for reply in replies.values() if (text := _text_of(reply))))
        fired = dict(zip(texts, self._fired(texts, self._config.n_tokens), strict=True)) if texts else {}
        return [_judgment(item, number, replies[request], fired) for item in items for number, request in enumerate(requests[item.text])]

    def score(self, item: Item, judgments: Sequence[Judgment], rng: np.random.Generator) -> LatentScore:  # noqa: ARG002
        """The share of texts in which the latent fires, with Wilson's interval."""
        return mean_score("fired_share", judgments, rng)

    def _requests(self, explanation: str) -> list[Request]:
        return [
            Request(
                messages=tuple(prompt(explanation)),
                max_tokens=_TOKENS_ASKED * self._config.n_tokens,
                temperature=self._config.temperature,
                sample=sample,
            )
            for sample in range(self._config.n_texts)
        ]

    def _written(self, requests: Mapping[str, Sequence[Request]]) -> dict[Request, Reply]:
        asked = list(dict.fromkeys(request for of_text in requests.values() for request in of_text))
        return dict(zip(asked, self._ask(asked), strict=True)) if asked else {}


def prompt(explanation: str) -> list[Message]:
    """Instructions, worked passages, and the explanation."""
    turns = [Message(role="system", content=SYSTEM)]
    for description, passage in WORKED:
        turns += [Message(role="user", content=f"Description: {description}"), Message(role="assistant", content=passage)]
    return [*turns, Message(role="user", content=f"Description: {neutral(explanation)}")]


def _text_of(reply: Reply) -> str:
    """What was written; empty where nothing was. A reply cut at its limit is long enough."""
    return reply.text.strip() if reply.status in (Status.OK, Status.TRUNCATED) else ""


def _judgment(item: Item, number: int, reply: Reply, fired: Mapping[str, frozenset[int]]) -> Judgment:
    text = _text_of(reply)
    status, detail = Status.OK, ""
    if not text:
        written = reply.status in (Status.OK, Status.TRUNCATED)
        status, detail = (Status.PARSE_ERROR, "an empty text") if written else (reply.status, reply.detail)
    return Judgment(
        latent=item.latent,
        explainer=item.explainer,
        example_id=f"{item.latent}/text/{number}",
        null=item.null,
        is_activating=True,
        says_activating=None,
        confidence=None,
        status=status,
        detail=detail,
        reply_key=reply.key or None,
        value=float(item.latent in fired[text]) if text else None,
        text=text or None,
    )
