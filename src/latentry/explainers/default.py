"""Default: a model reads marked windows and says in one phrase what the marked words have in common (Bills et al. 2023).

Sees activating windows of the explain split alone. The explanation is what the reply says after `EXPLANATION:`.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from latentry.clients.base import Ask
from latentry.explainers.base import LatentExamples, activating, unexplained
from latentry.prompts import marked, marked_stretches, neutral, prompt_digest, unmarked
from latentry.records import Example, Explanation, Message, Reply, Request, Status
from latentry.registry import ExplainerConfig

TAG = "EXPLANATION:"
SYSTEM = (
    "You are given short texts in which some words are marked <<like this>>, and then the marked words alone, the most"
    " frequent first. Say what the marked words have in common: their meaning, their grammatical role, or, where a few"
    f" are frequent, these words themselves. Answer with one line: {TAG} and a specific phrase of at most twelve words."
    " Write no sentence about marked words, only the phrase."
)
WORKED = (
    (
        (
            "carried her <<violin>> up the icy steps",
            "a <<cello>> stood in the hall beside two <<flutes>>",
            "he tuned the <<violin>> by ear",
        ),
        "violin (2), cello (1), flutes (1)",
        "musical instruments such as violin and cello",
    ),
    (
        ("the wax <<melted>> on the oven shelf", "cheese <<melts>> in the pan", "it had not <<melted>> by noon"),
        "melted (2), melts (1)",
        'forms of the verb "melt"',
    ),
    (
        ("no taller <<than>> the garage", "would rather bake <<than>> buy bread", "later <<than>> the last <<bus>>"),
        "than (3), bus (1)",
        'the word "than"',
    ),
)
"""Windows, their marked words, and the answer: far from what corpora are about, since small models copy the wording."""

_WORDS_NAMED = 10
"""Distinct marked words repeated below the windows: a small model follows them more than the marks."""
_TAG_LINE = re.compile(rf"^\W*{TAG}[ \t]*(.*)$", re.IGNORECASE | re.MULTILINE)


class Config(ExplainerConfig):
    """What the model is shown and how much it may say."""

    client: str
    """The explainer model, by its name under `clients`."""
    max_examples: Annotated[int, Field(ge=1)] = 20
    """Windows shown, the first by rank (each prefix is even over the deciles)."""
    max_tokens: Annotated[int, Field(ge=1)] = 40
    """Largest reply, in tokens; a longer one is `truncated`."""
    max_chars: Annotated[int, Field(ge=20)] = 300
    """Longest explanation, in characters; a longer one is cut at a word, and its row says so."""


def build(config: Config, name: str, seed: int, ask: Callable[[str], Ask]) -> "Default":  # noqa: ARG001
    """The explainer."""
    return Default(config, name, ask(config.client))


class Default:
    """Asks the model once per latent."""

    def __init__(self, config: Config, name: str, ask: Ask) -> None:
        self._config, self._name, self._ask = config, name, ask

    def explain(self, latents: Sequence[LatentExamples]) -> list[Explanation]:
        """One explanation per latent; no call for one that is not OK."""
        without = {latent.latent: unexplained(latent, self._name) for latent in latents}
        asked = [latent for latent in latents if without[latent.latent] is None]
        requests = [self._request(latent) for latent in asked]
        replies = self._ask(requests) if requests else []
        answered = {
            latent.latent: self._explanation(latent.latent, request, reply)
            for latent, request, reply in zip(asked, requests, replies, strict=True)
        }
        return [without[latent.latent] or answered[latent.latent] for latent in latents]

    def _request(self, latent: LatentExamples) -> Request:
        return Request(messages=tuple(prompt(activating(latent)[: self._config.max_examples])), max_tokens=self._config.max_tokens)

    def _explanation(self, latent: int, request: Request, reply: Reply) -> Explanation:
        text, status, detail = read_reply(reply, self._config.max_chars)
        return Explanation(
            latent=latent,
            explainer=self._name,
            text=text,
            status=status,
            detail=detail,
            prompt_digest=prompt_digest(request.messages),
            reply=reply.text,
            reply_key=reply.key or None,
        )


def prompt(examples: Sequence[Example]) -> list[Message]:
    """Worked turns, then the windows, numbered from 1, and below them the marked words alone."""
    turns = [Message(role="system", content=SYSTEM)]
    for texts, words, answer in WORKED:
        turns += [Message(role="user", content=_question(texts, words)), Message(role="assistant", content=f"{TAG} {answer}")]
    texts = [marked(example.text, example.marks) for example in examples]
    return [*turns, Message(role="user", content=_question(texts, _marked_words(examples)))]


def _question(texts: Sequence[str], words: str) -> str:
    numbered = "\n".join(f"{number}. {text}" for number, text in enumerate(texts, start=1))
    return f"Texts:\n{numbered}\nMarked words: {words}"


def _marked_words(examples: Sequence[Example]) -> str:
    """The most frequent marked stretches with their counts; of equally frequent ones, those met first.

    Where some recur, those that stand only once are left out: they drown what the others have in common.
    """
    counts: Counter[str] = Counter()
    for example in examples:
        shown = neutral(example.text)
        counts.update(shown[start:end].lower() for start, end in marked_stretches(example.text, example.marks))
    recurring = Counter({words: count for words, count in counts.items() if count > 1})
    named = (recurring if len(recurring) > 1 else counts).most_common(_WORDS_NAMED)
    return ", ".join(f"{words} ({count})" for words, count in named)


def read_reply(reply: Reply, max_chars: int) -> tuple[str | None, Status, str]:
    """Text, status and detail of a reply. Of several tagged lines the last counts: a model may think aloud before."""
    if reply.status is not Status.OK:
        return None, reply.status, reply.detail or f"the reply is {reply.status}"
    lines = _TAG_LINE.findall(reply.text)
    if not lines:
        return None, Status.PARSE_ERROR, f"no line begins with {TAG}"
    text = " ".join(unmarked(lines[-1]).split()).strip("*_` ")
    if not any(character.isalnum() for character in text):
        return None, Status.PARSE_ERROR, f"nothing readable after {TAG}"
    if len(text) <= max_chars:
        return text, Status.OK, ""
    return _cut(text, max_chars), Status.OK, f"cut from {len(text)} characters to at most {max_chars}"


def _cut(text: str, max_chars: int) -> str:
    head = text[: max_chars - 1]
    at_word = head.rsplit(" ", 1)[0] if " " in head else head
    return f"{at_word.rstrip(' ,;')}…"
