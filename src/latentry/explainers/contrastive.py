"""Contrastive: a model reads marked windows beside windows in which the latent is silent, and says what sets them apart.

Sees the explain split alone; its contrasts are those of the first entry of `examples.contrasts`.
"""

from collections.abc import Callable, Sequence

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
    numbered,
    shown,
    spelled,
    turns,
)
from latentry.explainers.base import LatentExamples, SaeFacts, silent
from latentry.prompts import neutral
from latentry.records import Example, Explanation, Message

SYSTEM = (
    "You are given two lists of short texts. In those of list A some words are marked <<like this>>; in those of list B nothing"
    " is, although they may look alike. Find what the marked words have in common and no word of list B has. Answer with"
    f" one line: {LINE} Name no list, and write no sentence, only the phrase."
)
WORKED = (
    (
        ("carried her <<violin>> up the icy steps", "a <<cello>> stood unplayed in the hall", "he tuned the <<violin>> by ear"),
        ("carried her suitcase up the icy steps", "a mirror hung in the hall", "he cut the roses by hand"),
        "musical instruments such as violin and cello",
    ),
    (
        ("she would <<have>> gone home", "they must <<have>> forgotten the key"),
        ("we have two kettles", "they have a cold kitchen"),
        '"have" before a participle, as an auxiliary verb',
    ),
)
"""Windows of both lists, and the answer."""


class Config(AskingConfig):
    """What the model is shown and how much it may say."""


def build(config: Config, name: str, seed: int, ask: Callable[[str], Ask], sae: SaeFacts) -> "Contrastive":  # noqa: ARG001
    """The explainer."""
    return Contrastive(config, name, ask(config.client))


class Contrastive:
    """Asks the model once per latent."""

    def __init__(self, config: Config, name: str, ask: Ask) -> None:
        self._config, self._name, self._ask = config, name, ask

    def explain(self, latents: Sequence[LatentExamples]) -> list[Explanation]:
        """One explanation per latent; no call for one that is not OK. Without contrasts list B is empty, and says so."""
        limits = {"max_tokens": self._config.max_tokens, "max_chars": self._config.max_chars}
        return explained(latents, self._name, self._ask, self._question, **limits)

    def _question(self, latent: LatentExamples) -> Question:
        contrasts = silent(latent)[: self._config.max_examples]
        examples = fires(latent, self._config.max_examples)
        # Where the prompt is cut, both lists are, so that they stay equally long.
        return fitting(self._ask, examples, lambda first: prompt(first, contrasts[: len(first)], self._config), self._config.max_tokens)


def prompt(examples: Sequence[Example], contrasts: Sequence[Example], config: Config) -> list[Message]:
    """Worked turns, then both lists."""
    system = in_language(SYSTEM.format(max_words=spelled(config.max_words)), config.language)
    worked = [(_question(marked_texts, texts), f"{TAG} {answer}") for marked_texts, texts, answer in WORKED]
    return turns(system, worked, _question(shown(examples), [neutral(example.text) for example in contrasts]))


def _question(marked_texts: Sequence[str], texts: Sequence[str]) -> str:
    return f"List A:\n{numbered(marked_texts)}\nList B:\n{numbered(texts) or '(none)'}"
