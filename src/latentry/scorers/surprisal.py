"""Surprisal: how much likelier a base language model finds a window after the explanation than after one that says nothing (Paulo et al. 2025).

v = log p(window | explanation) - log p(window | `NEUTRAL`), over all tokens of the window, the first included. The model is
best asked without a chat template (`clients.*.chat: false`). Always true: both passes read the same text after prompts that
differ in the explanation alone.
"""

from collections.abc import Sequence

import numpy as np

from latentry.clients.base import Ask
from latentry.metrics import LatentScore
from latentry.prompts import neutral
from latentry.records import Example, Judgment, Kind, Message, Reply, Request, Status
from latentry.registry import ScorerConfig
from latentry.scorers.asking import Case, judgment
from latentry.scorers.base import Item, ScorerInputs, used_examples
from latentry.scorers.told_apart import told_apart

NEUTRAL = "any text"
"""Stands in the explanation's place for the second pass."""
SHOTS = (
    ("names of musical instruments", "were late, and she carried her violin up the icy steps while the"),
    ("numbers written in digits", "the bakery sold 36 loaves and closed at 11:40 on"),
    ('words: "kettle", "stove"', "of soup, she said, and wiped the stove with a cloth before it"),
)
"""Description and a text that fits it. The same for every request, so that a client computes them once."""


class Config(ScorerConfig):
    """Which model reads."""

    client: str
    """A base language model, by its name under `clients`; one that gives the log-probabilities of a given text."""
    contrast: str = "random"
    """Entry of `examples.contrasts` that the activating windows are told from."""


def build(config: Config, inputs: ScorerInputs) -> "Surprisal":
    """The scorer."""
    return Surprisal(config, inputs.ask(config.client))


class Surprisal:
    """Grades every window by how much the explanation lets the model expect it."""

    def __init__(self, config: Config, ask: Ask) -> None:
        self.contrast = config.contrast
        self._max_examples, self._ask = config.max_examples, ask

    def judge(self, items: Sequence[Item]) -> list[Judgment]:
        """One judgment per item and window used; confidence is v, in nats, and there is no yes or no."""
        pairs = [(item, example) for item in items for example in used_examples(item, self.contrast, self._max_examples)]
        told = [request(item.text, example) for item, example in pairs]
        # One call for both passes: a window's neutral one is the same request under every explanation, and is answered once.
        replies = self._ask([*told, *(request(NEUTRAL, example) for _, example in pairs)])
        return [_judgment(*pair, *both) for pair, both in zip(pairs, zip(replies, replies[len(pairs) :], strict=False), strict=True)]

    def score(self, item: Item, judgments: Sequence[Judgment], rng: np.random.Generator) -> LatentScore:
        """How well v tells activating windows from contrasts."""
        return told_apart(item, judgments, rng, contrast=self.contrast)


def request(text: str, example: Example) -> Request:
    """What a model is to expect of one window after an explanation."""
    return Request(messages=tuple(prompt(text)), max_tokens=1, continuation=neutral(example.text))


def prompt(text: str) -> list[Message]:
    """Worked turns, then the explanation; the window follows."""
    turns = []
    for description, shown in SHOTS:
        turns += [Message(role="user", content=_heading(description)), Message(role="assistant", content=shown)]
    return [*turns, Message(role="user", content=_heading(neutral(text)))]


def _heading(description: str) -> str:
    return f"A text in which this occurs: {description}"


def _judgment(item: Item, example: Example, told: Reply, plain: Reply) -> Judgment:
    case = Case(example_id=example.example_id, is_activating=example.kind is Kind.ACTIVATING, shown=example.text)
    for reply in (told, plain):
        if reply.status is not Status.OK:
            return judgment(item, case, told, status=reply.status, detail=reply.detail)
    if not told.continuation or len(told.continuation) != len(plain.continuation):
        said = f"log-probabilities of {len(told.continuation)} tokens after the explanation, of {len(plain.continuation)} without it"
        return judgment(item, case, told, status=Status.PARSE_ERROR, detail=said)
    return judgment(item, case, told, confidence=sum(told.continuation) - sum(plain.continuation))
