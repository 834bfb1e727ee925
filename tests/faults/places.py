"""Places with less than a project needs: a disk of a given size, and one that cannot be written. Both need root on Linux."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(at: Path, n_bytes: int) -> Iterator[Path]:
    """A file system of so many bytes at a folder; the test is skipped where none may be mounted."""
    at.mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", f"size={n_bytes}", "none", str(at))
    try:
        yield at
    finally:
        _unmount(at)


@contextmanager
def read_only(*folders: Path) -> Iterator[None]:
    """The folders as they are, and nobody can write into them, not even root; skipped as above."""
    mounted: list[Path] = []
    try:
        for folder in folders:
            _mount("--bind", str(folder), str(folder))
            mounted.append(folder)
            _mount("-o", "remount,ro,bind", str(folder))
        yield
    finally:
        for folder in reversed(mounted):
            _unmount(folder)


@contextmanager
def filled(disk: Path, free: int) -> Iterator[None]:
    """A small disk with so many bytes free, until the end of the block."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        stat = subprocess.run(["stat", "-f", "-c", "%a %S", str(disk)], check=True, capture_output=True, text=True).stdout.split()
        left = int(stat[0]) * int(stat[1]) - free
        file.write(b"\0" * max(left, 0))
    try:
        yield
    finally:
        ballast.unlink()


def _mount(*options: str) -> None:
    tried = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"nothing may be mounted here: {tried.stderr.strip()}")


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
