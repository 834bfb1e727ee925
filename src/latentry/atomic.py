"""Writing a file so that what stands under its name is complete, also after a kill or a full disk."""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open

_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_atomic(path: Path, write: Callable[[Path], object], n_bytes: int | None = None) -> None:
    """Write beside the path by a function, then rename.

    Args:
        n_bytes: how large the file will be, where that is known before.

    Raises:
        OSError: as `told_when_full`.
    """
    with beside(path, n_bytes) as partial:
        write(partial)


@contextmanager
def beside(path: Path, n_bytes: int | None = None) -> Iterator[Path]:
    """The same for a block: a file to write, renamed to the path when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with told_when_full(path, n_bytes):
        try:
            yield partial
            partial.chmod(_MODE)  # safetensors makes files that others cannot read
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Delete what a killed writer left in a folder: our own files in the making, and those of safetensors."""
    for pattern in (".*.partial", ".tmp*"):
        for path in folder.rglob(pattern):
            path.unlink()


@contextmanager
def told_when_full(path: Path, n_bytes: int | None = None) -> Iterator[None]:
    """A block that writes a file or folder, whose failure to do so names it, also where a library raises a bare exception.

    Raises:
        OSError: names the path; where the disk is full, also what is needed and what is free.
    """
    try:
        yield
    except OSError as error:
        raise _told(error.errno, str(error), path, n_bytes) from error
    except Exception as error:
        number = _number_in(str(error))
        if number is None and not isinstance(error, SafetensorError):
            raise
        raise _told(number, str(error), path, n_bytes) from error


@contextmanager
def full_disk_named(folder: Path) -> Iterator[None]:
    """A block of many writers, some of them libraries: a full disk that the writer did not name is told with the folder.

    Raises:
        OSError: names the folder, what is free there, and the reason.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = getattr(error, "errno", None) or _number_in(str(error))
        if number not in _FULL or "cannot write" in str(error):
            raise
        raise _told(number, str(error), folder, None) from error


def is_whole(path: Path) -> bool:
    """Whether a file stands and, if it is of arrays or rows, its end is there; a power cut may leave a part under the final name."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "numpy"):
                return True
        if path.suffix == ".parquet":
            pq.read_metadata(path)
        return path.exists()
    except (OSError, SafetensorError, pa.ArrowException):
        return False


def require_room(folder: Path, n_bytes: int) -> None:
    """Before a folder is filled.

    Raises:
        OSError: its disk has less room.
    """
    if shutil.disk_usage(folder.parent).free < n_bytes:
        raise _told(errno.ENOSPC, "", folder, n_bytes)


def _told(number: int | None, text: str, path: Path, n_bytes: int | None) -> OSError:
    reason = os.strerror(number) if number else text
    if number in _FULL:
        needed = f"it needs {_size(n_bytes)}, " if n_bytes is not None else ""
        reason += f" ({needed}{_size(shutil.disk_usage(path.parent).free)} are free there)"
    return OSError(number, f"cannot write {path}: {reason}")


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:,.1f} kB"


def _number_in(text: str) -> int | None:
    """The system's number in a message of a library that has no `errno`."""
    found = re.search(r"(?:os error|Errno) (\d+)", text)
    return int(found.group(1)) if found else None


def _allowed(mode: int) -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mode & ~mask


_MODE = _allowed(0o666)
FOLDER_MODE = _allowed(0o777)
"""What the user's umask allows to a folder; one that a library made or copied may have less."""
