"""A corpus in files: plain text (one document a file), JSON lines or Parquet (one document a row).

`.xz` and `.gz` are opened as they are read.
"""

import gzip
import io
import json
import lzma
import zlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import IO

from latentry.errors import CorpusError
from latentry.records import Document
from latentry.registry import VariantConfig
from latentry.store import digest_of, file_digest

SUFFIXES = (".txt", ".md", ".jsonl", ".parquet")
_BATCH_ROWS = 64
"""Parquet rows that are in memory at once."""
LONGEST = 1 << 28
"""Characters of one document, or of one line of JSON: a small packed file can unpack to any length."""


class Config(VariantConfig):
    path: str
    """A file, or a folder whose files are read in the order of their names."""
    text: str = "text"
    """Field or column with the text."""
    name: str = "name"
    """Field or column that names a document; where it is absent, the file and row number do."""


def build(config: Config) -> "Files":
    """A corpus that is on disk."""
    return Files(config)


class Files:
    """See the file's docstring."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def documents(self) -> Iterator[Document]:
        """Every document, in a fixed order, read one at a time.

        Raises:
            CorpusError: nothing is there, a file cannot be read, or a row lacks the text.
        """
        for path in self._files():
            try:
                yield from self._read(path)
            except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:  # ValueError: not UTF-8, or no Parquet
                raise CorpusError(
                    f"{path}: cannot be read ({error}); put it back whole, or name another as `corpus.path`, and run again"
                ) from error

    def digest(self) -> str:
        """sha256 over the files' names and bytes.

        Raises:
            CorpusError: nothing is there, or a file cannot be read.
        """
        root = Path(self._config.path)
        try:
            return digest_of([[path.relative_to(root).as_posix(), file_digest(path)] for path in self._files()])
        except OSError as error:
            raise CorpusError(f"{root}: cannot be read ({error})") from error

    def _files(self) -> list[Path]:
        root = Path(self._config.path)
        if not root.exists():
            raise CorpusError(f"corpus.path: {root} is not there; name a file or folder of {', '.join(SUFFIXES)}")
        files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if _suffix(path) in SUFFIXES)
        if not files:
            raise CorpusError(f"corpus.path: {root} holds no {', '.join(SUFFIXES)} file (also as .xz or .gz)")
        return files

    def _read(self, path: Path) -> Iterator[Document]:
        suffix = _suffix(path)
        if suffix in (".txt", ".md"):
            with _open(path) as file:
                yield self._document(None, _bounded(file.read(LONGEST + 1), path.name), path.name)
        elif suffix == ".jsonl":
            yield from self._lines(path)
        elif suffix == ".parquet":
            yield from self._rows(path)
        else:
            raise CorpusError(f"{path}: unknown kind of file; latentry reads {', '.join(SUFFIXES)}, also as .xz or .gz")

    def _lines(self, path: Path) -> Iterator[Document]:
        with _open(path) as file:
            for number in count(1):
                line = _bounded(file.readline(LONGEST + 1), f"{path} line {number}")
                if not line:
                    return
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                    text = row[self._config.text]
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    raise CorpusError(f"{path} line {number}: is no JSON object with {self._config.text!r} ({error})") from error
                yield self._document(row.get(self._config.name), text, f"{path.name}:{number}")

    def _rows(self, path: Path) -> Iterator[Document]:
        import pyarrow.parquet as pq

        parquet = pq.ParquetFile(path)
        names = parquet.schema_arrow.names
        if self._config.text not in names:
            raise CorpusError(f"{path}: has no column {self._config.text!r} (there are: {', '.join(names)})")
        wanted = [name for name in (self._config.text, self._config.name) if name in names]
        number = 0
        for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, columns=wanted):
            for row in batch.to_pylist():
                number += 1
                yield self._document(row.get(self._config.name), row[self._config.text], f"{path.name}:{number}")

    def _document(self, name: object, text: object, place: str) -> Document:
        if not isinstance(text, str):
            raise CorpusError(f"{place}: {self._config.text!r} holds {type(text).__name__}, wanted text")
        document = Document(name=str(name) if name is not None else place, text=text)
        try:
            (document.name + text).encode()
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"{place}: holds half a character ({error.object[error.start]!a}, a lone surrogate), which no UTF-8 file can keep;"
                " put the whole character in its place, or take it out"
            ) from error
        return document


def _bounded(text: str, place: str) -> str:
    """A text that was read to its end, or at most to one character past the longest.

    Raises:
        CorpusError: it is longer than that.
    """
    if len(text) > LONGEST:
        raise CorpusError(f"{place}: has more than {LONGEST:,} characters, allowed are as many in one document; divide it into several")
    return text


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix in (".xz", ".gz") else path.suffix


def _open(path: Path) -> IO[str]:
    opener = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix)
    # utf-8-sig: a byte order mark, which some editors write, is no part of the text.
    return io.TextIOWrapper(opener(path), encoding="utf-8-sig", newline="") if opener else path.open(encoding="utf-8-sig", newline="")
