"""Fuzzing: the judge sees held-out windows with marked stretches and says whether these are what the explanation is about.

Owns the marks of its contrasts (`silent_marks`): copied from a window in which the latent fires, put on silent tokens
(Paulo et al. 2025).
"""

import re
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from latentry.clients.base import Ask
from latentry.metrics import LatentScore
from latentry.prompts import CLOSE, OPEN, marked, marked_stretches, neutral
from latentry.randomness import rng_for
from latentry.records import Example, Judgment, Message
from latentry.registry import ScorerConfig
from latentry.scorers.adaptive import Adaptive, judged_by_rounds, marked_if_stopped
from latentry.scorers.asking import Case, judged_in_lists, judged_singly
from latentry.scorers.base import WRONG_POSITION, Item, ScorerInputs, activating, contrasts
from latentry.scorers.told_apart import told_apart

SYSTEM = (
    "You check descriptions of marked words. You are given a description and a short piece of text in which some words"
    " are marked <<like this>>, and then the marked words alone. Answer Yes if the description fits the marked words, and"
    " No if it does not, even when it fits other words of the text."
)
SHOTS = (
    ("names of musical instruments", "were late, and she carried her <<violin>> up the icy steps while the", "Yes"),
    ("names of musical instruments", "were late, and she carried her violin up the icy <<steps>> while the", "No"),
    ("numbers written in digits", "the bakery sold 36 <<loaves>> and closed at 11:40 on", "No"),
    ("numbers written in digits", "the bakery sold <<36>> loaves and closed at <<11:40>> on", "Yes"),
)
"""Description, text, answer. The same for every request, so that a client computes them once."""

LIST_SYSTEM = (
    "You check descriptions of marked words. You are given a description and several numbered texts in which some words"
    " are marked <<like this>>. For each text decide whether the marked words are what the description is about. Reply"
    " with one list and nothing else: 1 where they are, 0 where they are not, in the order of the texts, such as [0, 1, 1]."
)
LIST_SHOTS = (
    (
        "names of musical instruments",
        (
            "were late, and she carried her <<violin>> up the icy steps while the",
            "a cello <<stood>> unplayed in the hall of the house by",
            "he tuned the <<harp>> by ear, as his mother had",
        ),
        "[1, 0, 1]",
    ),
    (
        'words: "kettle", "stove"',
        ("of soup, she <<said>>, and wiped the stove with a cloth before it", "of soup, she said, and wiped the <<stove>> with a cloth"),
        "[0, 1]",
    ),
)


class Config(ScorerConfig):
    """How fuzzing asks."""

    client: str
    """The judge, by its name under `clients`."""
    contrast: str = WRONG_POSITION
    """`wrong-position`: the latent's own windows with silent tokens marked; else an entry of `examples.contrasts`, marked alike."""
    ask: Literal["single", "list"] = "single"
    """`single`: one window per prompt, graded by log-probability (small local judges); `list`: several, answered 0 or 1 (large ones)."""
    examples_per_prompt: Annotated[int, Field(ge=1)] = 5
    """Windows per prompt, of `list` only. More is cheaper, and lets windows inform each other."""
    max_tokens: Annotated[int, Field(ge=1)] = 200
    """Largest reply, in tokens, of `list` only."""
    adaptive: Adaptive | None = None
    """Stop judging a latent once its score is known closely enough, such as `{max_width: 0.2}`; none: judge every window."""
    max_examples: Annotated[int, Field(ge=1)] | None = None
    """Windows of each kind per latent, the first by rank; none: all. Under `wrong-position` at most half of the
    activating windows are positives, since the contrasts are made of the others."""

    @property
    def is_adaptive(self) -> bool:
        """Whether it stops early."""
        return self.adaptive is not None

    def class_ratio(self, n_activating: int, n_contrast: int) -> tuple[int, int]:
        """One to one under `wrong-position`, where as many contrasts are made as there are positives."""
        return (1, 1) if self.contrast == WRONG_POSITION else super().class_ratio(n_activating, n_contrast)


def build(config: Config, inputs: ScorerInputs) -> "Fuzzing":
    """The scorer."""
    return Fuzzing(config, inputs.seed, inputs.ask(config.client))


class Fuzzing:
    """Asks the judge about the marked stretches of every window of every item."""

    def __init__(self, config: Config, seed: int, ask: Ask) -> None:
        self.contrast = config.contrast
        self._config, self._seed, self._ask = config, seed, ask

    def judge(self, items: Sequence[Item]) -> list[Judgment]:
        """One judgment per item and window used; a contrast without room for marks has none (a shortfall)."""
        cases = [self._cases(item) for item in items]
        return judged_by_rounds(items, cases, self._judge, self._config.adaptive, self._seed)

    def _cases(self, item: Item) -> list[Case]:
        return fuzzed_cases(item, self.contrast, self._config.max_examples, self._seed)

    def _judge(self, items: Sequence[Item], cases: Sequence[Sequence[Case]], number: int) -> list[Judgment]:
        if self._config.ask == "single":
            return judged_singly(self._ask, items, cases, single_prompt)
        return judged_in_lists(
            self._ask,
            items,
            cases,
            list_prompt,
            examples_per_prompt=self._config.examples_per_prompt,
            max_tokens=self._config.max_tokens,
            seed=self._seed,
            part=number,
        )

    def score(self, item: Item, judgments: Sequence[Judgment], rng: np.random.Generator) -> LatentScore:
        """How well the answers tell activating windows from contrasts."""
        by_prompt, adaptive = self._config.ask == "list", self._config.is_adaptive
        score = told_apart(item, judgments, rng, contrast=self.contrast, by_prompt=by_prompt, adaptive=adaptive)
        return marked_if_stopped(score, judgments, self._cases(item)) if adaptive else score


def fuzzed_cases(item: Item, contrast: str, max_examples: int | None, seed: int) -> list[Case]:
    """The item's positives with their own marks, then as many contrasts with marks on silent tokens, where there is room."""
    fires = activating(item)
    if contrast == WRONG_POSITION:
        positives = fires[: min(len(fires) if max_examples is None else max_examples, (len(fires) + 1) // 2)]
        shown = {neutral(example.text) for example in positives}
        others = [example for example in fires[len(positives) :] if neutral(example.text) not in shown]
        wanted, suffix = len(positives), "~wrong"
    else:
        positives, others = fires[:max_examples], contrasts(item, contrast)
        wanted, suffix = len(others) if max_examples is None else max_examples, ""
    cases = [Case(example_id=example.example_id, is_activating=True, shown=marked(example.text, example.marks)) for example in positives]
    n_positives = len(cases)
    for example in others:
        if len(cases) - n_positives == wanted:
            break
        marks = _copied_marks(example, fires, seed)
        if marks:
            cases.append(Case(example_id=example.example_id + suffix, is_activating=False, shown=marked(example.text, marks)))
    return cases


def _copied_marks(example: Example, fires: Sequence[Example], seed: int) -> tuple[int, ...]:
    """Marks for a contrast after the pattern of one other window in which the latent fires; empty where there is no room."""
    patterns = [other for other in fires if other.example_id != example.example_id and marked_runs(other)]
    if not patterns:
        return ()
    drawn = rng_for(seed, f"wrong-position {example.example_id}", example.latent).integers(len(patterns))
    return silent_marks(example, marked_runs(patterns[int(drawn)]))


def marked_runs(example: Example) -> list[tuple[int, int]]:
    """First token and number of tokens of each marked stretch that can be shown."""
    runs = []
    for start, end in marked_stretches(example.text, example.marks):
        inside = [place for place, (a, b) in enumerate(_spans(example)) if a < end and b > start]
        if inside:
            runs.append((inside[0], inside[-1] - inside[0] + 1))
    return runs


def silent_marks(example: Example, runs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Marks of the pattern `runs`, shifted as a whole by the fewest tokens that put all of it on silent ones.

    Of two equally near places the earlier is taken. Empty where there is none. A token whose characters an active one
    shares (a byte of an emoji) is not silent, nor is one that shows nothing.
    """
    spans, free = _spans(example), _free_tokens(example)
    for shift in sorted(range(-len(free), len(free) + 1), key=lambda shift: (abs(shift), shift)):
        places = [(first + shift, first + shift + length) for first, length in runs]
        if all(a >= 0 and b <= len(free) and all(free[a:b]) for a, b in places):
            return tuple(end for a, b in places for end in (spans[a][0], spans[b - 1][1]))
    return ()


def _spans(example: Example) -> list[tuple[int, int]]:
    return list(zip(example.spans[::2], example.spans[1::2], strict=True))


def _free_tokens(example: Example) -> list[bool]:
    spans = _spans(example)
    active = [span for span, activation in zip(spans, example.activations, strict=True) if activation != 0]
    return [
        activation == 0 and bool(example.text[start:end].strip()) and not any(a < end and b > start for a, b in active)
        for (start, end), activation in zip(spans, example.activations, strict=True)
    ]


def single_prompt(item: Item, case: Case) -> list[Message]:
    """Worked turns, then the explanation, then one window."""
    turns = [Message(role="system", content=SYSTEM)]
    for description, text, answer in SHOTS:
        turns += [Message(role="user", content=_question(description, text)), Message(role="assistant", content=answer)]
    return [*turns, Message(role="user", content=_question(neutral(item.text), case.shown))]


def _question(description: str, text: str) -> str:
    words = ", ".join(re.findall(f"{OPEN}(.*?){CLOSE}", text))
    return f"Description: {description}\nText: {text}\nMarked words: {words}\nDoes the description fit the marked words? Answer Yes or No."


def list_prompt(item: Item, cases: Sequence[Case]) -> list[Message]:
    """Worked turns, then the explanation, then the windows, numbered from 1."""
    turns = [Message(role="system", content=LIST_SYSTEM)]
    for description, texts, answer in LIST_SHOTS:
        turns += [Message(role="user", content=_list_question(description, texts)), Message(role="assistant", content=answer)]
    return [*turns, Message(role="user", content=_list_question(neutral(item.text), [case.shown for case in cases]))]


def _list_question(description: str, texts: Sequence[str]) -> str:
    numbered = "\n".join(f"{number}. {text}" for number, text in enumerate(texts, start=1))
    return f"Description: {description}\nTexts:\n{numbered}"
