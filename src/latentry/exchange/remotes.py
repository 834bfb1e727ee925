"""Why a remote gave nothing, in words: DVC says the same for one that is missing, one that refuses, and one that was never pushed to.

Nothing is fetched here, and no address is shown with its user or password.
"""

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

NO_REMOTE = (
    "no default remote is set, so DVC has nowhere to fetch from; ask who shared the results for its address,"
    " and set it: `dvc remote add --local --default storage ADDRESS` (docs/sharing.md has one for each kind)"
)


_ROW = re.compile(r"(\S+)\s+(.*?)(\s+\(default\))?\s*")
"""A line of `dvc remote list`: name, address, and whether it is the default."""


def why_nothing(listed: str, remote: str | None = None) -> str:
    """What is wrong with the default remote, or the one named, by the lines of `dvc remote list`, and what to do."""
    rows = [match.groups() for line in listed.splitlines() if (match := _ROW.fullmatch(line))]
    name, address = next(((name, address) for name, address, default in rows if (name == remote if remote else default)), ("", ""))
    if not name:
        known = ", ".join(name for name, _, _ in rows) or "none"
        return (
            NO_REMOTE if remote is None else f"remote {remote!r} is not set (there are: {known}); `dvc remote add --local {remote} ADDRESS`"
        )
    parts = urlsplit(address)
    if parts.scheme not in ("", "file"):
        where = f"remote {name!r} at {_without_user(address)}"
        return (
            f"{where} is down, refuses you, or does not hold these results: see that you may read it (`dvc fetch -v sae` shows its answer;"
            f" docs/sharing.md says where each kind takes its keys from), that its address is right (`dvc remote modify --local {name} url ADDRESS`),"
            f" and that who made them has run `dvc push`"
        )
    return _why_not_here(name, Path(address.removeprefix("file://")))


def _why_not_here(name: str, folder: Path) -> str:
    where, elsewhere = f"remote {name!r} at {folder}", f"`dvc remote modify --local {name} url ADDRESS`"
    try:
        if not folder.is_dir():
            return f"{where} is not there; mount it, or name where the results were pushed to: {elsewhere}"
        for path in (folder, folder / "files" / "md5"):
            if path.is_dir():
                os.scandir(path).close()
    except PermissionError:
        return f"{where} may not be read by you; ask its owner for the right to read it (such as `chmod -R g+rX {folder}`)"
    return f"{where} does not hold these results; who made them has to run `dvc push` (of this commit), or name another place: {elsewhere}"


def _without_user(address: str) -> str:
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in parts.netloc else address
