"""JSON as exports write it: text of any script as it is, keys in order, the same bytes each time, no NaN."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from latentry.atomic import beside, write_atomic


def write_json(path: Path, value: Any) -> None:
    """One value, in lines to read."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(path, lambda partial: partial.write_bytes(f"{text}\n".encode()))


def write_lines(path: Path, values: Iterable[Any]) -> int:
    """One value a line, written as they come; returns how many there were."""
    n = 0
    with beside(path) as partial, partial.open("wb") as file:
        for value in values:
            file.write(f"{json.dumps(value, ensure_ascii=False, allow_nan=False)}\n".encode())
            n += 1
    return n
