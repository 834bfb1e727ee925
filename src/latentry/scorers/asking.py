"""How a judge is asked about windows, and how its replies become judgments; what is asked is each scorer's own.

Two ways: `single`, one window per prompt, graded by the log-probability of yes and no; `list`, several windows per
prompt, answered by a list of 0 and 1. A reply that cannot be read is a status in each judgment it was meant for.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from latentry.clients.base import Ask
from latentry.randomness import rng_for
from latentry.records import Judgment, Message, Reply, Request, Status
from latentry.scorers.base import Item

YES = ("yes", "Yes", "YES", " yes", " Yes", " YES")
NO = ("no", "No", "NO", " no", " No", " NO")
ABOVE_ZERO = 1e-3
"""Largest log-probability taken for one: that of 1, rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One window of an item, as a judge is shown it."""

    example_id: str
    is_activating: bool
    shown: str
    """The window's text as it stands in the prompt."""


def p_yes(reply: Reply) -> float | None:
    """p(yes) / (p(yes) + p(no)) from the first token's log-probabilities; None when neither side is among them.

    A side that is absent counts as the smallest log-probability returned, so that one alone grades nothing: None. None
    too where one is no log-probability.
    """
    found = {text: value for text, value in reply.alternatives.items() if not math.isnan(value)}
    if len(found) < 2 or max(found.values()) > ABOVE_ZERO:
        return None
    yes, no = _log_sum(found, YES), _log_sum(found, NO)
    if yes is None and no is None:
        return None
    smallest = min(found.values())
    difference = (smallest if no is None else no) - (smallest if yes is None else yes)
    if math.isnan(difference):
        return None
    return 0.0 if difference > 700 else 1 / (1 + math.exp(difference))


def _log_sum(found: Mapping[str, float], texts: Sequence[str]) -> float | None:
    values = [found[text] for text in texts if text in found]
    if not values:
        return None
    largest = max(values)
    return largest if math.isinf(largest) else largest + math.log(sum(math.exp(value - largest) for value in values))


def yes_or_no(text: str) -> bool | None:
    """What a reply in words says; None unless its first word is yes or no."""
    first = re.match(r"\W*(yes|no)\b", text, re.IGNORECASE)
    return None if first is None else first[1].lower() == "yes"


def listed_answers(text: str, wanted: int) -> list[bool] | None:
    """The answers of a reply with exactly one list of 0 and 1, of the length wanted; else None."""
    lists = re.findall(r"\[[^\[\]]*\]", text)
    if len(lists) != 1:
        return None
    try:
        answers = json.loads(lists[0])
    except ValueError:
        return None
    right = len(answers) == wanted and all(type(answer) is int and answer in (0, 1) for answer in answers)
    return [answer == 1 for answer in answers] if right else None


def judged_singly(
    ask: Ask, items: Sequence[Item], cases: Sequence[Sequence[Case]], prompt: Callable[[Item, Case], Sequence[Message]]
) -> list[Judgment]:
    """One request per window: graded where the reply has log-probabilities, else read as a word."""
    pairs = [(item, case) for item, of_item in zip(items, cases, strict=True) for case in of_item]
    requests = [Request(messages=tuple(prompt(item, case)), max_tokens=1, alternatives=YES + NO) for item, case in pairs]
    return [_single(item, case, reply) for (item, case), reply in zip(pairs, ask(requests), strict=True)]


def _single(item: Item, case: Case, reply: Reply) -> Judgment:
    # A reply of one token is cut by nature, so TRUNCATED is no failure here.
    if reply.status not in (Status.OK, Status.TRUNCATED):
        return judgment(item, case, reply, status=reply.status, detail=reply.detail)
    if not reply.alternatives:
        answer = yes_or_no(reply.text)
        if answer is None:
            return _unreadable(item, case, reply, f"neither yes nor no: {reply.text[:80]!r}")
        return judgment(item, case, reply, says=answer)
    p = p_yes(reply)
    if p is None:
        return _unreadable(item, case, reply, _ungraded(reply.alternatives))
    return judgment(item, case, reply, says=p > 0.5, confidence=p)


def _ungraded(alternatives: Mapping[str, float]) -> str:
    """Why log-probabilities grade no answer."""
    impossible = [f"{text!r}: {value:g}" for text, value in alternatives.items() if value > ABOVE_ZERO]
    if impossible:
        return f"log-probabilities above 0, which there are not: {', '.join(impossible[:3])}"
    if len(alternatives) == 1:
        (text,) = alternatives
        return f"the log-probability of one token alone, {text!r}, grades nothing; raise clients.*.top_logprobs, or ask another server"
    return f"yes and no are not among the alternatives {sorted(alternatives)[:8]}"


def judged_in_lists(
    ask: Ask,
    items: Sequence[Item],
    cases: Sequence[Sequence[Case]],
    prompt: Callable[[Item, Sequence[Case]], Sequence[Message]],
    *,
    examples_per_prompt: int,
    max_tokens: int,
    seed: int,
    part: int = 0,
) -> list[Judgment]:
    """Several windows per request, in an order drawn per latent; what is left over makes a shorter last prompt.

    Where so many do not fit into the judge's context, it is asked about fewer at once. Where an item's cases come in
    several parts, each part has an order of its own.
    """
    purpose = f"order in prompts {part}" if part else "order in prompts"
    groups: list[tuple[Item, list[Case]]] = []
    for item, of_item in zip(items, cases, strict=True):
        order = rng_for(seed, purpose, item.latent).permutation(len(of_item))
        mixed = [of_item[i] for i in order]
        for i in range(0, len(mixed), examples_per_prompt):
            parts = _fitting(mixed[i : i + examples_per_prompt], lambda group, item=item: ask.fits(prompt(item, group), max_tokens))
            groups += [(item, part) for part in parts]
    requests = [
        Request(messages=tuple(prompt(item, group)), max_tokens=max_tokens, schema=list_schema(len(group))) for item, group in groups
    ]
    replies = ask(requests)
    return [made for (item, group), reply in zip(groups, replies, strict=True) for made in _group(item, group, reply)]


def _fitting(group: list[Case], fits: Callable[[list[Case]], bool]) -> list[list[Case]]:
    """The group, halved until each part fits or is one window."""
    if len(group) == 1 or fits(group):
        return [group]
    half = (len(group) + 1) // 2
    return [*_fitting(group[:half], fits), *_fitting(group[half:], fits)]


def list_schema(n: int) -> str:
    """JSON schema of a list of n answers. The root is an object, as OpenAI wants it; the one list inside is what is read."""
    answers = {"type": "array", "items": {"type": "integer", "enum": [0, 1]}, "minItems": n, "maxItems": n}
    whole = {"type": "object", "properties": {"answers": answers}, "required": ["answers"], "additionalProperties": False}
    return json.dumps(whole, sort_keys=True)


def _group(item: Item, group: Sequence[Case], reply: Reply) -> list[Judgment]:
    if reply.status is not Status.OK:
        return [judgment(item, case, reply, status=reply.status, detail=reply.detail) for case in group]
    answers = listed_answers(reply.text, len(group))
    if answers is None:
        return [_unreadable(item, case, reply, f"not one list of {len(group)} answers: {reply.text[:80]!r}") for case in group]
    return [judgment(item, case, reply, says=answer) for case, answer in zip(group, answers, strict=True)]


def _unreadable(item: Item, case: Case, reply: Reply, detail: str) -> Judgment:
    return judgment(item, case, reply, status=Status.PARSE_ERROR, detail=detail)


def judgment(
    item: Item,
    case: Case,
    reply: Reply | None,
    *,
    says: bool | None = None,
    confidence: float | None = None,
    value: float | None = None,
    levels: tuple[float, ...] = (),
    status: Status = Status.OK,
    detail: str = "",
) -> Judgment:
    """The judgment on one case."""
    return Judgment(
        latent=item.latent,
        explainer=item.explainer,
        example_id=case.example_id,
        null=item.null,
        is_activating=case.is_activating,
        says_activating=says,
        confidence=confidence,
        status=status,
        detail=detail,
        reply_key=(reply.key or None) if reply else None,
        value=value,
        levels=levels,
    )
