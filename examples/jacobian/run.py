"""Jacobians of one MLP of the example's subject, in a project of its own under .cache/jacobian, with this checkout's code and this
folder's params.yaml.

Models and text come from this checkout's DVC cache and are not made anew; vectors are shared too.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROJECT = ROOT / ".cache" / "jacobian"
COPIED = ("src", "stages", "corpus", "dvc.yaml", ".dvcignore")
MARKERS = ("data/jacobians/.keep", "data/edges/.keep")
SHARED = ("replies", "embeddings", "downloads")


def lay_out() -> None:
    """The project; results that are there stay."""
    PROJECT.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        target = PROJECT / name
        if target.is_dir():
            shutil.rmtree(target)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile)(ROOT / name, target)
    shutil.copyfile(HERE / "params.yaml", PROJECT / "params.yaml")
    for name in MARKERS:
        (PROJECT / name).parent.mkdir(parents=True, exist_ok=True)
        (PROJECT / name).touch()
    if not (PROJECT / ".dvc").is_dir():
        shutil.copyfile(ROOT / "dvc.lock", PROJECT / "dvc.lock")
        dvc("init", "--no-scm", "--quiet")
        dvc("config", "core.analytics", "false")
        dvc("config", "cache.type", "hardlink,copy")
        dvc("cache", "dir", "--quiet", str(ROOT / ".dvc" / "cache"))
    shutil.copytree(ROOT / ".dvc" / "plots", PROJECT / ".dvc" / "plots", dirs_exist_ok=True)
    for name in SHARED:
        (ROOT / ".cache" / name).mkdir(parents=True, exist_ok=True)
        link = PROJECT / ".cache" / name
        link.parent.mkdir(exist_ok=True)
        if not link.exists():
            link.symlink_to(ROOT / ".cache" / name, target_is_directory=True)


def dvc(*command: str) -> int:
    """One command of DVC in the project, with the project's own code."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("DVC_")}
    environment = outer | {"PYTHONPATH": str(PROJECT / "src"), "DVC_NO_ANALYTICS": "1"}
    return subprocess.run([sys.executable, "-m", "dvc", *command], cwd=PROJECT, env=environment, check=False).returncode


if __name__ == "__main__":
    lay_out()
    sys.exit(dvc("repro"))
