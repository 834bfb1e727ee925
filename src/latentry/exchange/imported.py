"""What is taken of others' rows, and what is left out and why: one text per latent, and its scores.

How rows are read is the formats' (`from_*.py`). Always true: every row and every score that was read is taken or counted under the
reason why it was not, the first of each with its place; and of two texts of one latent the choice is told.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from latentry.errors import ExchangeError
from latentry.exchange.reading import Unreadable
from latentry.exchange.source import Entry, Score
from latentry.metric_kinds import METRIC_KINDS

UNREADABLE = "unreadable"
OUTSIDE = "outside the width of the SAE"
EMPTY = "without a text"
NOT_CHOSEN = "not chosen by --where"
SAME = "the same text of a latent again"
OTHER = "another text of a latent that has one (the latest is taken, else the first)"
NO_NUMBER = "no number"
OUT_OF_RANGE = "outside the range of its metric"
OF_OTHER = "of no text that is taken"
TWICE = "a second score of one latent, scorer and metric (the first is taken)"

_LIMITS = {"correlation": (-1.0, 1.0), "spearman": (-1.0, 1.0)}
"""Of what others call a metric, beside those of our own."""
MAX_CHARS = 10_000
"""Longest text taken for an explanation; longer ones are something else."""
_SHOWN = 5
_VALUES = 1000
"""Distinct values of a label that are told apart; where there are more it is no label."""
_MOST = 2**32
"""Latents of a SAE whose width params do not say."""


@dataclass(slots=True)
class LeftOut:
    """Counts by reason, with the first of each. It is filled while rows are read."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[str]] = field(default_factory=dict)

    def add(self, why: str, place: str, detail: object = "", n: int = 1) -> None:
        """Count rows under a reason."""
        if not n:
            return
        self.counts[why] += n
        shown = self.first.setdefault(why, [])
        if len(shown) < _SHOWN:
            shown.append(f"{place} ({detail})" if detail != "" else place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The explanation that is taken of a latent."""

    text: str
    place: str
    about: Mapping[str, str]


@dataclass(slots=True)
class Taken:
    """All that was taken and left out. It is filled while rows are read, and sound when all were."""

    width: int | None
    texts: dict[int, Text] = field(default_factory=dict)
    scores: dict[int, dict[tuple[str, str, bool], Score]] = field(default_factory=dict)
    n_rows: int = 0
    """Rows of explanations read."""
    n_scores: int = 0
    """Scores read, rows of scores that could not be read among them."""
    left: LeftOut = field(default_factory=LeftOut)
    """Of the rows of explanations."""
    left_scores: LeftOut = field(default_factory=LeftOut)

    def without_text(self) -> list[int]:
        """Latents of the SAE that no text was found of; none where its width is not known."""
        return [latent for latent in range(self.width or 0) if latent not in self.texts]

    def n_scores_taken(self) -> int:
        """Scores that stand in the table."""
        return sum(map(len, self.scores.values()))


def sift(rows: Iterable[Entry | Unreadable], width: int | None, where: Mapping[str, str]) -> Taken:
    """One text per latent, and the scores of it.

    Args:
        width: latents of the SAE; None where params do not say.
        where: the value of each label that rows are chosen by.

    Raises:
        ExchangeError: a label has several values and none is chosen, there is no such label or value, or nothing is left.
    """
    taken, labels = Taken(width=width), _Labels(where)
    for row in rows:
        if isinstance(row, Unreadable):
            _leave_unreadable(taken, row)
        else:
            _count(taken, row)
            if labels.chosen(row):
                _take(taken, row)
            else:
                _leave(taken, row, NOT_CHOSEN)
    labels.check()
    for latent in [latent for latent in taken.scores if latent not in taken.texts]:
        taken.left_scores.add(OF_OTHER, f"latent {latent}", n=len(taken.scores.pop(latent)))
    if taken.n_scores and not taken.n_rows:
        raise ExchangeError(
            f"{taken.n_scores:,} scores and no explanation: a text is wanted beside them (in rows a column `text`); name a file that has both"
        )
    if not taken.texts:
        why = "; ".join(f"{n:,} {reason}: {taken.left.first[reason][0]}" for reason, n in taken.left.counts.items())
        raise ExchangeError(
            f"of {taken.n_rows:,} rows none is an explanation of this SAE ({why or 'there are none'}); name another file, SAE or --where"
        )
    return taken


def _leave_unreadable(taken: Taken, row: Unreadable) -> None:
    if row.holds_scores:
        taken.n_scores += 1
        taken.left_scores.add(UNREADABLE, row.place, row.why)
    else:
        taken.n_rows += 1
        taken.left.add(UNREADABLE, row.place, row.why)


def _count(taken: Taken, row: Entry) -> None:
    taken.n_rows += row.has_text
    taken.n_scores += len(row.scores)


def _leave(taken: Taken, row: Entry, why: str, detail: object = "") -> None:
    taken.left.add(why, row.place, detail, n=int(row.has_text))
    taken.left_scores.add(why, row.place, detail, n=len(row.scores))


def _take(taken: Taken, row: Entry) -> None:
    latent = index_of(row.latent)
    if latent is None:
        _leave(taken, row, UNREADABLE, f"{_short(row.latent)} is no latent")
    elif not 0 <= latent < (_MOST if taken.width is None else taken.width):
        _leave(taken, row, OUTSIDE, _short(row.latent))
    elif not row.has_text or _take_text(taken, row, latent):
        _take_scores(taken, row, latent)
    else:
        taken.left_scores.add(OF_OTHER, row.place, f"latent {latent}", n=len(row.scores))


def _take_text(taken: Taken, row: Entry, latent: int) -> bool:
    """Whether the row's text is the one of its latent; what is not taken is counted."""
    if fault := _fault_of(row.text):
        taken.left.add(EMPTY if fault == EMPTY else UNREADABLE, row.place, f"latent {latent}" if fault == EMPTY else fault)
        return False
    held = taken.texts.get(latent)
    if held is not None and held.text.split() == row.text.split():
        taken.left.add(SAME, row.place, f"latent {latent}, taken from {held.place}")
        return True
    if held is not None and not row.about.get("date", "") > held.about.get("date", ""):
        taken.left.add(OTHER, row.place, f"latent {latent}, taken from {held.place}")
        return False
    if held is not None:
        taken.left.add(OTHER, held.place, f"latent {latent}, taken from {row.place}")
        taken.left_scores.add(OF_OTHER, held.place, f"latent {latent}", n=len(taken.scores.pop(latent, {})))
    taken.texts[latent] = Text(text=row.text.strip(), place=row.place, about=row.about)
    return True


def _take_scores(taken: Taken, row: Entry, latent: int) -> None:
    for score in row.scores:
        key, number = (score.scorer, score.metric, score.recomputed), number_of(score.score)
        held = taken.scores.setdefault(latent, {})
        if number is None:
            taken.left_scores.add(NO_NUMBER, row.place, f"latent {latent}, {score.scorer}: {_short(score.score)}")
        elif limits := _exceeded(score.metric, number):
            taken.left_scores.add(OUT_OF_RANGE, row.place, f"latent {latent}, {score.scorer}: {score.metric} {number:g}, {limits}")
        elif key in held:
            taken.left_scores.add(TWICE, row.place, f"latent {latent}, {score.scorer}")
        else:
            held[key] = score


def index_of(found: Any) -> int | None:
    """The number of a latent, also as a text or a float, whatever its size; None where it is no whole number."""
    if isinstance(found, bool):
        return None
    if isinstance(found, float):
        return int(found) if found.is_integer() else None
    match = re.fullmatch(r"\s*(-?\d{1,400})(\.0*)?\s*", str(found), re.ASCII)
    return int(match[1]) if match else None


def number_of(found: Any) -> float | None:
    """A score as a finite number, also from a text; None where it is none."""
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        return None
    try:
        number = float(found)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _exceeded(metric: str, number: float) -> str:
    """The range that a number is not in; empty where it is, or where the metric is none that is known."""
    name = metric.strip().lower()
    limits = _LIMITS.get(name) or (METRIC_KINDS[name].limits if name in METRIC_KINDS else None)
    return "" if limits is None or limits[0] <= number <= limits[1] else f"not in {limits[0]:g} to {limits[1]:g}"


def _fault_of(text: Any) -> str:
    """Why what stands for a text is none; empty where it is one."""
    if text is None or (isinstance(text, float) and math.isnan(text)) or (isinstance(text, str) and not text.strip()):
        return EMPTY
    if not isinstance(text, str):
        return f"{_short(text)} is no text"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "its text holds half of a character (a lone surrogate)"
    return f"its text has {len(text):,} characters; at most {MAX_CHARS:,}" if len(text) > MAX_CHARS else ""


def _short(found: Any) -> str:
    shown = repr(found) if not isinstance(found, int) or abs(found) < 10**40 else "a number of more than 40 digits"
    return shown if len(shown) <= 60 else f"{shown[:60]}..."


class _Labels:
    """The values of each label, and whether they leave one explainer's explanations of one SAE."""

    def __init__(self, where: Mapping[str, str]) -> None:
        self._where = where
        self._all: dict[str, Counter[str]] = {}
        self._kept: dict[str, Counter[str]] = {}
        self._found: set[str] = set()
        """The choices that some row fits."""

    def chosen(self, row: Entry) -> bool:
        """Whether the row has every value that is chosen."""
        _add(self._all, row.labels)
        fits = {name for name, value in self._where.items() if row.labels.get(name) == value}
        self._found |= fits
        wanted = len(fits) == len(self._where)
        if wanted:
            _add(self._kept, row.labels)
        return wanted

    def check(self) -> None:
        """Tell what is still to be chosen, and choices that there are not.

        Raises:
            ExchangeError: as `sift`.
        """
        if faults := [*self._unknown(), *self._mixed()]:
            raise ExchangeError("; ".join(faults))

    def _unknown(self) -> Iterator[str]:
        for name, value in self._where.items():
            if name not in self._all:
                yield f"--where {name}={value}: rows have no {name!r}; one of {', '.join(map(_short, sorted(self._all))) or 'none'}"
            elif name not in self._found:
                yield f"--where {name}={value}: no row has that; {name} is {_counted(self._all[name])}"

    def _mixed(self) -> Iterator[str]:
        for name, values in self._kept.items():
            if len(values) > 1:
                best = values.most_common(1)[0][0]
                yield f"{name} has {len(values):,} values: {_counted(values)}; choose one, such as --where {name}={_short(best)}"


def _add(counters: dict[str, Counter[str]], labels: Mapping[str, str]) -> None:
    for name, value in labels.items():
        values = counters.setdefault(name, Counter())
        if value in values or len(values) < _VALUES:
            values[value] += 1


def _counted(values: Counter[str]) -> str:
    shown = ", ".join(f"{_short(value)} ({n:,} rows)" for value, n in values.most_common(10))
    return shown + (f" and {len(values) - 10} more" if len(values) > 10 else "")
