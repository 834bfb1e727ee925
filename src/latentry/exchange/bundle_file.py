"""A bundle read as what it is, a file from elsewhere: nothing in it is believed before it is checked, and nothing is unpacked.

Always true: what `open_bundle` gives holds exactly the files that it lists, each with the checksum listed, and no name in it leads out of
the folder that it is unpacked to.
"""

import hashlib
import json
import re
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from latentry.errors import ExchangeError
from latentry.safe_text import harmless
from latentry.store import file_digest

FORMAT = "latentry bundle"
VERSION = 1
ABOUT = "bundle.json"
SUMS = "SHA256SUMS"
MAX_BYTES = 2**36
"""Unpacked, all files together (64 GiB)."""
_MAX_TEXT = 2**28
"""Of the two files that are read whole."""
PIECE = 1 << 20
"""Bytes read at once."""
_SUM = re.compile(r"([0-9a-f]{64})  (.+)")


class BundleError(ExchangeError):
    """A bundle is not what was exported; carries every fault found, not only the first."""

    def __init__(self, faults: Sequence[str], remedy: str) -> None:
        self.faults, self.remedy = tuple(faults), remedy
        super().__init__("\n".join([*faults, remedy]))

    def __reduce__(self) -> tuple[type["BundleError"], tuple[tuple[str, ...], str]]:
        return type(self), (self.faults, self.remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle whose every file was checked when it was opened."""

    path: Path
    about: Mapping[str, Any]
    """`bundle.json`: format, version, and the provenance of all labels."""
    sums: Mapping[str, str]
    """sha256 of each file, by name; the list of checksums itself is not among them."""
    n_bytes: int
    """Unpacked."""

    def read(self, name: str) -> bytes:
        """One file's content.

        Raises:
            ExchangeError: the bundle has no such file, or it has changed since it was opened.
        """
        if name not in self.sums:
            raise ExchangeError(f"{self.path}: has no {name!r}; it has {len(self.sums):,} files, such as {next(iter(self.sums))!r}")
        with zipfile.ZipFile(self.path) as packed:
            content = packed.read(name)
        if hashlib.sha256(content).hexdigest() != self.sums[name]:
            raise ExchangeError(f"{self.path}: {name} has changed since the bundle was opened; open it again")
        return content


def open_bundle(path: Path, max_bytes: int = MAX_BYTES) -> Bundle:
    """Check a bundle whole: its form, its version, and every byte against the checksums in it.

    Raises:
        BundleError: it is unsafe to unpack, or files have changed, are missing or extra; all of them are named.
        ExchangeError: it is no bundle, of another version, or larger than allowed.
    """
    try:
        with zipfile.ZipFile(path) as packed:
            entries = packed.infolist()
            _require(path, _unsafe(entries), "it is not to be unpacked; get it anew from where it was exported")
            total = sum(entry.file_size for entry in entries)
            if total > max_bytes:
                raise ExchangeError(
                    f"{path}: unpacks to {total:,} bytes by its own account, {max_bytes:,} are allowed; raise it by --max-bytes"
                )
            about = _told(path, _text(path, packed, ABOUT))
            sums = _listed(path, _text(path, packed, SUMS))
            names = {entry.filename for entry in packed.infolist()}
            _require(path, _wrong_files(names, lambda name: _digest(packed, name), sums), "it is not what was exported; get it anew")
            return Bundle(path=path, about=about, sums=sums, n_bytes=total)
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError) as error:
        raise ExchangeError(f"{path}: cannot be read as a bundle ({error}); get it anew from where it was exported") from None


def is_unpacked(folder: Path) -> bool:
    """Whether a folder is what a bundle was unpacked to."""
    return (folder / ABOUT).is_file() and (folder / SUMS).is_file()


def check_unpacked(folder: Path) -> Bundle:
    """Check the files of a bundle that was unpacked by another tool against the list that came with them.

    Raises:
        BundleError: files have changed, are missing or extra; all of them are named.
        ExchangeError: `bundle.json` or the list of checksums is none.
    """
    about = _told(folder, (folder / ABOUT).read_bytes())
    sums = _listed(folder, (folder / SUMS).read_bytes().decode("utf-8", "replace"))
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}
    digests = {name: _file_digest(path) for name, path in found.items() if name in sums}
    _require(folder, _wrong_files(found.keys(), digests.__getitem__, sums), "unpack it anew")
    return Bundle(path=folder, about=about, sums=sums, n_bytes=sum(path.stat().st_size for path in found.values()))


def is_bundle(path: Path) -> bool:
    """Whether a file says that it is a bundle, of whatever version; its files are not checked."""
    if not path.is_file():
        return False
    try:
        with zipfile.ZipFile(path) as packed:
            about = json.loads(_text(path, packed, ABOUT))
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError, ValueError, ExchangeError):
        return False
    return isinstance(about, dict) and about.get("format") == FORMAT


def _require(path: Path, faults: Iterator[str], remedy: str) -> None:
    if said := [f"{path}: {fault}" for fault in faults]:
        raise BundleError(said, f"{path}: {remedy}")


def _unsafe(entries: list[zipfile.ZipInfo]) -> Iterator[str]:
    """What could do harm when the zip is unpacked, by name."""
    seen: dict[str, str] = {}
    for entry in entries:
        name, shown = entry.orig_filename, harmless(entry.orig_filename)
        mode = stat.S_IFMT(entry.external_attr >> 16)
        if name != entry.filename or not _is_inside(name):
            yield f"{shown!r} is no path within a folder"
        elif mode == stat.S_IFLNK:
            yield f"{shown} is a link"
        elif mode not in (0, stat.S_IFREG) or entry.is_dir():
            yield f"{shown} is no file"
        elif entry.flag_bits & 0x1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            yield f"{shown} is encrypted or packed in a way that no bundle is"
        same = unicodedata.normalize("NFC", name).casefold()
        if same in seen:
            yield f"{shown} stands twice, as {harmless(seen[same])} too"
        seen[same] = name


def _is_inside(name: str) -> bool:
    parts = name.split("/")
    is_plain = all(part not in ("", ".", "..") for part in parts) and name.isprintable()
    return is_plain and "\\" not in name and ":" not in parts[0] and not PurePosixPath(name).is_absolute()


def _told(path: Path, text: str | bytes) -> Mapping[str, Any]:
    """What `bundle.json` says, of a version that is read here."""
    try:
        about = json.loads(text)
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ExchangeError(f"{path}: its {ABOUT} is not that of a {FORMAT}; wanted is a file of `latentry export bundle`")
    if about.get("version") != VERSION:
        raise ExchangeError(
            f"{path}: is a bundle of version {about.get('version')!r}, this latentry reads version {VERSION};"
            f" use the latentry that wrote it (commit {harmless(str(about.get('commit')))}), or have it exported anew"
        )
    return about


def _listed(path: Path, text: str) -> dict[str, str]:
    """The checksums of a list, by file."""
    lines = [_SUM.fullmatch(line) for line in text.splitlines()]
    found = {line[2]: line[1] for line in lines if line}
    if len(found) != len(lines):
        raise ExchangeError(f"{path}: {SUMS} has a line that is no checksum, or one file twice; get the bundle anew")
    return found


def _text(path: Path, packed: zipfile.ZipFile, name: str) -> str:
    try:
        entry = packed.getinfo(name)
        if entry.file_size > _MAX_TEXT:
            raise ExchangeError(f"{path}: {name} has {entry.file_size:,} bytes, {_MAX_TEXT:,} are allowed; it is no bundle of latentry's")
        return packed.read(entry).decode()
    except (KeyError, UnicodeDecodeError, zlib.error) as error:
        raise ExchangeError(f"{path}: has no readable {name} ({error}); wanted is a file of `latentry export bundle`") from None


def _wrong_files(names: Collection[str], digest_of: Callable[[str], str], sums: Mapping[str, str]) -> Iterator[str]:
    """How the files that are there differ from those listed, each by its name."""
    there = set(names) - {SUMS}
    yield from (f"{name} is missing; {SUMS} lists it" for name in sorted(sums.keys() - there))
    yield from (f"{harmless(name)} is extra; {SUMS} does not list it" for name in sorted(there - sums.keys()))
    for name in sorted(there & sums.keys()):
        found = digest_of(name)
        if found != sums[name]:
            yield f"{name} has changed: its sha256 is {found}, listed is {sums[name]}"


def _file_digest(path: Path) -> str:
    """sha256 of a file; words where there is none to read. What a link points to is no file of the bundle."""
    if path.is_symlink() or not path.is_file():
        return "unknown, for it is no file"
    return file_digest(path)


def _digest(packed: zipfile.ZipFile, name: str) -> str:
    """sha256 of a file's content, read in pieces; words where it cannot be unpacked."""
    digest = hashlib.sha256()
    try:
        with packed.open(name) as file:
            while piece := file.read(PIECE):
                digest.update(piece)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        return f"unknown, for it cannot be unpacked ({error})"
    return digest.hexdigest()
