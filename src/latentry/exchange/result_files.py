"""One folder of results on disk: what its manifest says, and whether its files are those.

Every byte is read once, in pieces, for all digests that are wanted of it. Always true: nothing outside the folder is opened,
whatever a manifest names, and a fault is a sentence in a list, so that all of them are told.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pydantic

from latentry.contracts import CONTRACTS
from latentry.safe_text import harmless
from latentry.store import MANIFEST, Manifest

PIECE = 1 << 20
"""Bytes read at once."""

_MANIFESTS = pydantic.TypeAdapter(Manifest)
_CONTRACTS = {contract.name: contract for contract in CONTRACTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderState:
    """What was found of one folder."""

    faults: tuple[str, ...]
    """Each begins with the folder or the file."""
    manifest: Manifest | None
    """None where there is none that can be read."""
    manifest_digest: str | None
    """sha256 of its bytes: how folders made from this one name it."""
    md5s: Mapping[str, str]
    """Of every file that could be read, the manifest too, by relative path: what DVC's digests are made of."""
    n_files: int
    n_bytes: int


def state_of(folder: Path, on_bytes: Callable[[int], object], *, has_manifest: bool = True) -> FolderState:
    """Read a whole folder; `on_bytes` hears of every piece. Without a manifest the digests are found, and nothing is compared."""
    found = {name: _digests_of(folder / name, on_bytes) for name in file_names(folder)}
    manifest, faults = _manifest(folder) if has_manifest else (None, [])
    if manifest:
        faults = [*_version_faults(folder, manifest), *_file_faults(folder, manifest, found)]
    unread = [f"{shown(folder / name)}: {one.fault}" for name, one in found.items() if one.fault]
    own = found.get(MANIFEST)
    return FolderState(
        faults=(*faults, *unread),
        manifest=manifest,
        manifest_digest=own.sha256 if own and not own.fault else None,
        md5s={name: one.md5 for name, one in found.items() if not one.fault},
        n_files=len(found),
        n_bytes=sum(one.n_bytes for one in found.values()),
    )


def manifest_faults(folder: Path) -> list[str]:
    """What is wrong with the manifest alone: unreadable, or of a contract or version that this code does not read."""
    manifest, faults = _manifest(folder)
    return list(_version_faults(folder, manifest)) if manifest else faults


def file_names(folder: Path) -> list[str]:
    """Every file below a folder by its relative path, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())


def shown(path: Path | str) -> str:
    """A path, or words of a file, for one line of text that a terminal does not obey."""
    return harmless(str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Digests:
    sha256: str
    md5: str
    n_bytes: int
    fault: str
    """Why the file cannot be read; empty where it was."""


def _digests_of(path: Path, on_bytes: Callable[[int], object]) -> _Digests:
    """Digests of one file; no device or pipe is opened, since it would never end."""
    sha256, md5, n_bytes, fault = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0, ""
    try:
        if not path.is_file():
            raise OSError(0, "it is no file, or points to none")
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                sha256.update(piece)
                md5.update(piece)
                n_bytes += len(piece)
                on_bytes(len(piece))
    except OSError as error:
        fault = f"cannot be read ({error.strerror})"
    return _Digests(sha256=sha256.hexdigest(), md5=md5.hexdigest(), n_bytes=n_bytes, fault=fault)


def _manifest(folder: Path) -> tuple[Manifest | None, list[str]]:
    path = folder / MANIFEST
    try:
        return _MANIFESTS.validate_json(path.read_bytes()), []
    except FileNotFoundError:
        return None, [f"{shown(folder)}: holds files and no {MANIFEST}; results of a stage have one"]
    except OSError:
        return None, []  # told with the files that cannot be read
    except pydantic.ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}".lstrip(": ") for one in error.errors()[:3])
        return None, [f"{shown(path)}: is no manifest of latentry's ({shown(wrong)})"]


def _version_faults(folder: Path, manifest: Manifest) -> Iterator[str]:
    contract = _CONTRACTS.get(manifest.contract)
    if contract is None:
        yield f"{shown(folder)}: holds contract {manifest.contract!r}, which this version of latentry does not know"
    elif contract.version != manifest.version:
        yield (
            f"{shown(folder)}: holds contract {manifest.contract!r} v{manifest.version}, this code reads v{contract.version};"
            f" read it with the version of latentry that wrote it, or make it anew: `dvc repro --force --single-item {shown(manifest.cell)}`"
        )


def _file_faults(folder: Path, manifest: Manifest, found: Mapping[str, _Digests]) -> Iterator[str]:
    for name, digest in sorted(manifest.files.items()):
        path, size = shown(folder / name), manifest.sizes.get(name)
        if _is_outside(name):
            yield f"{shown(folder / MANIFEST)}: names {name!r}, which is no path within the folder"
        elif name not in found:
            yield f"{path}: is missing; the manifest has it, of {size} bytes"
        elif found[name].fault:
            continue
        elif found[name].n_bytes != size:
            yield f"{path}: has {found[name].n_bytes} bytes, the manifest says {size}"
        elif found[name].sha256 != digest:
            yield f"{path}: has changed: its sha256 is {found[name].sha256}, the manifest says {digest}"
    for name in found:
        if name != MANIFEST and name not in manifest.files:
            yield f"{shown(folder / name)}: is extra; the manifest does not have it"


def _is_outside(name: str) -> bool:
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or "\\" in name
