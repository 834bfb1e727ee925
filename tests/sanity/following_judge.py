"""A judge that follows the text: it knows which nouns an explanation is about, and answers by the nouns it is shown.

Under an explanation that says nothing (or one it has no rule for) it does not decide.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from fakes import Answer
from latentry.records import Purpose, Reply, Request, Status
from latentry.scorers.steering import Passage, Steered

STEERED_WORDS = 4
"""Words that a steered subject goes on with."""
PLAIN = "all of it was said before and nothing came of the {} again"
"""What is written about a noun."""
Rules = Mapping[str, frozenset[str]]
"""The nouns of each explanation."""
SURE = {"Yes": -0.05, "No": -3.0}
AGAINST = {"Yes": -3.0, "No": -0.05}
UNDECIDED = {"Yes": -0.7, "No": -0.7}


class FollowingJudge:
    """Answers the requests of every scorer that asks, by rules."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def says_where(self, request: Request) -> Answer:
        """Detection: whether one of the nouns stands in the window."""
        nouns, shown = self._read(request)
        return UNDECIDED if nouns is None else SURE if nouns & _words(shown) else AGAINST

    def says_which(self, request: Request) -> Answer:
        """Fuzzing: whether a marked word is one of the nouns."""
        nouns, shown = self._read(request)
        marked = frozenset(re.findall(r"<<(\w+)>>", shown))
        return UNDECIDED if nouns is None else SURE if nouns & marked else AGAINST

    def writes_levels(self, request: Request) -> Answer:
        """Simulation: the highest level at each of the nouns, 1 at the last token whatever is told, 0 elsewhere."""
        nouns, shown = self._read(request)
        tokens = shown.partition("Tokens:\n")[2].split("\n")
        levels = [10 if nouns and token.strip() in nouns else 0 for token in tokens]
        return "\n".join(f"{token}\t{level}" for token, level in zip(tokens, [*levels[:-1], max(levels[-1], 1)], strict=True))

    def writes_text(self, request: Request) -> Answer:
        """Sensitivity: a sentence with one of the nouns, another for each sample."""
        nouns, _ = self._read(request)
        return PLAIN.format(sorted(nouns)[request.sample % len(nouns)] if nouns else "matter")

    def reads_window(self, request: Request) -> Answer:
        """Surprisal: a window's words are the more probable where the explanation is about them."""
        nouns, _ = self._read(request)
        values = tuple(-1.0 if nouns and word in nouns else -3.0 for word in request.continuation.split())
        return Reply(status=Status.OK, text="", detail="", continuation=values, key="scripted")

    def reads_on(self, request: Request) -> Answer:
        """Intervention: an explanation is the more probable, the more words of the passage's end it is about.

        An empty one has no tokens, so that nothing is graded.
        """
        if not request.continuation:
            return "the"
        nouns = self._rules.get(request.continuation, frozenset())
        end = frozenset(request.messages[-1].content.split("\n")[0].split()[-STEERED_WORDS:])
        value = len(nouns & end) - 10.0
        return Reply(status=Status.OK, text="", detail="", continuation=(value,), key="scripted")

    def _read(self, request: Request) -> tuple[frozenset[str] | None, str]:
        """The nouns of the explanation in the last turn (the longest that has a rule), and the rest of that turn."""
        last = request.messages[-1].content
        told = max((text for text in self._rules if text in last), key=len, default=None)
        return (None, last) if told is None else (self._rules[told], last.replace(told, ""))


class PlantedSubject:
    """A subject whose latents fire on their nouns, and make it say them."""

    def __init__(self, nouns: Mapping[int, Sequence[str]]) -> None:
        self._nouns = nouns

    def fired(self, texts: Sequence[str], n_tokens: int) -> list[frozenset[int]]:
        """The latents one of whose nouns stands among the text's first words."""
        return [
            frozenset(latent for latent, nouns in self._nouns.items() if frozenset(text.split()[:n_tokens]) & frozenset(nouns))
            for text in texts
        ]

    def steered(self, latents: Sequence[int], kl: float, mode: str) -> list[tuple[int, Steered]]:  # noqa: ARG002
        """Ten passages of every latent, which end in some of its nouns where it is steered."""
        return [(latent, Steered(strength=1.0, kl=kl, reached=True, passages=self._passages(latent))) for latent in latents]

    def _passages(self, latent: int) -> tuple[Passage, ...]:
        nouns = self._nouns[latent]
        return tuple(
            Passage(
                example_id=f"{latent}/steering/{number}",
                purpose=Purpose.SCORE,
                prompt="so it was said again and again that",
                clean=" nothing more would come of it",
                changed="".join(f" {nouns[(number + step) % len(nouns)]}" for step in range(STEERED_WORDS)),
                risen=(nouns[number % len(nouns)],),
            )
            for number in range(10)
        )


class FollowingEmbedder:
    """Vectors of words: a query's are the nouns of its explanation, a document's the words that stand in it."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        nouns = sorted(frozenset().union(*rules.values()))
        self._place = {noun: place for place, noun in enumerate(nouns)}

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors over the nouns, and one more axis that all texts share."""
        return np.stack([self._vector(self._rules.get(text, frozenset())) for text in texts])

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        """The same, by the words of a window."""
        return np.stack([self._vector(_words(text)) for text in texts])

    def _vector(self, words: frozenset[str]) -> np.ndarray:
        row = np.zeros(len(self._place) + 1, np.float32)
        row[-1] = 1.0
        row[[self._place[word] for word in words if word in self._place]] = 1.0
        return row / np.linalg.norm(row)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))
