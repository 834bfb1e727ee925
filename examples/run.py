"""Runs one of these examples, `python examples/run.py NAME`, in a project of its own under .cache/NAME, with this checkout's code and that
folder's params.yaml.

What this checkout has made already of the same params (models, tokens, and what follows) comes from its DVC cache and is not made anew;
replies and vectors are shared too.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from latentry.preflight import make_markers

HERE = Path(__file__).parent
ROOT = HERE.parent
COPIED = ("src", "stages", "corpus", "dvc.yaml", ".dvcignore")
SHARED = ("replies", "embeddings", "downloads")


def lay_out(name: str) -> Path:
    """The project of an example; results that are there stay."""
    project, example = ROOT / ".cache" / name, HERE / name
    project.mkdir(parents=True, exist_ok=True)
    for copied in COPIED:
        target = project / copied
        if target.is_dir():
            shutil.rmtree(target)
        (shutil.copytree if (ROOT / copied).is_dir() else shutil.copyfile)(ROOT / copied, target)
    shutil.copyfile(example / "params.yaml", project / "params.yaml")
    make_markers(project)
    if not (project / ".dvc").is_dir():
        shutil.copyfile(ROOT / "dvc.lock", project / "dvc.lock")
        dvc(project, "init", "--no-scm", "--quiet")
        dvc(project, "config", "core.analytics", "false")
        dvc(project, "config", "cache.type", "hardlink,copy")
        dvc(project, "cache", "dir", "--quiet", str(ROOT / ".dvc" / "cache"))
    shutil.copytree(ROOT / ".dvc" / "plots", project / ".dvc" / "plots", dirs_exist_ok=True)
    for shared in SHARED:
        (ROOT / ".cache" / shared).mkdir(parents=True, exist_ok=True)
        link = project / ".cache" / shared
        link.parent.mkdir(exist_ok=True)
        if not link.exists():
            link.symlink_to(ROOT / ".cache" / shared, target_is_directory=True)
    return project


def dvc(project: Path, *command: str) -> int:
    """One command of DVC in the project, with the project's own code."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("DVC_")}
    environment = outer | {"PYTHONPATH": str(project / "src"), "DVC_NO_ANALYTICS": "1"}
    return subprocess.run([sys.executable, "-m", "dvc", *command], cwd=project, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(dvc(lay_out(sys.argv[1]), "repro"))
