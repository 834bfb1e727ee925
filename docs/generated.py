"""Writes what a script made into its page, between two marks; the rest of the page is written by hand."""

from collections.abc import Sequence
from pathlib import Path

BEGIN, END = "<!-- made by a script: begin -->", "<!-- made by a script: end -->"


def write_between_marks(page: Path, lines: Sequence[str]) -> None:
    """Replace what stands between the marks.

    Raises:
        ValueError: the page lacks a mark.
    """
    page.write_text(between_marks(page.read_text(encoding="utf-8"), page, lines), encoding="utf-8")


def between_marks(text: str, page: Path, lines: Sequence[str]) -> str:
    """The page's text with these lines between the marks.

    Raises:
        ValueError: the page lacks a mark.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page}: lacks {BEGIN!r} or {END!r}; put them where the tables belong")
    return f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}"
