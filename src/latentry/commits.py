"""Which commit a folder's files are of: informative, never part of an identity."""

import subprocess
from pathlib import Path


def commit_of(here: Path) -> dict[str, str]:
    """`commit`, and `dirty`: whether a file of the repository differs from it; both `unknown` outside a repository."""
    commit = _git(here, "rev-parse", "HEAD")
    if not commit:
        return {"commit": "unknown", "dirty": "unknown"}
    return {"commit": commit, "dirty": str(bool(_git(here, "status", "--porcelain", "--untracked-files=no"))).lower()}


def _git(here: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
