"""A judge that follows the text: it knows which nouns an explanation is about, and answers by the nouns it is shown.

Under an explanation that says nothing (or one it has no rule for) it does not decide.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from fakes import Answer
from latentry.records import Request

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

    def _read(self, request: Request) -> tuple[frozenset[str] | None, str]:
        """The nouns of the explanation in the last turn (the longest that has a rule), and the rest of that turn."""
        last = request.messages[-1].content
        told = max((text for text in self._rules if text in last), key=len, default=None)
        return (None, last) if told is None else (self._rules[told], last.replace(told, ""))


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
