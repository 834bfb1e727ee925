"""What goes wrong with a SQLite file of ours, told with the file's name and what to do; SQLite itself names no file.

Always true: a block that leaves an error behind has changed nothing in the file, for SQLite takes a transaction back.
"""

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import disk_usage
from types import TracebackType

from latentry.atomic import told_when_full
from latentry.errors import ContractError

_PRIMARY_CODE = 0xFF
"""The part of an error code of SQLite that says what happened; the rest says where."""
_NUMBERS = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,  # of a read-only file system, too
    sqlite3.SQLITE_PERM: errno.EACCES,
}
"""Errors of disks, by the system's number."""
_WAITED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
"""Another process held the file for longer than anything of ours takes. All other errors are damage: our statements are right on a sound file."""


def primary_code(error: sqlite3.Error) -> int | None:
    """What happened, as one of SQLite's codes; None where Python found the fault itself."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY_CODE


@contextmanager
def telling(path: Path, remedy: str) -> Iterator[None]:
    """A block that reads or writes the file; `remedy` says what to do with a damaged one.

    Raises:
        OSError: the disk is full, read-only or fails.
        ContractError: the file is damaged.
    """
    try:
        yield
    except sqlite3.Error as error:
        code = primary_code(error)
        if code == sqlite3.SQLITE_IOERR and not disk_usage(path.parent).free:  # no room for the file that its processes share
            code = sqlite3.SQLITE_FULL
        if code in _WAITED:
            raise OSError(errno.EBUSY, f"{path}: another process holds it ({error}); end that one, or wait for it") from error
        if code not in _NUMBERS:
            raise ContractError(f"{path}: is damaged ({error}); {remedy}") from error
        with told_when_full(path):
            is_read_only = os.statvfs(path.parent).f_flag & os.ST_RDONLY
            raise OSError(errno.EROFS if is_read_only else _NUMBERS[code], str(error)) from error


class OneAtATime:
    """A lock on a file's connection, whose blocks tell what goes wrong as `telling` does."""

    def __init__(self, path: Path, remedy: str) -> None:
        self._path, self._remedy, self._lock = path, remedy, threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()
        if isinstance(error, sqlite3.Error):
            with telling(self._path, self._remedy):
                raise error
