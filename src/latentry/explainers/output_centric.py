"""Output-centric: a model reads the tokens that the latent's decoder row makes more and less likely (Gur-Arieh et al. 2025).

It describes what the latent does rather than where it fires; with `windows` it reads both. The tokens are those that
`latents` names: unembed(final_norm(decoder row)), largest and smallest.
"""

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
    numbered,
    shown,
    spelled,
    turns,
)
from latentry.explainers.base import LatentExamples, Promoted, SaeFacts, unexplained, without_text
from latentry.prompts import neutral
from latentry.records import Example, Explanation, Message, Status

SYSTEM = (
    "A language model holds a signal. You are given the pieces of words that the signal makes the model write more often, the"
    " strongest first, and those that it makes it write less often{windows}. Many pieces are noise: look for what several"
    f" have in common. Say what the signal makes the model write. Answer with one line: {LINE}"
    " Write no sentence about the signal, only the phrase."
)
WINDOWS = ", and then texts in which the words where the signal is on are marked <<like this>>"
WORKED = (
    (("violin", "cello", "orch", "Symphony", "flute", "qz"), ("mortgage", "px", "tariff"), "music and its instruments"),
    (("ing", "ting", "ening", "ling", "Ung"), ("the", "of", "ed"), 'word endings in "-ing"'),
)
"""Pieces written more and less often, and the answer."""


class Config(AskingConfig):
    """What the model is shown and how much it may say."""

    n_tokens: Annotated[int, Field(ge=1)] = 50
    """Tokens of each list shown; there are at most `latents.n_top_tokens`."""
    windows: bool = False
    """Show the latent's activating windows too."""


def build(config: Config, name: str, seed: int, ask: Callable[[str], Ask], sae: SaeFacts) -> "OutputCentric":  # noqa: ARG001
    """The explainer."""
    return OutputCentric(config, name, ask(config.client), sae)


class OutputCentric:
    """Asks the model once per latent."""

    def __init__(self, config: Config, name: str, ask: Ask, sae: SaeFacts) -> None:
        self._config, self._name, self._ask, self._sae = config, name, ask, sae

    def explain(self, latents: Sequence[LatentExamples]) -> list[Explanation]:
        """One explanation per latent; UNSUPPORTED where the decoder does not write to where the unembedding reads."""
        promoted = self._sae.promoted()
        known = [latent for latent in latents if unexplained(latent, self._name) or promoted.get(latent.latent, Promoted()).more]
        made = explained(
            known,
            self._name,
            self._ask,
            lambda latent: self._question(latent, promoted[latent.latent]),
            max_tokens=self._config.max_tokens,
            max_chars=self._config.max_chars,
        )
        by_latent = {one.latent: one for one in made}
        return [by_latent.get(latent.latent) or self._unknown(latent) for latent in latents]

    def _unknown(self, latent: LatentExamples) -> Explanation:
        detail = "no promoted tokens: its decoder does not write to the residual stream, or `latents.n_top_tokens` is too small"
        return without_text(latent.latent, self._name, Status.UNSUPPORTED, detail)

    def _question(self, latent: LatentExamples, promoted: Promoted) -> Question:
        if not self._config.windows:
            return Question(messages=tuple(prompt(promoted, (), self._config)))
        examples = fires(latent, self._config.max_examples)
        return fitting(self._ask, examples, lambda first: prompt(promoted, first, self._config), self._config.max_tokens)


def prompt(promoted: Promoted, examples: Sequence[Example], config: Config) -> list[Message]:
    """Worked turns, then both lists of tokens, and the windows where there are any."""
    system = SYSTEM.format(windows=WINDOWS if examples else "", max_words=spelled(config.max_words))
    worked = [(_lists(more, less), f"{TAG} {answer}") for more, less, answer in WORKED]
    lists = _lists(promoted.more[: config.n_tokens], promoted.less[: config.n_tokens])
    question = f"{lists}\nTexts:\n{numbered(shown(examples))}" if examples else lists
    return turns(in_language(system, config.language), worked, question)


def _lists(more: Sequence[str], less: Sequence[str]) -> str:
    return f"More often: {_joined(more)}\nLess often: {_joined(less)}"


def _joined(tokens: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(f'"{neutral(token).strip()}"' for token in tokens if token.strip())) or "(none)"
