"""What `dvc.lock` says of a folder, read without DVC: its digest, and whether files are those.

Always true: what is not locked, or locked in a way that is not known here, is not judged.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from latentry.dvc_lock import parsed_lock
from latentry.exchange.result_files import shown

LOCK = "dvc.lock"


class Locks:
    """The outputs of every `dvc.lock` above the folders asked for, each file read once."""

    def __init__(self) -> None:
        self._outs: dict[Path, Mapping[str, str]] = {}
        self.unreadable: list[str] = []
        """Of each lock that cannot be read, a sentence."""

    def digest_of(self, folder: Path) -> str | None:
        """DVC's digest of a folder, by the nearest `dvc.lock`; None where there is none, or it does not name the folder."""
        root = _project_of(folder)
        if root is None:
            return None
        if root not in self._outs:
            self._outs[root] = self._read(root / LOCK)
        return self._outs[root].get(folder.resolve().relative_to(root).as_posix())

    def _read(self, path: Path) -> Mapping[str, str]:
        lock = parsed_lock(path)
        if lock is None:
            self.unreadable.append(
                f"{shown(path)}: cannot be read, so no folder was compared with it; `latentry check` sets aside one cut short"
            )
        return dict(_folders_in(lock or {}))


def is_place_of_results(folder: Path) -> bool:
    """Whether a folder lies where stages write, in the `data` of a project; there a folder of results has a manifest."""
    places = (folder.resolve(), *folder.resolve().parents)
    return any(place.name == "data" and any((place.parent / name).is_file() for name in (LOCK, "dvc.yaml")) for place in places)


def lock_faults(folder: Path, digest: str, md5s: Mapping[str, str]) -> Iterator[str]:
    """How the files of a folder differ from what `dvc.lock` names, file by file where DVC's cache still lists them."""
    if digest == _digest_of(md5s):
        return
    listed = _listed(folder, digest)
    if listed is None:
        yield f"{shown(folder)}: is not what {LOCK} names; its files together have DVC's digest {_digest_of(md5s)}, locked is {digest}"
    else:
        names = sorted(listed.keys() | md5s.keys())
        yield from (f"{shown(folder / name)}: {_change(name, listed, md5s)}" for name in names if listed.get(name) != md5s.get(name))


def _change(name: str, listed: Mapping[str, str], md5s: Mapping[str, str]) -> str:
    if name not in md5s:
        return f"is missing; {LOCK} names it"
    return (
        f"is not what {LOCK} names: its md5 is {md5s[name]}, locked is {listed[name]}"
        if name in listed
        else f"is extra; {LOCK} does not name it"
    )


def _project_of(folder: Path) -> Path | None:
    return next((parent for parent in folder.resolve().parents if (parent / LOCK).is_file()), None)


def _folders_in(lock: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    outs = [out for stage in (lock.get("stages") or {}).values() for out in stage.get("outs") or ()]
    for out in outs:
        if out.get("hash") == "md5" and str(out.get("md5")).endswith(".dir"):
            yield str(out["path"]), str(out["md5"])


def _digest_of(md5s: Mapping[str, str]) -> str:
    """As DVC 3 makes it of a folder: md5 of the list of its files, as JSON, sorted by path."""
    listed = json.dumps([{"md5": md5s[name], "relpath": name} for name in sorted(md5s)])
    return f"{hashlib.md5(listed.encode(), usedforsecurity=False).hexdigest()}.dir"


def _listed(folder: Path, digest: str) -> Mapping[str, str] | None:
    """The files of a locked folder, from DVC's cache in its usual place; None where that does not have them."""
    root = _project_of(folder)
    try:
        rows = (
            json.loads((root / ".dvc" / "cache" / "files" / "md5" / digest[:2] / digest[2:]).read_text(encoding="utf-8")) if root else None
        )
        return None if rows is None else {row["relpath"]: row["md5"] for row in rows}
    except (OSError, ValueError, KeyError, TypeError):
        return None
