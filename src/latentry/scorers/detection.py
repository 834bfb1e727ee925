"""Detection: the judge sees unmarked held-out windows and says which fit the explanation (Paulo et al. 2025)."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from latentry.clients.base import Ask
from latentry.metrics import LatentScore
from latentry.prompts import neutral
from latentry.records import Judgment, Kind, Message
from latentry.registry import ScorerConfig
from latentry.scorers.adaptive import Adaptive, judged_by_rounds, marked_if_stopped
from latentry.scorers.asking import Case, judged_in_lists, judged_singly
from latentry.scorers.base import Item, ScorerInputs, used_examples
from latentry.scorers.told_apart import told_apart

SYSTEM = (
    "You check descriptions of text patterns. You are given a description and a short piece of text. Answer Yes if"
    " something in the text matches the description, and No if nothing in it does. Most texts share a style; only the"
    " described pattern counts."
)
SHOTS = (
    ("names of musical instruments", "were late, and she carried her violin up the icy steps while the", "Yes"),
    ("names of musical instruments", "were late, and she carried her suitcase up the icy steps while the", "No"),
    ("numbers written in digits", "the bakery sold loaves by the dozen and closed before noon on", "No"),
    ("numbers written in digits", "the bakery sold 36 loaves and closed at 11:40 on", "Yes"),
)
"""Description, text, answer. The same for every request, so that a client computes them once. A shot with a list of words
as its description made the 1.5B judge of the example say yes to 81 % of 16 windows, half of them right; these, to 56 %."""

LIST_SYSTEM = (
    "You check descriptions of text patterns. You are given a description and several numbered texts. For each text"
    " decide whether something in it matches the description. Reply with one list and nothing else: 1 for a text that"
    " matches, 0 for one that does not, in the order of the texts, such as [0, 1, 1]."
)
LIST_SHOTS = (
    (
        "names of musical instruments",
        (
            "were late, and she carried her violin up the icy steps while the",
            "were late, and she carried her suitcase up the icy steps while the",
            "a cello stood unplayed in the hall of the house by",
        ),
        "[1, 0, 1]",
    ),
    (
        'words: "kettle", "stove"',
        ("of soup, she said, and wiped the ladder with a cloth before it", "of soup, she said, and wiped the stove with a cloth before it"),
        "[0, 1]",
    ),
)


class Config(ScorerConfig):
    """How detection asks."""

    client: str
    """The judge, by its name under `clients`."""
    contrast: str = "random"
    """Entry of `examples.contrasts` that the activating windows are told from."""
    ask: Literal["single", "list"] = "single"
    """`single`: one window per prompt, graded by log-probability (small local judges); `list`: several, answered 0 or 1 (large ones)."""
    examples_per_prompt: Annotated[int, Field(ge=1)] = 5
    """Windows per prompt, of `list` only. More is cheaper, and lets windows inform each other."""
    max_tokens: Annotated[int, Field(ge=1)] = 200
    """Largest reply, in tokens, of `list` only."""
    adaptive: Adaptive | None = None
    """Stop judging a latent once its score is known closely enough, such as `{max_width: 0.2}`; none: judge every window."""

    @property
    def is_adaptive(self) -> bool:
        """Whether it stops early."""
        return self.adaptive is not None


def build(config: Config, inputs: ScorerInputs) -> "Detection":
    """The scorer."""
    return Detection(config, inputs.seed, inputs.ask(config.client))


class Detection:
    """Asks the judge about every window of every item."""

    def __init__(self, config: Config, seed: int, ask: Ask) -> None:
        self.contrast = config.contrast
        self._config, self._seed, self._ask = config, seed, ask

    def judge(self, items: Sequence[Item]) -> list[Judgment]:
        """One judgment per item and window used."""
        cases = [self._cases(item) for item in items]
        return judged_by_rounds(items, cases, self._judge, self._config.adaptive, self._seed)

    def _judge(self, items: Sequence[Item], cases: Sequence[Sequence[Case]], number: int) -> list[Judgment]:
        if self._config.ask == "single":
            return judged_singly(self._ask, items, cases, single_prompt)
        return judged_in_lists(
            self._ask,
            items,
            cases,
            list_prompt,
            examples_per_prompt=self._config.examples_per_prompt,
            max_tokens=self._config.max_tokens,
            seed=self._seed,
            part=number,
        )

    def _cases(self, item: Item) -> list[Case]:
        return [
            Case(example_id=example.example_id, is_activating=example.kind is Kind.ACTIVATING, shown=neutral(example.text))
            for example in used_examples(item, self.contrast, self._config.max_examples)
        ]

    def score(self, item: Item, judgments: Sequence[Judgment], rng: np.random.Generator) -> LatentScore:
        """How well the answers tell activating windows from contrasts."""
        by_prompt, adaptive = self._config.ask == "list", self._config.is_adaptive
        score = told_apart(item, judgments, rng, contrast=self.contrast, by_prompt=by_prompt, adaptive=adaptive)
        return marked_if_stopped(score, judgments, self._cases(item)) if adaptive else score


def single_prompt(item: Item, case: Case) -> list[Message]:
    """Worked turns, then the explanation, then one window."""
    turns = [Message(role="system", content=SYSTEM)]
    for description, text, answer in SHOTS:
        turns += [Message(role="user", content=_question(description, text)), Message(role="assistant", content=answer)]
    return [*turns, Message(role="user", content=_question(neutral(item.text), case.shown))]


def _question(description: str, text: str) -> str:
    return f"Description: {description}\nText: {text}\nDoes the text match the description? Answer Yes or No."


def list_prompt(item: Item, cases: Sequence[Case]) -> list[Message]:
    """Worked turns, then the explanation, then the windows, numbered from 1."""
    turns = [Message(role="system", content=LIST_SYSTEM)]
    for description, texts, answer in LIST_SHOTS:
        turns += [Message(role="user", content=_list_question(description, texts)), Message(role="assistant", content=answer)]
    return [*turns, Message(role="user", content=_list_question(neutral(item.text), [case.shown for case in cases]))]


def _list_question(description: str, texts: Sequence[str]) -> str:
    numbered = "\n".join(f"{number}. {text}" for number, text in enumerate(texts, start=1))
    return f"Description: {description}\nTexts:\n{numbered}"
