"""Simulation: the judge predicts a level for every token of a window, all at once; scored by correlation (Bills et al. 2023).

The prompt gives the explanation and the text. A judge in this process is given the lines of the answer, with `UNKNOWN` in
each level's place, and grades all levels in one forward pass; another writes the lines itself. Always true: a window has a
level for each of its tokens, or none at all.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from latentry.clients.base import Ask
from latentry.metrics import LatentScore, simulation_score
from latentry.prompts import neutral
from latentry.records import Example, Judgment, Kind, Message, Reply, Request, Status
from latentry.registry import ScorerConfig
from latentry.scorers.asking import Case, judgment
from latentry.scorers.base import Item, ScorerInputs, used_examples

UNKNOWN = "unknown"
"""Stands in the place of every level that a judge has not told."""
SYSTEM = (
    "You are given a description of what a detector fires on, and a text. For every token of the text, in order, write a"
    " line: the token, a tab, and how strongly the detector fires there, a whole number from 0 (not at all) to {top}"
    " (most). It fires on few tokens: most lines end in 0."
)
SHOTS = (
    ("names of musical instruments", "were| late|,| and| she| carried| her| violin| up| the| icy| steps", {7: 10}),
    ('words: "her", "the"', "were| late|,| and| she| carried| her| violin| up| the| icy| steps", {6: 10, 9: 8}),
    ("numbers written in digits", "the| bakery| sold| |3|6| loaves|,| and| closed| at| noon", {4: 8, 5: 10}),
    ('words: "," (comma), "and"', "the| bakery| sold| |3|6| loaves|,| and| closed| at| noon", {7: 10, 8: 9}),
)
"""Description, tokens, levels of those that have any; one text twice, since what fires follows from the description. The
same for every request, so that a client computes them once."""

TOKENS_PER_LINE = 12
"""Largest reply: a token of the text may be several of the judge's, or a byte of one."""


class Config(ScorerConfig):
    """How simulation asks."""

    client: str
    """The judge, by its name under `clients`."""
    contrast: str = "random"
    """Entry of `examples.contrasts` whose windows are simulated beside the activating ones."""


def build(config: Config, inputs: ScorerInputs) -> "Simulation":
    """The scorer."""
    return Simulation(config, inputs.ask(config.client))


class Simulation:
    """Asks the judge for the levels of every window of every item."""

    def __init__(self, config: Config, ask: Ask) -> None:
        self.contrast = config.contrast
        self._max_examples, self._ask = config.max_examples, ask

    def judge(self, items: Sequence[Item]) -> list[Judgment]:
        """One judgment per item and window used: the simulated level of each token."""
        pairs = [(item, example) for item in items for example in used_examples(item, self.contrast, self._max_examples)]
        levels = self._graded()
        ask_one = slots_request if levels else words_request
        replies = self._ask([ask_one(item.text, example, top_level(levels)) for item, example in pairs])
        return [_judgment(*pair, reply, in_words=not levels) for pair, reply in zip(pairs, replies, strict=True)]

    def score(self, item: Item, judgments: Sequence[Judgment], rng: np.random.Generator) -> LatentScore:
        """Correlation with the activations over the tokens of all windows together."""
        activations = {example.example_id: example.activations for example in item.examples}
        metric = "pearson" if top_level(self._graded()) == 10 else "pearson_0to9"
        return simulation_score(judgments, activations, rng, metric)

    def _graded(self) -> tuple[str, ...]:
        """The levels that the judge grades by log-probability: all but perhaps 10, or none."""
        found = self._ask.gradable([str(level) for level in range(11)])
        return found if len(found) >= 10 else ()


def top_level(levels: Sequence[str]) -> int:
    """The largest level of a judge that grades these; one that grades none writes 10."""
    return max(map(int, levels), default=10)


def slots_request(text: str, example: Example, top: int) -> Request:
    """The answer's lines with every level open."""
    tokens = shown_tokens(example)
    beginnings = [token + "\t" if not place else f"{UNKNOWN}\n{token}\t" for place, token in enumerate(tokens)]
    levels = tuple(str(level) for level in range(top + 1))
    return Request(messages=tuple(prompt(text, tokens, top, in_one_line)), max_tokens=1, slots=tuple(beginnings), alternatives=levels)


def words_request(text: str, example: Example, top: int) -> Request:
    """The answer is written by the judge."""
    tokens = shown_tokens(example)
    return Request(messages=tuple(prompt(text, tokens, top, one_a_line)), max_tokens=TOKENS_PER_LINE * len(tokens))


def shown_tokens(example: Example) -> list[str]:
    """The example's tokens as they stand on a line, each with the space before it.

    Of tokens that share a character, such as the bytes of an emoji, the first shows it and the others are empty.
    """
    text = neutral(example.text).replace("\t", "⇥")
    ends = [0, *accumulate(example.spans[1::2], max)]
    return [text[start:end] for start, end in pairwise(ends)]


def in_one_line(tokens: Sequence[str]) -> str:
    """The window for a judge that is given the lines of its answer."""
    return f"Text: {''.join(tokens)}"


def one_a_line(tokens: Sequence[str]) -> str:
    """The window for a judge that writes the lines, and must know where each token ends."""
    return "\n".join(["Tokens:", *tokens])


def prompt(text: str, tokens: Sequence[str], top: int, show: Callable[[Sequence[str]], str] = one_a_line) -> list[Message]:
    """Worked turns, then the explanation and one window, shown in one way."""
    turns = [Message(role="system", content=SYSTEM.format(top=top))]
    for description, shown, fires in SHOTS:
        worked = shown.split("|")
        answer = "\n".join(f"{token}\t{min(fires.get(place, 0), top)}" for place, token in enumerate(worked))
        turns += [Message(role="user", content=f"Description: {description}\n{show(worked)}"), Message(role="assistant", content=answer)]
    return [*turns, Message(role="user", content=f"Description: {neutral(text)}\n{show(tokens)}")]


def _judgment(item: Item, example: Example, reply: Reply, *, in_words: bool) -> Judgment:
    case = Case(example_id=example.example_id, is_activating=example.kind is Kind.ACTIVATING, shown=example.text)
    if reply.status is not Status.OK:
        return judgment(item, case, reply, status=reply.status, detail=reply.detail)
    tokens = shown_tokens(example)
    levels = written_levels(reply.text, tokens) if in_words else expected_levels(reply.slots, len(tokens))
    if isinstance(levels, str):
        return judgment(item, case, reply, status=Status.PARSE_ERROR, detail=levels)
    return judgment(item, case, reply, levels=levels)


def expected_levels(slots: Sequence[Mapping[str, float]], wanted: int) -> tuple[float, ...] | str:
    """The expectation of each slot's level, sum(v p(v)) / sum(p(v)); or why there is none."""
    if len(slots) != wanted:
        return f"log-probabilities of {len(slots)} levels for {wanted} tokens"
    if not all(slot and all(map(math.isfinite, slot.values())) for slot in slots):
        return "a token without log-probabilities of its levels"
    return tuple(_expectation(slot) for slot in slots)


def _expectation(slot: Mapping[str, float]) -> float:
    largest = max(slot.values())
    weights = {int(level): math.exp(value - largest) for level, value in slot.items()}
    return sum(level * weight for level, weight in weights.items()) / sum(weights.values())


def written_levels(text: str, tokens: Sequence[str]) -> tuple[float, ...] | str:
    """The levels of a reply with exactly one line for each token, in their order; or why it cannot be read."""
    lines = [line for line in text.strip("\r\n").split("\n") if not line.startswith("```")]
    if len(lines) != len(tokens):
        return f"{len(lines)} lines for {len(tokens)} tokens: {text[:80]!r}"
    levels = []
    for line, token in zip(lines, tokens, strict=True):
        found = re.fullmatch(r"(.*)\t\s*(10|\d)\s*", line)
        if found is None or found[1].strip() != token.strip():
            return f"not {token!r}, a tab and a level from 0 to 10: {line[:80]!r}"
        levels.append(float(found[2]))
    return tuple(levels)
