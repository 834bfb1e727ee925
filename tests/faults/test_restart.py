"""A kill at any moment of the stages that make activations and latents: run again, it ends with the same bytes, and repeats a shard at most."""

import contextlib
import fnmatch
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from pipeline.tiny import environment, run

pytestmark = pytest.mark.slow

CELLS = {"tokens": "data/tokens", "activations": "data/activations", "sae@tiny": "data/saes/tiny", "latents@tiny": "data/latents/tiny"}
SHARDS = {"tokens": "shard-*", "activations": "shard-*", "sae@tiny": "checkpoint.safetensors", "latents@tiny": "segment-*"}
"""What each cell commits while it works; the checkpoint is one file, written anew."""


@pytest.fixture(scope="module")
def project(copied):
    """Every cell made once, without a kill; its results are the reference."""
    folder = copied("restart")
    path = folder / "params.yaml"
    tree = yaml.safe_load(path.read_text())
    tree["tokens"]["n_tokens"] = 100_000
    tree["run"] |= {"shard_contexts": 64, "batch_contexts": 16}
    path.write_text(yaml.safe_dump(tree))
    run(folder, "dvc", "repro", "--quiet", "latents")
    shutil.copytree(folder / "data", folder / "reference")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def committed(project: Path, cell: str) -> dict[str, int]:
    """Shards in the cell's work folders, with the time each was written; files and folders come and go meanwhile."""
    found = {}
    for folder, _, names in os.walk(project / ".cache" / "work"):
        for name in fnmatch.filter(names, SHARDS[cell]) if Path(folder).name.startswith(cell) else ():
            with contextlib.suppress(FileNotFoundError):
                found[str(Path(folder, name))] = Path(folder, name).stat().st_mtime_ns
    return found


def forget(project: Path, cell: str) -> None:
    """As if the cell had never run: neither its result, nor DVC's memory of it."""
    shutil.rmtree(project / CELLS[cell], ignore_errors=True)
    shutil.rmtree(project / ".cache" / "work", ignore_errors=True)
    shutil.rmtree(project / ".dvc" / "cache" / "runs", ignore_errors=True)
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    lock["stages"].pop(cell, None)
    (project / "dvc.lock").write_text(yaml.safe_dump(lock))


def start(project: Path, cell: str) -> subprocess.Popen:
    dvc = str(Path(sys.executable).parent / "dvc")
    return subprocess.Popen(
        [dvc, "repro", "--quiet", "-s", cell], cwd=project, env=environment(project), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def stage_of(process: subprocess.Popen) -> psutil.Process | None:
    """The stage that dvc runs, whether or not a shell stands between."""
    try:
        return next(
            (child for child in psutil.Process(process.pid).children(recursive=True) if "stages/" in " ".join(child.cmdline())), None
        )
    except psutil.Error:
        return None


def kill(process: subprocess.Popen, who: str, stage: psutil.Process) -> None:
    if who in ("dvc", "both"):
        process.kill()
    if who in ("stage", "both"):
        os.kill(stage.pid, signal.SIGKILL)
    process.wait()


def kill_after(project: Path, cell: str, who: str, n_shards: int) -> dict[str, int]:
    """Start the cell, kill when so many shards stand (0: as soon as the stage is there); returns the shards that stood then."""
    process, stage, deadline = start(project, cell), None, time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        stage = stage or stage_of(process)
        if stage and len(committed(project, cell)) >= n_shards:
            break
        time.sleep(0.001)
    assert stage is not None and process.poll() is None, "it ended before it was killed"
    kill(process, who, stage)
    if who == "dvc":  # it goes on alone: DVC itself waits for nobody
        psutil.wait_procs([stage], timeout=120)
    return committed(project, cell)


def restart(project: Path, cell: str, who: str, n_shards: int) -> None:
    forget(project, cell)
    stood = kill_after(project, cell, who, n_shards)
    (project / "dvc.lock.broken").unlink(missing_ok=True)
    run(project, "latentry", "check", stdout=subprocess.DEVNULL)
    process, made_again = start(project, cell), set()
    while process.poll() is None:
        now = committed(project, cell)
        made_again |= {path for path, when in stood.items() if now.get(path, when) != when}
        time.sleep(0.001)
    assert process.returncode == 0
    assert content(project / CELLS[cell]) == content(project / CELLS[cell].replace("data", "reference", 1))
    assert cell == "sae@tiny" or not made_again, "a shard that stood was made again"


@pytest.mark.parametrize("cell", ["activations"])
def test_a_killed_stage_is_finished_by_the_next_run_with_the_same_bytes(project, cell):
    restart(project, cell, "both", 1)


@pytest.mark.parametrize(("who", "n_shards"), [("stage", 1), ("dvc", 3), ("both", 0), ("both", 3)])
@pytest.mark.parametrize("cell", CELLS)
def test_a_kill_of_the_stage_of_dvc_or_of_both_costs_a_shard_at_most(project, cell, who, n_shards):
    restart(project, cell, who, min(n_shards, 1) if cell == "sae@tiny" else n_shards)
