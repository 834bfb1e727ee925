"""Data as script files, since browsers fetch nothing from a page that was opened from disk: each hands its value to the page by name.

A page calls for a chunk by a `<script>` element; the file says `latentry_chunk("name", value)`. Values are JSON, which is
JavaScript; arrays of numbers are base64 of little-endian bytes.
"""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped


class ChunkFolder:
    """Where the chunks of one site are written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, value: Any) -> None:
        """Write one chunk; `name` is its path below the folder, without the ending."""
        path = self._folder / f"{name}.js"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        # a lone surrogate, which a broken byte may have left in a text, has no place in UTF-8
        path.write_bytes(f"latentry_chunk({json.dumps(name)},{text})\n".encode("utf-8", "replace"))


def packed(values: Shaped[np.ndarray, " value"], dtype: str) -> str:
    """Numbers as base64 of their little-endian bytes; `dtype` such as `<u4`."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=dtype).tobytes()).decode("ascii")
