"""Lexical: the words and phrases most over-represented where the latent fires; no model, the baseline for every other.

Log-odds of the explain split's activating windows against its contrasts, with an informative Dirichlet prior (Monroe,
Colaresi and Quinn 2008, "Fightin' Words", equations 15 to 22); occurrences under a mark count for more.
"""

import hashlib
import json
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from latentry.clients.base import Ask
from latentry.explainers.base import LatentExamples, SaeFacts, activating, silent, unexplained
from latentry.prompts import marked_stretches
from latentry.records import Example, Explanation, Status
from latentry.registry import ExplainerConfig

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Scripts written without spaces (Thai to Khmer, kana, Han): each of their letters is a word, and phrases join them."""
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+(?:['’][^\W{_UNSPACED}]+)*|\n+|[^\w\s]")
_NUMBER, _LONGEST_NUMBER = 0xE000, 20
"""Any number of n digits is also the term of this private character plus n: numbers themselves seldom recur."""
_PRIOR_WORDS = 500.0
"""Size of the prior: as many words as it weighs, spread like the words of both sides together."""
_ABSORBED_FRACTION = 0.7
"""A word is dropped for a phrase that makes up this part of its occurrences ("united" for "united states")."""


class Config(ExplainerConfig):
    """What is counted and how much is said."""

    contrast: str | None = None
    """Entry of `examples.contrasts` to compare with; none: all in the explain split."""
    n_terms: Annotated[int, Field(ge=1)] = 8
    """Largest number of words and phrases named."""
    min_z: float = 1.65
    """Smallest z-score of the log-odds of a term named after the first; 1.65 is 5 %, one-sided."""
    max_words: Annotated[int, Field(ge=1, le=5)] = 3
    """Longest phrase, in words."""
    marked_weight: Annotated[float, Field(ge=1)] = 5.0
    """An occurrence that touches a marked stretch counts as this many."""
    max_examples: Annotated[int, Field(ge=1)] | None = None
    """Windows of each kind looked at, the first by rank; none: all."""


def build(config: Config, name: str, seed: int, ask: Callable[[str], Ask], sae: SaeFacts) -> "Lexical":  # noqa: ARG001
    """The explainer."""
    return Lexical(config, name)


class Lexical:
    """Explains each latent by its over-represented terms."""

    def __init__(self, config: Config, name: str) -> None:
        self._config, self._name = config, name

    def explain(self, latents: Sequence[LatentExamples]) -> list[Explanation]:
        """One explanation per latent; UNDERSAMPLED where no term stands out."""
        return [unexplained(latent, self._name) or self._explained(latent) for latent in latents]

    def _explained(self, latent: LatentExamples) -> Explanation:
        fires = activating(latent)[: self._config.max_examples]
        quiet = self._contrasts(latent)
        terms = over_represented(fires, quiet, self._config)
        text = f"words: {', '.join(_named(term) for term in terms)}" if terms else None
        return Explanation(
            latent=latent.latent,
            explainer=self._name,
            text=text,
            status=Status.OK if terms else Status.UNDERSAMPLED,
            detail="" if terms else f"no word stands out in {len(fires)} activating windows against {len(quiet)} contrasts",
            prompt_digest=_inputs_digest(self._config, [*fires, *quiet]),
            reply=None,
            reply_key=None,
        )

    def _contrasts(self, latent: LatentExamples) -> list[Example]:
        chosen = [example for example in silent(latent) if self._config.contrast in (None, example.contrast)]
        return chosen[: self._config.max_examples]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Occurrence:
    term: str
    is_marked: bool


def over_represented(fires: Sequence[Example], silent: Sequence[Example], config: Config) -> list[str]:
    """The terms that stand out, the strongest first; terms that only repeat a stronger one are left out."""
    inside, outside, marked_windows = defaultdict[str, float](float), Counter[str](), Counter[str]()
    for example in fires:
        occurrences = list(_occurrences(example, config.max_words))
        for occurrence in occurrences:
            inside[occurrence.term] += config.marked_weight if occurrence.is_marked else 1.0
        marked_windows.update({occurrence.term for occurrence in occurrences if occurrence.is_marked})
    for example in silent:
        outside.update(occurrence.term for occurrence in _occurrences(example, config.max_words))
    scores = z_scores(inside, outside)
    recurring = {term for term in scores if marked_windows[term] > 1}
    candidates = recurring or {term for term in scores if marked_windows[term]} or set(scores)
    ordered = sorted((term for term in candidates if scores[term] > 0), key=lambda term: (-scores[term], term))
    chosen: list[str] = []
    for term in _without_absorbed(ordered, inside):
        if (chosen and scores[term] < config.min_z) or len(chosen) == config.n_terms:
            break
        if not any(_repeats(term, other) for other in chosen):
            chosen.append(term)
    return chosen


def z_scores(inside: Mapping[str, float], outside: Mapping[str, float]) -> dict[str, float]:
    """z-score of each term's log-odds inside against outside (Monroe et al. 2008, equations 16, 20 and 22)."""
    n_inside, n_outside = sum(inside.values()), sum(outside.values())
    total = n_inside + n_outside
    scores = {}
    for term in inside:
        a, b = inside[term], outside.get(term, 0.0)
        prior = _PRIOR_WORDS * (a + b) / total
        delta = _log_odds(a + prior, n_inside + _PRIOR_WORDS) - _log_odds(b + prior, n_outside + _PRIOR_WORDS)
        scores[term] = delta / math.sqrt(1 / (a + prior) + 1 / (b + prior))
    return scores


def _log_odds(count: float, total: float) -> float:
    return math.log(count) - math.log(max(total - count, 1e-9))


def _without_absorbed(ordered: Sequence[str], inside: Mapping[str, float]) -> list[str]:
    phrases = [term for term in ordered if _words(term) > 1]
    return [
        term
        for term in ordered
        if not any(inside[phrase] >= _ABSORBED_FRACTION * inside[term] and _contains(phrase, term) for phrase in phrases if phrase != term)
    ]


def _words(term: str) -> int:
    return len(_WORD.findall(term))


def _contains(longer: str, shorter: str) -> bool:
    """Whether the words of one term stand in the other one in a row."""
    return f"\x1f{_spelled(shorter)}\x1f" in f"\x1f{_spelled(longer)}\x1f"


def _repeats(term: str, other: str) -> bool:
    """Whether one term holds the other, or two phrases share half of the first one's words (pieces of one longer phrase)."""
    words, others = _WORD.findall(term), _WORD.findall(other)
    overlap = min(len(words), len(others)) > 1 and 2 * len({*words} & {*others}) >= len(words)
    return overlap or _contains(term, other) or _contains(other, term)


def _spelled(term: str) -> str:
    return "\x1f".join(_WORD.findall(term))


def _occurrences(example: Example, max_words: int) -> Iterable[_Occurrence]:
    """Every word, and every phrase of words with nothing but white space between, in lower case."""
    stretches = marked_stretches(example.text, example.marks)
    words = list(_WORD.finditer(example.text))
    for first in range(len(words)):
        for last in range(first, min(first + max_words, len(words))):
            if last > first and not (_joins(words[first]) and _joins(words[last])):
                break
            start, end = words[first].start(), words[last].end()
            is_marked = any(a < end and b > start for a, b in stretches)
            yield _Occurrence(term=_term(example.text[start:end]), is_marked=is_marked)
        if words[first][0].isdigit() and 1 < len(words[first][0]) <= _LONGEST_NUMBER:
            a, b = words[first].span()
            is_marked = any(start < b and end > a for start, end in stretches)
            yield _Occurrence(term=chr(_NUMBER + len(words[first][0])), is_marked=is_marked)


def _joins(word: re.Match[str]) -> bool:
    return word[0][0].isalnum()


def _term(text: str) -> str:
    return "\n" if not text.strip() else " ".join(text.lower().split())


def _named(term: str) -> str:
    """A term as a reader meets it: quoted, a sign with its name."""
    if term == "\n":
        return "line break"
    if _NUMBER < ord(term[0]) <= _NUMBER + _LONGEST_NUMBER:
        return f"{ord(term[0]) - _NUMBER}-digit number"
    if len(term) == 1 and not term.isalnum():
        return f'"{term}" ({unicodedata.name(term, "sign").lower()})'
    return f'"{term}"'


def _inputs_digest(config: Config, examples: Sequence[Example]) -> str:
    """Of what the explanation follows from, in place of a prompt."""
    seen = [config.model_dump(mode="json"), [[example.text, example.marks, example.kind.value] for example in examples]]
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()
