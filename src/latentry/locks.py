"""Whose a work folder is: of one process for each cell and key, so that experiments run one cell with other settings side by side.

Always true: the folder of a living process is never cleared, and a lock is taken, or its file removed, by the cell's keeper only.
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from os import getpid
from pathlib import Path

import filelock

from latentry.atomic import told_when_full


@contextmanager
def work_folder(base: Path, cell: str, key: str) -> Iterator[Path]:
    """The folder under `base` of one cell and key, for this process alone; it need not exist yet.

    A second process with the same cell and key waits for the first, and says for whom. What is left of the cell's other keys,
    and is nobody's any more, is cleared.
    """
    folder = base / f"{cell}.{key[:16]}"
    lock, owner = _lock_of(folder), _beside(folder, ".pid")
    _take(lock, folder, cell)
    try:
        with told_when_full(owner):
            owner.write_text(f"{getpid()}\n", encoding="utf-8")
        yield folder
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


@contextmanager
def alone(base: Path, name: str) -> Iterator[None]:
    """A block that one process at a time is in, for what is written outside of work folders; the others wait. No cell has that name."""
    with filelock.FileLock(base / f"{name}.lock"):
        yield


def _take(lock: filelock.BaseFileLock, folder: Path, cell: str) -> None:
    keeper, has_said = filelock.FileLock(folder.with_name(f"{cell}.lock")), False
    while True:
        with keeper:
            if _is_free(lock):
                _clear_others(folder, cell)
                return
        if not has_said:
            sys.stderr.write(f"another process (pid {_owner_of(folder)}) is at work on {cell}; waiting for it\n")
            has_said = True
        with lock:  # taken for good under the keeper only, where nobody removes its file meanwhile
            pass


def _clear_others(mine: Path, cell: str) -> None:
    left = {path.name.removesuffix(".lock") for path in mine.parent.glob(f"{cell}.*") if path.is_dir() or path.suffix == ".lock"}
    for folder in (mine.with_name(name) for name in left - {cell, mine.name}):
        lock = _lock_of(folder)
        if _is_free(lock):
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()
            for suffix in (".pid", ".lock"):
                _beside(folder, suffix).unlink(missing_ok=True)


def _is_free(lock: filelock.BaseFileLock) -> bool:
    """Whether nobody held it; if so, it is held now."""
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return False
    return True


def _owner_of(folder: Path) -> str:
    try:
        return _beside(folder, ".pid").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return "unknown"


def _lock_of(folder: Path) -> filelock.BaseFileLock:
    return filelock.FileLock(_beside(folder, ".lock"))


def _beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(folder.name + suffix)
