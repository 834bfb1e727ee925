"""Writes the generated parts of docs/: `make docs`. A test fails when one of them is stale."""

import ast
import configparser
from collections.abc import Iterator, Mapping
from pathlib import Path

from generated import between_marks
from params_page import params_page

from latentry.contracts import as_markdown

DOCS = Path(__file__).parent
ROOT = DOCS.parent


def pages() -> Mapping[Path, str]:
    """Every page with a generated part, whole, as it should be."""
    rooms = DOCS / "architecture.md"
    return {
        DOCS / "contracts.md": as_markdown(),
        DOCS / "params.md": params_page(),
        rooms: between_marks(rooms.read_text(encoding="utf-8"), rooms, list(rooms_table())),
    }


def rooms_table() -> Iterator[str]:
    """The layers of .importlinter from the lowest, each room with the first sentence of its file."""
    yield from ("| layer | room | owns |", "|---|---|---|")
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter", encoding="utf-8")
    layers = contracts["importlinter:contract:layers"]["layers"].split("\n")
    for number, layer in enumerate(reversed([line for line in layers if line.strip()])):
        for room in sorted(name.strip() for name in layer.split("|")):
            yield f"| {number} | `{room.removeprefix('latentry.')}` | {_first_line(room)} |"


def _first_line(module: str) -> str:
    """Of the file's docstring; of a room whose `__init__.py` has none, its `base.py`'s."""
    place = ROOT / "src" / Path(*module.split("."))
    files = [place / "__init__.py", place / "base.py"] if place.is_dir() else [place.with_suffix(".py")]
    texts = [ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "" for file in files if file.is_file()]
    return next(filter(None, texts), "").partition("\n")[0].replace("|", "\\|")


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
