"""The whole DAG on tiny random models, in a folder of its own: `python tests/pipeline/tiny.py FOLDER`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from latentry.preflight import make_markers

ROOT = Path(__file__).parents[2]
COPIED = ("src", "stages", "dvc.yaml", ".dvcignore")


def lay_out(folder: Path) -> None:
    """A project of its own with the code of this checkout; results that are there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        target = folder / name
        if target.is_dir():
            shutil.rmtree(target)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile)(ROOT / name, target)
    (folder / "corpus").mkdir(exist_ok=True)
    shutil.copyfile(ROOT / "corpus" / "sotu-and-moby-dick.jsonl.xz", folder / "corpus" / "sotu-and-moby-dick.jsonl.xz")
    shutil.copyfile(Path(__file__).with_name("params.yaml"), folder / "params.yaml")
    make_markers(folder)
    if not (folder / ".dvc").is_dir():
        run(folder, "dvc", "init", "--no-scm", "--quiet")
        run(folder, "dvc", "config", "core.analytics", "false")
        run(folder, "dvc", "config", "cache.type", "hardlink,copy")
    shutil.copytree(ROOT / ".dvc" / "plots", folder / ".dvc" / "plots", dirs_exist_ok=True)


def environment(folder: Path) -> dict[str, str]:
    """This process's own, with the project's code first and nothing of an outer pipeline."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("DVC_") and name != "MLFLOW_TRACKING_URI"}
    path = os.pathsep.join([str(Path(sys.executable).parent), outer.get("PATH", "")])
    return outer | {"PATH": path, "PYTHONPATH": str(folder.resolve() / "src"), "HF_HUB_OFFLINE": "1"}


def run(folder: Path, *command: str, check: bool = True, **more: object) -> subprocess.CompletedProcess[str]:
    """One command in the project, its output passed on unless captured."""
    return subprocess.run(command, cwd=folder, env=environment(folder) | {"DVC_NO_ANALYTICS": "1"}, check=check, text=True, **more)  # type: ignore[call-overload]


if __name__ == "__main__":
    here = Path(sys.argv[1])
    lay_out(here)
    sys.exit(run(here, "dvc", "repro", check=False).returncode)
