"""How a model is asked for an explanation and how its reply is read; what is asked stands in each explainer's own file.

Always true: a reply that is unreadable, empty, refused, cut off or over-long is a status, never a text, and is kept.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from latentry.clients.base import Ask
from latentry.explainers.base import LatentExamples, activating, unexplained
from latentry.prompts import marked, marked_stretches, neutral, prompt_digest, unmarked
from latentry.records import Example, Explanation, Message, Reply, Request, Status
from latentry.registry import ExplainerConfig

TAG = "EXPLANATION:"
LINE = f"{TAG} and a specific phrase of at most {{max_words}} words."
"""What every prompt asks for; the length is a parameter."""

_WORDS_NAMED = 10
"""Distinct marked words repeated below the windows: a small model follows them more than the marks."""
_TAG_LINE = re.compile(
    r"^(?:\W*\d{1,2}[.)])?\W*EXPLANATION[*_` \t]*:[*_` \t\r]*(?:\n\s*(?!.*EXPLANATION[*_` \t]*:))?(.*)$", re.IGNORECASE | re.MULTILINE
)
"""The tag, also after the number of a list, and what follows it there or, where nothing does, on the next line."""
_NOTHING = re.compile(r"\W*(none|n/?a|null|not applicable|no explanation)[^\w'\"`]*", re.IGNORECASE)
"""Words for no answer; in quotes or as code they are what the latent fires on."""
_ECHO = re.compile(r"\{max_words\}|^(and )?a specific phrase of at most\b|^write (no sentence|the phrase)\b", re.IGNORECASE)
_REFUSAL = re.compile(
    r"((i'm|i am) )?(very )?sorry\b[,.]? (but\b|i (cannot|can not|can't|am|won't|will not|don't|do not)\b)"
    r"|(i|we) (cannot|can not|can't|could not|couldn't|won't|will not|must decline to)"
    r" (help|assist|provide|comply|explain|answer|determine|do (that|this)|fulfil|identify|continue|generate|find|describe|say|give|tell)"
    r"|as an ai\b.*\bi\b"
    r"|((i'm|i am) )?(unable|not able) to (help|assist|provide|comply|explain|answer|determine|identify|generate)",
    re.IGNORECASE,
)
"""How models refuse in words, at the beginning of what they say."""
_NUMBERS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
]


class AskingConfig(ExplainerConfig):
    """What every explainer has that asks a model."""

    client: str
    """The explainer model, by its name under `clients`."""
    max_examples: Annotated[int, Field(ge=1)] = 20
    """Windows shown of each kind, the first by rank (each prefix is even over the deciles)."""
    max_tokens: Annotated[int, Field(ge=1)] = 40
    """Largest reply, in tokens; a longer one is `truncated`."""
    max_words: Annotated[int, Field(ge=1)] = 12
    """Largest number of words that the model is told to use."""
    max_chars: Annotated[int, Field(ge=20)] = 300
    """Longest explanation taken, in characters; a longer one is `parse_error`, for it did not do as it was told."""
    language: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """Language of the explanation, such as `German`; None leaves it to the prompt, which is English."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked about one latent."""

    messages: tuple[Message, ...]
    note: str = ""
    """What had to be left out of it."""


def explained(
    latents: Sequence[LatentExamples],
    name: str,
    ask: Ask,
    question: Callable[[LatentExamples], Question],
    *,
    max_tokens: int,
    max_chars: int,
) -> list[Explanation]:
    """One explanation per latent, in order; no call for one that is not OK."""
    without = {latent.latent: unexplained(latent, name) for latent in latents}
    questions = {latent.latent: question(latent) for latent in latents if without[latent.latent] is None}
    requests = [Request(messages=one.messages, max_tokens=max_tokens) for one in questions.values()]
    replies = ask(requests) if requests else []
    answered = {
        latent: explanation(latent, name, one, reply, max_chars) for (latent, one), reply in zip(questions.items(), replies, strict=True)
    }
    return [without[latent.latent] or answered[latent.latent] for latent in latents]


def explanation(latent: int, name: str, asked: Question, reply: Reply, max_chars: int) -> Explanation:
    """What a reply makes."""
    text, status, detail = read_reply(reply, max_chars)
    return Explanation(
        latent=latent,
        explainer=name,
        text=text,
        status=status,
        detail="; ".join(part for part in (detail, asked.note) if part),
        prompt_digest=prompt_digest(asked.messages),
        reply=reply.text,
        reply_key=reply.key or None,
    )


def fitting(ask: Ask, examples: Sequence[Example], prompt: Callable[[Sequence[Example]], Sequence[Message]], max_tokens: int) -> Question:
    """The prompt of as many examples as fit into the model's context, the first ones; at least one, so that the instructions stay whole."""
    n = len(examples)
    while n > 1 and not ask.fits(prompt(examples[:n]), max_tokens):
        n -= 1
    note = f"shown {n} of {len(examples)} windows, as many as fit into the model's context" if n < len(examples) else ""
    return Question(messages=tuple(prompt(examples[:n])), note=note)


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
    if len(text) > max_chars:
        return None, Status.PARSE_ERROR, f"{len(text)} characters after {TAG}; at most max_chars, {max_chars}"
    if _REFUSAL.match(text.replace("\u2019", "'")):
        return None, Status.REFUSED, f"a refusal in words: {text[:80]!r}"
    if _NOTHING.fullmatch(unmarked(lines[-1])) or _ECHO.search(text):
        return None, Status.PARSE_ERROR, f"no explanation after {TAG}: {text[:80]!r}"
    return text, Status.OK, ""


def turns(system: str, worked: Iterable[tuple[str, str]], question: str) -> list[Message]:
    """Instructions, worked questions with their answers, and the question."""
    messages = [Message(role="system", content=system)]
    for asked, answer in worked:
        messages += [Message(role="user", content=asked), Message(role="assistant", content=answer)]
    return [*messages, Message(role="user", content=question)]


def in_language(system: str, language: str | None) -> str:
    """Instructions that name the language of the phrase, where one is set."""
    return system if language is None else f"{system} Write the phrase in {language}."


def spelled(number: int) -> str:
    """A small number as a word."""
    return _NUMBERS[number] if number < len(_NUMBERS) else str(number)


def numbered(texts: Sequence[str]) -> str:
    """Texts on a line each, numbered from 1."""
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, start=1))


def shown(examples: Sequence[Example]) -> list[str]:
    """Windows with their marks."""
    return [marked(example.text, example.marks) for example in examples]


def fires(latent: LatentExamples, max_examples: int) -> list[Example]:
    """The latent's first activating windows."""
    return activating(latent)[:max_examples]


def marked_words(examples: Sequence[Example]) -> str:
    """The most frequent marked stretches with their counts; of equally frequent ones, those met first.

    Where some recur, those that stand only once are left out: they drown what the others have in common.
    """
    counts: Counter[str] = Counter()
    for example in examples:
        text = neutral(example.text)
        counts.update(text[start:end].lower() for start, end in marked_stretches(example.text, example.marks))
    recurring = Counter({words: count for words, count in counts.items() if count > 1})
    named = (recurring if len(recurring) > 1 else counts).most_common(_WORDS_NAMED)
    return ", ".join(f"{words} ({count})" for words, count in named)
