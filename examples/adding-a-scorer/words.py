"""Words: a window fits an explanation when words of the explanation stand in it; no model is asked.

It sees nothing but spelling: a floor under every scorer that reads.
"""

import re
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from latentry.metrics import LatentScore
from latentry.records import Example, Judgment, Kind
from latentry.registry import ScorerConfig
from latentry.scorers.asking import Case, judgment
from latentry.scorers.base import Item, ScorerInputs, used_examples
from latentry.scorers.told_apart import told_apart


class Config(ScorerConfig):
    """Which words count."""

    contrast: str = "random"
    """Entry of `examples.contrasts` that the activating windows are told from."""
    min_letters: Annotated[int, Field(ge=1)] = 3
    """Shorter words of an explanation are not looked for."""


def build(config: Config, inputs: ScorerInputs) -> "Words":  # noqa: ARG001 (it asks nobody, and loads nothing)
    """The scorer."""
    return Words(config)


class Words:
    """Grades a window by the share of the explanation's words that stand in it."""

    def __init__(self, config: Config) -> None:
        self.contrast = config.contrast
        self._config = config

    def judge(self, items: Sequence[Item]) -> list[Judgment]:
        """One judgment per item and window used."""
        return [
            self._judgment(item, example) for item in items for example in used_examples(item, self.contrast, self._config.max_examples)
        ]

    def score(self, item: Item, judgments: Sequence[Judgment], rng: np.random.Generator) -> LatentScore:
        """How well the shares tell activating windows from contrasts."""
        return told_apart(item, judgments, rng, contrast=self.contrast)

    def _judgment(self, item: Item, example: Example) -> Judgment:
        wanted = {word for word in _words(item.text) if len(word) >= self._config.min_letters}
        share = len(wanted & _words(example.text)) / len(wanted) if wanted else 0.0
        case = Case(example_id=example.example_id, is_activating=example.kind is Kind.ACTIVATING, shown=example.text)
        return judgment(item, case, None, confidence=share, says=share > 0)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
