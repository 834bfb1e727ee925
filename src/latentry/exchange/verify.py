"""A folder of results checked: every file against its manifest, every folder against `dvc.lock`, and the chain from folder to folder.

Always true: nothing is written, memory does not grow with the files, and all faults are told at once, as is all that could
not be checked.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tqdm import tqdm

from latentry.errors import ContractError
from latentry.exchange.chain import absent, broken, links_of
from latentry.exchange.export_place import MARK
from latentry.exchange.locked import Locks, is_place_of_results, lock_faults
from latentry.exchange.result_files import FolderState, file_names, manifest_faults, shown, state_of
from latentry.store import MANIFEST

DEFAULT = ("data", "report")
"""What is verified where no folder is named."""

_NOT_RESULTS = (".gitignore", ".keep", ".DS_Store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was found of all folders."""

    folders: tuple[Path, ...]
    """Those that hold results."""
    n_files: int
    n_bytes: int
    n_links: int
    """Inputs named by manifests that are here and are the ones stated."""
    faults: tuple[str, ...]
    """Each begins with the folder or the file."""
    not_checked: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the folders given hold."""

    results: tuple[Path, ...]
    strays: tuple[Path, ...]
    """Files that belong to no results, and exports."""


def verify(folders: Sequence[Path]) -> Verified:
    """Check folders of results, or folders that hold such; progress is shown on a terminal.

    Raises:
        ContractError: there are no results in any of them.
    """
    locks = Locks()
    found = _found_in([folder for folder in folders if folder.is_dir()], locks)
    if not found.results:
        raise ContractError(
            f"{', '.join(map(shown, folders))}: no results there that can be checked: no manifest.json in it, and no dvc.lock that names it;"
            " verify the folders of a project (data, report), or one of its data that `dvc get` fetched"
        )
    n_bytes = sum(_size(folder / name) for folder in found.results for name in file_names(folder))
    with tqdm(total=n_bytes, unit="B", unit_scale=True, desc="verified", disable=None) as bar:
        states = {folder: _state(folder, locks, bar.update) for folder in found.results}
    links = list(links_of(states))
    return Verified(
        folders=found.results,
        n_files=sum(state.n_files for state in states.values()),
        n_bytes=sum(state.n_bytes for state in states.values()),
        n_links=sum(link.is_same is True for link in links),
        faults=(*(fault for state in states.values() for fault in state.faults), *broken(links)),
        not_checked=(
            *absent(links),
            *locks.unreadable,
            *(f"{shown(path)}: belongs to no results that have a manifest or a lock" for path in found.strays),
        ),
    )


def version_faults(data: Path) -> list[str]:
    """Of every folder of results below, whether its contract is the one that this code reads; nothing but manifests is read."""
    return [fault for path in sorted(data.rglob(MANIFEST)) for fault in manifest_faults(path.parent)]


def remove_empty_folders(data: Path) -> None:
    """Delete what DVC leaves of folders that it could not fetch: `dvc repro --allow-missing` takes them for changed ones."""
    for folder in sorted((path for path in data.rglob("*") if path.is_dir()), reverse=True):
        with contextlib.suppress(OSError):  # it holds something
            folder.rmdir()


def _state(folder: Path, locks: Locks, on_bytes: Callable[[int], object]) -> FolderState:
    """The folder's own state, and, where that is well, how it differs from what DVC locked."""
    locked, has_manifest = locks.digest_of(folder), (folder / MANIFEST).exists()
    state = state_of(folder, on_bytes, has_manifest=has_manifest or not locked)
    if locked and not state.faults:
        return replace(state, faults=tuple(lock_faults(folder, locked, state.md5s)))
    return state


def _found_in(folders: Sequence[Path], locks: Locks) -> _Found:
    results: dict[Path, None] = {}
    strays: dict[Path, None] = {}
    for folder in folders:
        _look(folder, locks, results, strays)
    return _Found(results=tuple(results), strays=tuple(strays))


def _look(folder: Path, locks: Locks, results: dict[Path, None], strays: dict[Path, None]) -> None:
    """Down to the folders that have a manifest or are locked; in a project's data one that holds files should have one."""
    if (folder / MARK).is_file():
        strays[folder] = None
        return
    files = [path for path in sorted(folder.iterdir()) if not path.is_dir() and path.name not in _NOT_RESULTS and path.suffix != ".dvc"]
    lost_manifest = bool(files) and is_place_of_results(folder) and not _has_results(folder)
    if (folder / MANIFEST).exists() or locks.digest_of(folder) or lost_manifest:
        results[folder] = None
        return
    strays.update(dict.fromkeys(files))
    for below in sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()):
        _look(below, locks, results, strays)


def _has_results(folder: Path) -> bool:
    return next(folder.rglob(MANIFEST), None) is not None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
