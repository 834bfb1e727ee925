"""Fakes at the edges we own: clients that answer by a rule of the test, without a model or a network.

A rule says what a judge would reply to one request: a text, or log-probabilities (nats) by first token.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from latentry.records import Message, Reply, Request, Status
from latentry.scorers.base import ScorerInputs

Answer = str | Mapping[str, float] | Reply
Rule = Callable[[Request], Answer]


def reply_to(request: Request, answer: Answer) -> Reply:
    """The reply that carries an answer: a text, log-probabilities, or a whole reply such as a refusal."""
    if isinstance(answer, Reply):
        return answer
    words = len(request.messages[-1].content.split())
    if isinstance(answer, str):
        return Reply(
            status=Status.OK, text=answer, detail="", prompt_tokens=words, reply_tokens=len(answer.split()), model="fake", key="fake"
        )
    best = max(answer, key=answer.__getitem__, default="")
    return Reply(
        status=Status.OK,
        text=best,
        detail="",
        alternatives=dict(answer),
        prompt_tokens=words,
        reply_tokens=1,
        model="fake",
        key="fake",
    )


def failed(status: Status, detail: str = "by the test's rule") -> Reply:
    """A reply that brought no answer: refused, truncated, client error."""
    return Reply(status=status, text="", detail=detail, model="fake", key="fake")


class ask_by:
    """An `Ask` that answers each request by the rule; prompts longer than `longest` characters do not fit, `one_token` holds what slots grade."""

    def __init__(self, rule: Rule, longest: int | None = None, one_token: Sequence[str] = ()) -> None:
        self._rule, self._longest, self._one_token = rule, longest, one_token

    def __call__(self, requests: Sequence[Request], /) -> list[Reply]:
        return [reply_to(request, self._rule(request)) for request in requests]

    def fits(self, messages: Sequence[Message], max_tokens: int, /) -> bool:  # noqa: ARG002
        return self._longest is None or sum(len(message.content) for message in messages) <= self._longest

    def gradable(self, texts: Sequence[str], /) -> tuple[str, ...]:
        return tuple(text for text in texts if text in self._one_token)


def said(request: Request) -> str:
    """All that a request says, in one text: what a rule usually looks into."""
    return "\n".join(message.content for message in request.messages)


class ScriptedClient:
    """A client in process that answers by a rule and remembers what it was asked, batch by batch."""

    def __init__(self, rule: Rule, name: str = "scripted") -> None:
        self.identity: Mapping[str, str] = {"kind": name}
        self.asked: list[list[Request]] = []
        self._rule = rule

    def answer(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply per request, in order."""
        self.asked.append(list(requests))
        return [reply_to(request, self._rule(request)) for request in requests]


def scorer_inputs(**given: Any) -> ScorerInputs:
    """What a scorer is built from: what the test gives, and nothing behind the rest."""

    def not_given(*_: object) -> Any:
        raise LookupError("the test gave none")

    nothing = dict.fromkeys(("ask", "embedder", "explain_split", "steered", "fired"), not_given)
    return ScorerInputs(**({"seed": 0} | nothing | given))
