"""A source of explanations that others made: its files, its rows, and what it says of itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from latentry.errors import ExchangeError
from latentry.exchange.reading import Unreadable

_LONGEST = 200
"""Characters kept of what a source says of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Of how many windows a score was made; None where that is not known."""

    n: int | None = None
    n_activating: int | None = None
    n_contrast: int | None = None
    n_failed: int | None = None
    """Without an answer, and not among the others."""


_UNKNOWN = Counts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One number that others gave an explanation."""

    scorer: str
    metric: str
    score: Any
    """As it was found; what is no finite number is left out."""
    definition: str
    recomputed: bool = False
    """Whether our metrics made it, from their answers."""
    counts: Counts = _UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of others: a text, scores, or both."""

    place: str
    latent: Any
    """As it was found."""
    text: Any = None
    """As it was found."""
    has_text: bool = True
    """Whether it is a row of an explanation, be its text empty; else of scores alone."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What tells the explanations of one SAE by one explainer from others beside them, by the source's own names."""
    about: Mapping[str, str] = field(default_factory=dict)
    """explainer_model, method, author, date: what is known of these."""
    scores: tuple[Score, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a format's `source(path)` gives."""

    root: Path
    """The file or folder that was named."""
    files: tuple[Path, ...]
    """Those that are read, in order."""
    rows: Iterable[Entry | Unreadable]
    """Read as they are asked for."""
    provenance: Mapping[str, str]
    """What it says of all of its explanations together."""


def said(found: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    """What is known of a row or a source, by our names, from theirs; what is not there is left out."""
    return {ours: plain(found[theirs]) for theirs, ours in names.items() if found.get(theirs) not in (None, "")}


def plain(found: Any) -> str:
    """What a source says of itself, as a text of bounded length that can be encoded."""
    return str(found)[:_LONGEST].encode("utf-8", "replace").decode()


def require_folder(path: Path, kind: str, wanted: str) -> None:
    """Refuse what is no folder.

    Raises:
        ExchangeError: it is a file, or not there.
    """
    if not path.is_dir():
        raise ExchangeError(f"{path}: is {'a file' if path.exists() else 'not there'}; {kind} wants a folder: {wanted}")


def require_file(path: Path, kind: str, wanted: str) -> None:
    """Refuse what is no file.

    Raises:
        ExchangeError: it is a folder, a pipe, or not there.
    """
    if not path.is_file():
        raise ExchangeError(f"{path}: is {'no file' if path.exists() else 'not there'}; {kind} wants a file: {wanted}")
