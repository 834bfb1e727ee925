"""The pages of the documentation as tests read them: README.md, CONTRIBUTING.md and docs/*.md, with their fenced blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block."""

    page: str
    """Such as `docs/index.md`."""
    line: int
    """Where it begins."""
    language: str
    """As its fence names it; empty where it names none."""
    text: str

    @property
    def name(self) -> str:
        """For the test's name."""
        return f"{self.page}:{self.line}"


def name_of(page: Path) -> str:
    """A page's path from the root."""
    return page.relative_to(ROOT).as_posix()


def blocks(*languages: str, pages: tuple[Path, ...] = PAGES) -> list[Block]:
    """The blocks in these languages; all where none is named."""
    return [block for page in pages for block in _blocks(page) if not languages or block.language in languages]


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page=name_of(page), line=line, language=found["language"], text=found["text"])


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))
