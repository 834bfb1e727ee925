"""Steered: a model reads which tokens become likely when the latent is strengthened, and says what it makes the subject write.

For latents better described by what they cause (Paulo et al. 2025). Of several explanations the one is kept that the
intervention scorer's reading finds best on the very prompts it was made from; those to score are never seen.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from pydantic import Field, model_validator

from latentry.clients.base import Ask
from latentry.explainers.asking import LINE, TAG, AskingConfig, Question, explanation, in_language, numbered, spelled, turns
from latentry.explainers.base import LatentExamples, SaeFacts, unexplained, without_text
from latentry.prompts import neutral
from latentry.records import Explanation, Message, Purpose, Reply, Request, Status
from latentry.scorers.intervention import nats_of, request
from latentry.scorers.passages import Passage, Steered

SYSTEM = (
    "A language model holds a signal. It was stopped at the end of several texts and the signal was made stronger. For each text you are"
    " given its last words, and the pieces of words that then became more likely to follow, the most first. Many pieces are noise, or"
    " merely fit the text: look for what several texts have in common. Say what the signal makes the model write. Answer with one line:"
    f" {LINE} Write no sentence about the signal, only the phrase."
)
WORKED = (
    (
        (
            ("in the evening they sat down and", ("violin", " played", "tun", "the")),
            ("what he had bought for her was a", (" cello", " flute", "vi", "new")),
            ("nobody in the hall could hear the", (" orchestra", "music", " strings")),
        ),
        "music and its instruments",
    ),
    (
        (
            ("before that we had never been", ("ing", " going", "ting")),
            ("a long time ago they stopped", (" working", "ing", "ling")),
        ),
        'word endings in "-ing"',
    ),
)
"""Ends of texts with the pieces that became more likely, and the answer."""

_WORDS_SHOWN = 8
"""Of the end of each text."""


class Config(AskingConfig):
    """How latents are steered, and how much is shown of what comes of it."""

    kl: Annotated[float, Field(gt=0)] = 1.0
    """Mean KL(clean || steered) at the last prompt token, in nats, that the strength is sought for."""
    n_tokens: Annotated[int, Field(ge=1, le=10)] = 5
    """Tokens shown for each prompt."""
    k: Annotated[int, Field(ge=1)] = 1
    """Explanations drawn of each latent: the first at temperature 0, more of them at `temperature`."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 0.8
    """At which all but the first are drawn."""
    judge: str | None = None
    """A base model that chooses among several, by its name under `clients`; where `k` is above 1 it is needed."""

    @model_validator(mode="after")
    def _judged(self) -> "Config":
        if self.k > 1 and self.judge is None:
            raise ValueError(f"k is {self.k} and there is no judge to choose by; name one, a client with chat: false, or set k to 1")
        return self

    @property
    def steers(self) -> bool:
        """It does."""
        return True


def build(config: Config, name: str, seed: int, ask: Callable[[str], Ask], sae: SaeFacts) -> "SteeredExplainer":  # noqa: ARG001
    """The explainer."""
    return SteeredExplainer(config, name, ask(config.client), ask(config.judge) if config.judge and config.k > 1 else None, sae)


class SteeredExplainer:
    """Steers each latent once and asks about it k times."""

    def __init__(self, config: Config, name: str, ask: Ask, judge: Ask | None, sae: SaeFacts) -> None:
        self._config, self._name, self._ask, self._judge, self._sae = config, name, ask, judge, sae

    def explain(self, latents: Sequence[LatentExamples]) -> list[Explanation]:
        """One explanation per latent; without one where it has no prompts, its KL was not reached, or nothing becomes likelier."""
        rows = {latent.latent: unexplained(latent, self._name) for latent in latents}
        fine = [latent for latent, row in rows.items() if row is None]
        steered = dict(self._sae.steered(fine, self._config.kl, "steer")) if fine else {}
        rows |= {latent: self._unsteered(latent, steered.get(latent)) for latent in fine}
        asked = {latent: steered[latent].of(Purpose.EXPLAIN) for latent in fine if rows[latent] is None}
        rows |= self._explained(asked)
        return [row for latent in latents if (row := rows[latent.latent]) is not None]

    def _unsteered(self, latent: int, steered: Steered | None) -> Explanation | None:
        """The row of a latent about which there is nothing to ask; None where there is."""
        if steered is not None and not steered.reached:
            detail = f"{steered.change} is nearest to the {self._config.kl:g} nats asked for"
            return without_text(latent, self._name, Status.KL_UNREACHED, detail)
        if steered is None or not any(passage.risen for passage in steered.of(Purpose.EXPLAIN)):
            return without_text(latent, self._name, Status.UNDERSAMPLED, "no steering prompt to explain by")
        return None

    def _explained(self, asked: Mapping[int, Sequence[Passage]]) -> dict[int, Explanation]:
        questions = {latent: Question(messages=tuple(prompt(passages, self._config))) for latent, passages in asked.items()}
        requests = [one for question in questions.values() for one in self._requests(question)]
        replies = iter(self._ask(requests) if requests else [])
        drawn = {
            latent: [self._read(latent, question, next(replies)) for _ in range(self._config.k)] for latent, question in questions.items()
        }
        return self._chosen(drawn, asked)

    def _requests(self, question: Question) -> list[Request]:
        first = Request(messages=question.messages, max_tokens=self._config.max_tokens)
        more = range(1, self._config.k)
        return [first, *(dataclasses.replace(first, temperature=self._config.temperature, sample=sample) for sample in more)]

    def _read(self, latent: int, question: Question, reply: Reply) -> Explanation:
        return explanation(latent, self._name, question, reply, self._config.max_chars)

    def _chosen(self, drawn: Mapping[int, Sequence[Explanation]], asked: Mapping[int, Sequence[Passage]]) -> dict[int, Explanation]:
        """The best readable one of each latent; where there is no choice, the first."""
        texts = {latent: list(dict.fromkeys(one.text for one in of_latent if one.text)) for latent, of_latent in drawn.items()}
        pairs = [
            (latent, text, passage)
            for latent, of_latent in texts.items()
            if len(of_latent) > 1
            for text in of_latent
            for passage in asked[latent]
        ]
        requests = [request(passage.prompt + said, text) for _, text, passage in pairs for said in (passage.changed, passage.clean)]
        replies = iter(self._judge(requests) if self._judge and requests else [])
        read: dict[tuple[int, str], list[tuple[Reply, Reply]]] = {}
        for latent, text, _ in pairs:
            read.setdefault((latent, text), []).append((next(replies), next(replies)))
        return {latent: _best(of_latent, read) for latent, of_latent in drawn.items()}


def _best(drawn: Sequence[Explanation], read: Mapping[tuple[int, str], Sequence[tuple[Reply, Reply]]]) -> Explanation:
    """The one of most nats on the prompts; without a text where a reading failed, so that nothing is chosen by what is missing."""
    readable = [one for one in drawn if one.text]
    judged = {one.text: one for one in reversed(readable) if (one.latent, one.text) in read}
    if not judged:
        return (readable or list(drawn))[0]
    nats = {text: [nats_of(*pair) for pair in read[one.latent, text or ""]] for text, one in judged.items()}
    if any(value is None for values in nats.values() for value in values):
        return _unchosen(readable[0], [reply for one in judged.values() for pair in read[one.latent, one.text or ""] for reply in pair])
    sums = {text: sum(value for value in values if value is not None) for text, values in nats.items()}
    return max(readable, key=lambda one: sums[one.text])


def _unchosen(first: Explanation, replies: Sequence[Reply]) -> Explanation:
    failed = [reply for reply in replies if reply.status is not Status.OK]
    status, why = (failed[0].status, failed[0].detail) if failed else (Status.PARSE_ERROR, "no log-probabilities")
    detail = f"{len(failed) or len(replies)} of {len(replies)} readings to choose by failed: {why}"
    return dataclasses.replace(first, text=None, status=status, detail=detail)


def prompt(passages: Sequence[Passage], config: Config) -> list[Message]:
    """Worked turns, then the ends of the prompts with the tokens that become likelier after them."""
    system = SYSTEM.format(max_words=spelled(config.max_words))
    worked = [(_lines(ends), f"{TAG} {answer}") for ends, answer in WORKED]
    shown = [(passage.prompt, passage.risen[: config.n_tokens]) for passage in passages[: config.max_examples] if passage.risen]
    return turns(in_language(system, config.language), worked, _lines(shown))


def _lines(ends: Sequence[tuple[str, Sequence[str]]]) -> str:
    return numbered([f"... {' '.join(neutral(text).split()[-_WORDS_SHOWN:])} -> {_joined(tokens)}" for text, tokens in ends])


def _joined(tokens: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(f'"{neutral(token).strip()}"' for token in tokens if token.strip())) or "(none)"
