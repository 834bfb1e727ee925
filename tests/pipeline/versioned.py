"""Finished tiny projects in git repositories of their own, with DVC's remote as the project ships it: a folder beside the project."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pipeline.tiny import ROOT, run

STORAGE = "dvc-storage"
"""Beside a project, as `.dvc/config` has it."""


def git(folder: Path, *command: str) -> str:
    """One git command in a folder, by a made-up author; gives what it says."""
    names = {f"GIT_{who}_{what}": "tester" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True, text=True, env=os.environ | names)
    return done.stdout.strip()


def in_git(folder: Path) -> Path:
    """A finished project that DVC knew without git, put under git: the results committed, no runs tracked yet."""
    for name in ("mlflow.db", "mlartifacts", ".dvc/tmp"):
        path = folder / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    for name in (".dvc/config", ".gitignore", "Makefile", "pyproject.toml"):
        shutil.copyfile(ROOT / name, folder / name)
    shutil.copytree(ROOT / "constraints", folder / "constraints", dirs_exist_ok=True)
    (folder / ".dvc" / ".gitignore").write_text("/config.local\n/tmp\n/cache\n")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    run(folder, "dvc", "commit", "--quiet", "--force")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "base")
    return folder


def published(copied: Callable[[str], Path], name: str) -> Path:
    """A project in git whose results are pushed to its remote, and whose commits are in `hub.git` beside it."""
    project = in_git(copied(name))
    hub = project.parent / "hub.git"
    git(project.parent, "init", "--quiet", "--bare", "--initial-branch", "main", str(hub))
    git(project, "remote", "add", "origin", str(hub))
    git(project, "push", "--quiet", "origin", "main")
    run(project, "dvc", "push", "--quiet")
    return project


def cloned(hub: Path, folder: Path) -> Path:
    """A colleague's clone, in which `make` finds this environment set up."""
    git(hub.parent, "clone", "--quiet", str(hub), str(folder))
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (folder / ".venv" / ".installed").touch()
    return folder


def empty_repository(folder: Path) -> Path:
    """A repository of git and DVC with nothing in it."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    run(folder, "dvc", "init", "--quiet")
    run(folder, "dvc", "config", "core.analytics", "false")
    return folder
