"""Default: a model reads marked windows and says in one phrase what the marked words have in common (Bills et al. 2023).

Sees activating windows of the explain split alone. The explanation is what the reply says after `EXPLANATION:`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from latentry.clients.base import Ask
from latentry.explainers.asking import (
    LINE,
    TAG,
    AskingConfig,
    Question,
    explained,
    fires,
    fitting,
    in_language,
    marked_words,
    numbered,
    shown,
    spelled,
    turns,
)
from latentry.explainers.base import LatentExamples, SaeFacts
from latentry.prompts import marked_stretches, neutral
from latentry.records import Example, Explanation, Message

SYSTEM = (
    "You are given short texts in which some words are marked <<like this>>, and then the marked words alone, the most"
    " frequent first. Say what the marked words have in common: their meaning, their grammatical role, or, where a few"
    f" are frequent, these words themselves. {{how}} {LINE} Write no sentence about marked words, only the phrase."
)
AT_ONCE = "Answer with one line:"
THINKING = "Think aloud first, in a few sentences; then end with one line:"
LEVELS = " Behind each text stand its marked words with their strength, from 1 to 10."
WORKED = (
    (
        (
            "carried her <<violin>> up the icy steps",
            "a <<cello>> stood in the hall beside two <<flutes>>",
            "he tuned the <<violin>> by ear",
        ),
        ("violin 9", "cello 10, flutes 6", "violin 8"),
        "violin (2), cello (1), flutes (1)",
        "Violin, cello and flutes are all played; the marks follow no grammar, but this one kind of thing.",
        "musical instruments such as violin and cello",
    ),
    (
        ("the wax <<melted>> on the oven shelf", "cheese <<melts>> in the pan", "it had not <<melted>> by noon"),
        ("melted 10", "melts 7", "melted 9"),
        "melted (2), melts (1)",
        "All three are forms of one verb, in different tenses.",
        'forms of the verb "melt"',
    ),
    (
        ("no taller <<than>> the garage", "would rather bake <<than>> buy bread", "later <<than>> the last <<bus>>"),
        ("than 9", "than 8", "than 10, bus 1"),
        "than (3), bus (1)",
        "The same word is marked in every text; bus is marked once only, and is weak.",
        'the word "than"',
    ),
)
"""Windows, their levels, their marked words, a thought, and the answer: far from what corpora are about, since small models
copy the wording."""


class Config(AskingConfig):
    """What the model is shown and how much it may say."""

    levels: bool = False
    """Show how strongly the latent fires on each marked stretch, from 1 to 10."""
    worked: Annotated[int, Field(ge=0, le=3)] = 3
    """Worked examples before the windows."""
    reasoning_tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens of thinking aloud before the explanation; 0: none."""


def build(config: Config, name: str, seed: int, ask: Callable[[str], Ask], sae: SaeFacts) -> "Default":  # noqa: ARG001
    """The explainer."""
    return Default(config, name, ask(config.client))


class Default:
    """Asks the model once per latent."""

    def __init__(self, config: Config, name: str, ask: Ask) -> None:
        self._config, self._name, self._ask = config, name, ask
        self._max_tokens = config.max_tokens + config.reasoning_tokens

    def explain(self, latents: Sequence[LatentExamples]) -> list[Explanation]:
        """One explanation per latent; no call for one that is not OK."""
        return explained(latents, self._name, self._ask, self._question, max_tokens=self._max_tokens, max_chars=self._config.max_chars)

    def _question(self, latent: LatentExamples) -> Question:
        examples = fires(latent, self._config.max_examples)
        return fitting(self._ask, examples, lambda first: prompt(first, self._config), self._max_tokens)


def prompt(examples: Sequence[Example], config: Config) -> list[Message]:
    """Worked turns, then the windows, numbered from 1, and below them the marked words alone."""
    thinks = config.reasoning_tokens > 0
    system = SYSTEM.format(how=THINKING if thinks else AT_ONCE, max_words=spelled(config.max_words)) + (LEVELS if config.levels else "")
    worked = [
        (_question(_with_levels(texts, levels, config), words), f"{thought}\n{TAG} {answer}" if thinks else f"{TAG} {answer}")
        for texts, levels, words, thought, answer in WORKED[: config.worked]
    ]
    texts = _with_levels(shown(examples), _levels(examples), config)
    return turns(in_language(system, config.language), worked, _question(texts, marked_words(examples)))


def _question(texts: Sequence[str], words: str) -> str:
    return f"Texts:\n{numbered(texts)}\nMarked words: {words}"


def _with_levels(texts: Sequence[str], levels: Sequence[str], config: Config) -> list[str]:
    return [f"{text} ({level})" for text, level in zip(texts, levels, strict=True)] if config.levels else list(texts)


def _levels(examples: Sequence[Example]) -> list[str]:
    """Each window's marked stretches with the level of their strongest token, in tenths of the strongest of all, rounded up."""
    largest = max((max(example.activations) for example in examples), default=0.0)
    lines = []
    for example in examples:
        spans = list(zip(example.spans[::2], example.spans[1::2], example.activations, strict=True))
        parts = []
        for start, end in marked_stretches(example.text, example.marks):
            strongest = max((activation for a, b, activation in spans if a < end and b > start), default=0.0)
            parts.append(f"{neutral(example.text[start:end])} {math.ceil(10 * strongest / largest)}")
        lines.append(", ".join(parts))
    return lines
