"""Which commit a folder's files are of: informative, never part of an identity."""

import subprocess
from collections.abc import Sequence
from pathlib import Path


def commit_of(here: Path) -> dict[str, str]:
    """`commit`, and `dirty`: whether a file of the repository differs from it; both `unknown` outside a repository."""
    commit = _git(here, "rev-parse", "HEAD")
    if not commit:
        return {"commit": "unknown", "dirty": "unknown"}
    return {"commit": commit, "dirty": str(bool(_git(here, "status", "--porcelain", "--untracked-files=no"))).lower()}


def uncommitted(here: Path, paths: Sequence[str]) -> list[str]:
    """The files at or below some paths that are not as the commit has them, new ones too; none where there are no paths or no repository."""
    said = _git(here, "-c", "core.quotePath=false", "status", "--porcelain", "--no-renames", "-uall", "--", *paths) if paths else ""
    return [line.split(maxsplit=1)[1].strip('"') for line in said.splitlines()]


def _git(here: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
