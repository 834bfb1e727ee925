"""The head of a GGUF file, walked before any library reads it: every length and count must fit the file that states it.

Readers of the format trust these numbers: one of them makes a loop or a list of any length. Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import struct
from pathlib import Path
from typing import BinaryIO

from latentry.errors import SourceError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_VERSIONS = (2, 3)
_MOST = {
    "block_count": 10_000,
    "embedding_length": 1 << 24,
    "feed_forward_length": 1 << 28,
    "vocab_size": 1 << 28,
    "attention.head_count": 1 << 20,
}
"""Of a model's sizes by the ends of their names: more layers or a wider stream than these has no model."""
_LEAST_ENTRY, _LEAST_TENSOR = 13, 24
"""Bytes of the shortest entry and the shortest tensor's description."""
_MOST_DIMS = 8


def check_gguf(path: Path) -> None:
    """See that a GGUF file's head says nothing that the file cannot hold.

    Raises:
        SourceError: it is no GGUF file of a known version, is cut short, or states sizes beyond itself or beyond any model.
    """
    with path.open("rb") as file:
        try:
            _walk(_Head(file, path))
        except (struct.error, UnicodeDecodeError) as error:
            raise SourceError(f"{path}: is cut short or damaged ({error}), wanted a whole GGUF file; download it again") from error


class _Head:
    """Reads forward, and never past what the file holds."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self.path, self.size = file, path, path.stat().st_size

    def take(self, letters: str) -> int:
        (value,) = struct.unpack(f"<{letters}", self._file.read(struct.calcsize(f"<{letters}")))
        return value

    def text(self) -> str:
        return self._file.read(self.fitting(self.take("Q"), 1, "a text")).decode()

    def skip(self, n_bytes: int) -> None:
        self._file.seek(n_bytes, 1)

    def fitting(self, count: int, n_bytes: int, what: str) -> int:
        """The count, if so many things of so many bytes fit in the rest of the file."""
        left = self.size - self._file.tell()
        if count * n_bytes > left:
            raise SourceError(
                f"{self.path}: states {count:,} of {what}, allowed is what fits in the {left:,} bytes left; it is damaged: download it again"
            )
        return count


def _walk(head: _Head) -> None:
    magic, version = head.take("I"), head.take("I")
    if magic != int.from_bytes(b"GGUF", "little") or version not in _VERSIONS:
        raise SourceError(f"{head.path}: is no GGUF file of version {' or '.join(map(str, _VERSIONS))}; name one that is as `weights`")
    n_tensors = head.fitting(head.take("Q"), _LEAST_TENSOR, "tensors")
    n_entries = head.fitting(head.take("Q"), _LEAST_ENTRY, "entries")
    for _ in range(n_entries):
        name = head.text()
        _check_size(head.path, name, _value(head, head.take("I")))
    for _ in range(n_tensors):
        _tensor(head)


def _value(head: _Head, kind: int) -> int | None:
    """One entry's value, if it is a number."""
    if kind in _SCALARS:
        return head.take(_SCALARS[kind])
    if kind == _STRING:
        head.text()
    elif kind == _ARRAY:
        _array(head)
    else:
        raise SourceError(f"{head.path}: holds an entry of kind {kind}, known are 0 to 12; it is damaged: download it again")
    return None


def _array(head: _Head) -> None:
    kind, count = head.take("I"), head.take("Q")
    if kind in _SCALARS:
        width = struct.calcsize(f"<{_SCALARS[kind]}")
        head.skip(head.fitting(count, width, "numbers") * width)
    elif kind == _STRING:
        for _ in range(head.fitting(count, 8, "texts")):
            head.text()
    else:
        raise SourceError(f"{head.path}: holds an array of kind {kind}, known are numbers and texts; it is damaged: download it again")


def _tensor(head: _Head) -> None:
    name, n_dims = head.text(), head.take("I")
    if n_dims > _MOST_DIMS:
        raise SourceError(f"{head.path}: {name!r} has {n_dims} dimensions, allowed are {_MOST_DIMS}; it is damaged: download it again")
    n_numbers = 1
    for _ in range(n_dims):
        n_numbers *= head.take("Q")
    head.take("I")
    if n_numbers > 8 * head.size or head.take("Q") > head.size:  # a number takes a bit at least
        raise SourceError(f"{head.path}: {name!r} is larger than the file; it is damaged: download it again")


def _check_size(path: Path, name: str, value: int | None) -> None:
    for end, most in _MOST.items():
        if value is not None and name.endswith(f".{end}") and not 0 <= value <= most:
            raise SourceError(f"{path}: {name} is {value:,}, allowed are 0 to {most:,}; no model is so large: use another file")
