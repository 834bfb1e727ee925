"""Intruder: of five windows, four make the latent fire and one does not; the judge names that one. No explanation is needed.

Windows are held-out ones, and one activating window may stand in several trials. Always true: the four of a trial are
different windows of one decile, and each trial's draw depends on seed, latent, decile and its number alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentry.clients.base import Ask
from latentry.metrics import LatentScore, mean_score
from latentry.prompts import neutral
from latentry.randomness import rng_for
from latentry.records import Example, Judgment, Message, Reply, Request, Status
from latentry.registry import ScorerConfig
from latentry.scorers.asking import Case, judgment
from latentry.scorers.base import Item, ScorerInputs, activating, contrasts

N_WINDOWS, N_TRIALS, N_DECILES = 5, 3, 10
NUMBERS = tuple(str(number) for number in range(1, N_WINDOWS + 1))
SYSTEM = (
    "You are given five numbered texts. Four of them share something, often a small thing: a word, a kind of word, a way of"
    " writing. One does not have it. Answer with the number of that one and nothing else."
)
SHOTS = (
    (
        (
            "were late, and she carried her violin up the icy steps while the",
            "a cello stood unplayed in the hall of the house by",
            "he tuned the harp by ear, as his mother had",
            "of soup, she said, and wiped the ladder with a cloth before it",
            "nor could the flute be heard above the rain that fell on",
        ),
        "4",
    ),
    (
        (
            "and whether the roof would hold was a question for another",
            "the bakery sold 36 loaves and closed at 11:40 on",
            "in 1907 they moved to the coast, where the",
            "was 12 feet long, and as wide as the road would",
            "about 400 of them stayed through the winter, and",
        ),
        "1",
    ),
)
"""Texts and the number of the intruder. The same for every request, so that a client computes them once."""


class Config(ScorerConfig):
    """Who is asked; `max_examples` counts trials."""

    client: str
    """The judge, by its name under `clients`."""
    contrast: str = "random"
    """Entry of `examples.contrasts` that the intruders come from."""

    @property
    def reads_explanations(self) -> bool:
        """It does not."""
        return False

    @property
    def has_null(self) -> bool:
        """Chance is one in five."""
        return False

    @property
    def least_activating(self) -> int:
        """Four windows of every decile."""
        return (N_WINDOWS - 1) * N_DECILES


def build(config: Config, inputs: ScorerInputs) -> "Intruder":
    """The scorer."""
    return Intruder(config, inputs.seed, inputs.ask(config.client))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Five windows, or why there are not five."""

    trial_id: str
    texts: tuple[str, ...]
    """In the order shown; empty where there are too few windows."""
    intruder: int
    """Number of the intruder, from 1."""
    shortfall: str = ""
    """What is lacking; empty where nothing is."""


class Intruder:
    """Asks the judge for the intruder of every trial of every latent."""

    def __init__(self, config: Config, seed: int, ask: Ask) -> None:
        self.contrast = config.contrast
        self._max_trials, self._seed, self._ask = config.max_examples, seed, ask

    def judge(self, items: Sequence[Item]) -> list[Judgment]:
        """One judgment per trial: `value` 1 where the intruder was named, 0 where another was; `undersampled` where windows lack."""
        pairs = [(item, trial) for item in items for trial in trials(item, self.contrast, self._seed)[: self._max_trials]]
        asked = [trial for _, trial in pairs if not trial.shortfall]
        requests = [Request(messages=tuple(prompt(trial.texts)), max_tokens=1, alternatives=NUMBERS) for trial in asked]
        replies = iter(self._ask(requests))
        return [_short(item, trial) if trial.shortfall else _judgment(item, trial, next(replies)) for item, trial in pairs]

    def score(self, item: Item, judgments: Sequence[Judgment], rng: np.random.Generator) -> LatentScore:  # noqa: ARG002
        """Share of the intruders found."""
        return mean_score("accuracy", judgments, rng)


def trials(item: Item, contrast: str, seed: int) -> list[Trial]:
    """All trials of a latent, one of each decile before the second of any, so that a prefix is even over the deciles."""
    fires, silent = activating(item), contrasts(item, contrast)
    rounds = [rng_for(seed, f"intruder round {number}", item.latent).permutation(N_DECILES) + 1 for number in range(N_TRIALS)]
    return [
        _trial(item.latent, int(decile), number, [one for one in fires if one.decile == decile], silent, seed)
        for number, deciles in enumerate(rounds)
        for decile in deciles
    ]


def _trial(latent: int, decile: int, number: int, fires: Sequence[Example], silent: Sequence[Example], seed: int) -> Trial:
    trial_id = f"{latent}/intruder/{decile}/{number}"
    if len(fires) < N_WINDOWS - 1 or not silent:
        lacking = f"{len(fires)} activating windows in decile {decile} of the {N_WINDOWS - 1} needed" if silent else "no contrast"
        return Trial(trial_id=trial_id, texts=(), intruder=0, shortfall=lacking)
    rng = rng_for(seed, f"intruder {decile} {number}", latent)
    texts = [neutral(fires[int(i)].text) for i in rng.permutation(len(fires))[: N_WINDOWS - 1]]
    intruder = int(rng.integers(N_WINDOWS))
    texts.insert(intruder, neutral(silent[int(rng.integers(len(silent)))].text))
    return Trial(trial_id=trial_id, texts=tuple(texts), intruder=intruder + 1)


def prompt(texts: Sequence[str]) -> list[Message]:
    """Worked turns, then five numbered windows."""
    turns = [Message(role="system", content=SYSTEM)]
    for shown, answer in SHOTS:
        turns += [Message(role="user", content=_question(shown)), Message(role="assistant", content=answer)]
    return [*turns, Message(role="user", content=_question(texts))]


def _question(texts: Sequence[str]) -> str:
    numbered = "\n".join(f"{number}. {text}" for number, text in zip(NUMBERS, texts, strict=True))
    return f"{numbered}\nWhich text is the one without it? Answer with its number."


def named(reply: Reply) -> int | None:
    """The number that a reply names: the likeliest where it has log-probabilities, else the first word; None where there is none."""
    graded = [(value, -int(text)) for text, value in reply.alternatives.items() if text.strip() in NUMBERS]
    if graded:
        return -max(graded)[1]
    first = None if reply.alternatives else re.match(r"\W*([1-5])\b", reply.text)
    return None if first is None else int(first[1])


def _case(trial: Trial) -> Case:
    return Case(example_id=trial.trial_id, is_activating=True, shown="")


def _short(item: Item, trial: Trial) -> Judgment:
    return judgment(item, _case(trial), None, status=Status.UNDERSAMPLED, detail=trial.shortfall)


def _judgment(item: Item, trial: Trial, reply: Reply) -> Judgment:
    # A reply of one token is cut by nature, so TRUNCATED is no failure here.
    if reply.status not in (Status.OK, Status.TRUNCATED):
        return judgment(item, _case(trial), reply, status=reply.status, detail=reply.detail)
    number = named(reply)
    if number is None:
        said = f"no number from 1 to {N_WINDOWS}: {reply.text[:80]!r}"
        return judgment(item, _case(trial), reply, status=Status.PARSE_ERROR, detail=said)
    return judgment(item, _case(trial), reply, value=float(number == trial.intruder))
