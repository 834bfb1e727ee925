"""Files of others, read row by row: what cannot be read is told by file and line, and nothing grows without bound.

What the rows mean is the formats' (`from_*.py`). Always true: no file is trusted; only regular files are opened, a line, a whole
JSON file and what a compressed file may become are bounded, and no text is decoded but as UTF-8.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentry.errors import ExchangeError

MAX_LINE = 16 << 20
"""Bytes in one row; longer ones are told and passed over."""
MAX_JSON = 512 << 20
"""Bytes in a JSON file, which is read as a whole."""
MAX_GROWTH, FREE_GROWTH = 200, 64 << 20
"""A compressed file may become so many times as large, or so many bytes: text grows 3 to 30 times."""
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A row, or a file that should be one, of which nothing can be made."""

    place: str
    """File and line."""
    why: str
    holds_scores: bool = False
    """Whether it would have been scores and no text."""


def name_of(path: Path, root: Path) -> str:
    """A file as it is told of: its path within what is imported, so that no machine's own paths stand anywhere."""
    name = path.relative_to(root).as_posix() if root.is_dir() else path.name
    return name.encode("utf-8", "replace").decode()


def lines(path: Path, name: str) -> Iterator[tuple[str, bytes | None]]:
    """Each line of a file, plain or gzip (by its ending), with its place; None for one that is too long.

    Raises:
        ExchangeError: the file is no file, is damaged, or becomes far larger than text does.
    """
    most = max(FREE_GROWTH, MAX_GROWTH * size_of(path, name))
    try:
        with _opened(path) as file:
            read, number = 0, 0
            while line := file.readline(MAX_LINE):
                number += 1
                too_long = len(line) == MAX_LINE and not line.endswith(b"\n")
                read += len(line)
                while too_long and (rest := file.readline(MAX_LINE)):
                    read += len(rest)
                    _refuse_growth(read, most, path, name)
                    if rest.endswith(b"\n"):
                        break
                _refuse_growth(read, most, path, name)
                yield f"{name}:{number}", None if too_long else line.removeprefix(_BOM) if number == 1 else line
    except (OSError, EOFError, zlib.error) as error:
        raise ExchangeError(f"{name}: cannot be read to its end ({error}); a whole file is wanted, fetch it again") from error


def size_of(path: Path, name: str) -> int:
    """Bytes of a regular file.

    Raises:
        ExchangeError: there is none, or a pipe, a device or a folder.
    """
    if not path.is_file():
        raise ExchangeError(f"{name}: is {'no regular file' if path.exists() else 'not there'}; name a file that can be read")
    return path.stat().st_size


def _opened(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")


def _refuse_growth(read: int, most: int, path: Path, name: str) -> None:
    if path.suffix.lower() == ".gz" and read > most:
        raise ExchangeError(
            f"{name}: {path.stat().st_size:,} bytes become more than {most:,}, as no text does; at most {MAX_GROWTH} times as much is read,"
            " unpack it yourself if you trust it"
        )


def json_rows(path: Path, name: str) -> Iterator[tuple[str, Mapping[str, Any]] | Unreadable]:
    """Each row of a file of JSON lines with its place; blank lines are none.

    Raises:
        ExchangeError: as `lines`.
    """
    for place, line in lines(path, name):
        if line is None:
            yield Unreadable(place=place, why=f"it is longer than {MAX_LINE:,} bytes")
        elif line.strip():
            row = parsed(line)
            yield Unreadable(place=place, why=row.why) if isinstance(row, NotJson) else _named(place, row)


@dataclass(frozen=True, slots=True)
class NotJson:
    """Why bytes are no JSON in UTF-8."""

    why: str


def parsed(content: bytes) -> Any:
    """JSON from bytes, or `NotJson`; NaN and infinity come as numbers, for whoever uses them to refuse."""
    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        return NotJson(f"it is no UTF-8 (byte {error.start} is {content[error.start]:#x})")
    except RecursionError:
        return NotJson("it is nested too deeply")
    except ValueError as error:  # bad JSON, and numbers of too many digits
        return NotJson(f"it is no JSON ({str(error)[:120]})")


class _TwiceError(ValueError):
    """An object has a name twice, so that it is not known which value is meant."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(f"the name {next(name for name in names if names.count(name) > 1)!r} stands twice in one object")
    return found


def whole_json(path: Path, name: str, most: int = MAX_JSON) -> Any:
    """What a JSON file holds, or `NotJson`.

    Raises:
        ExchangeError: it is no file, cannot be read, or is larger than `most` bytes.
    """
    size = size_of(path, name)
    if size > most:
        raise ExchangeError(
            f"{name}: has {size:,} bytes; a JSON file is read whole, at most {most:,}: write it as JSON lines, which are not"
        )
    try:
        return parsed(path.read_bytes().removeprefix(_BOM))
    except OSError as error:
        raise ExchangeError(f"{name}: cannot be read ({error.strerror}); make it readable") from error


def csv_rows(path: Path, name: str) -> Iterator[tuple[str, Mapping[str, Any]] | Unreadable]:
    """Each row of a CSV file by the names in its first line.

    Raises:
        ExchangeError: as `lines`, or the first line cannot be read.
    """
    texts = _Texts(path, name)
    reader = csv.reader(texts, strict=True)  # else an open quote takes all rows after it for one text
    names: list[str] | None = None
    while True:
        texts.place = None
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Unreadable(place=str(texts.place), why=f"it is no row of CSV ({error})")
            continue
        if names is None:
            names = cells
            _check_header(names, name)
        elif any("\udc80" <= character <= "\udcff" for cell in cells for character in cell):
            yield Unreadable(place=str(texts.place), why="it is no UTF-8")
        elif len(cells) > len(names):
            yield Unreadable(place=str(texts.place), why=f"it has {len(cells)} cells, and there are {len(names)} columns")
        elif cells:
            yield str(texts.place), dict(zip(names, cells, strict=False))


def _check_header(names: list[str], name: str) -> None:
    """Refuse a first line of another encoding or separator, or with a name twice.

    Raises:
        ExchangeError: it is one of these; names the columns found.
    """
    found = ", ".join(repr(one) for one in names[:10]).encode("utf-8", "replace").decode()
    if any("\udc80" <= character <= "\udcff" or character == "\0" for one in names for character in one):
        raise ExchangeError(f"{name}: its first line is no UTF-8 ({found}); save it as CSV in UTF-8, with commas between the columns")
    if len(names) == 1 and any(sign in names[0] for sign in ";\t|"):
        raise ExchangeError(
            f"{name}: its columns are not parted by commas, the first line is {found}; save it as CSV with commas, in UTF-8"
        )
    if twice := sorted({one for one in names if one and names.count(one) > 1}):
        raise ExchangeError(f"{name}: its first line has {', '.join(map(repr, twice))} twice; give each column a name of its own")


class _Texts:
    """The lines of a file as texts, for the reader of CSV; bytes that are no UTF-8 stand as lone surrogates."""

    def __init__(self, path: Path, name: str) -> None:
        self._lines = lines(path, name)
        self.place: str | None = None
        """Where the row begins that is being read."""

    def __iter__(self) -> "_Texts":
        return self

    def __next__(self) -> str:
        place, line = next(self._lines)
        self.place = self.place or place
        return "\udc80\n" if line is None else line.decode("utf-8", "surrogateescape")


def parquet_rows(path: Path, name: str, columns: frozenset[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each row of a Parquet file with those of the columns that it has.

    Raises:
        ExchangeError: it is no file, or is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    size_of(path, name)
    try:
        with pq.ParquetFile(path) as file:
            wanted, number = [column for column in file.schema_arrow.names if column in columns], 0
            for batch in file.iter_batches(batch_size=4096, columns=wanted):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{name}:{number}", row
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise ExchangeError(f"{name}: cannot be read as Parquet ({error}); a whole file is wanted, fetch it again") from error


def listed_rows(path: Path, name: str) -> Iterator[tuple[str, Mapping[str, Any]] | Unreadable]:
    """Each row of a file that holds one JSON list; its place is its number.

    Raises:
        ExchangeError: as `whole_json`, or it holds no list.
    """
    found = whole_json(path, name)
    if not isinstance(found, list):
        said = found.why if isinstance(found, NotJson) else f"it holds {type(found).__name__}"
        raise ExchangeError(f"{name}: is no JSON list ({said}); a list of rows with names is wanted, or JSON lines in a file .jsonl")
    for number, row in enumerate(found, 1):
        yield _named(f"{name}:{number}", row)


def _named(place: str, row: Any) -> tuple[str, Mapping[str, Any]] | Unreadable:
    if isinstance(row, Mapping):
        return place, row
    return Unreadable(place=place, why=f"it is {type(row).__name__}, and no row with names")
