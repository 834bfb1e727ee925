"""A project in which every cell has run, and what faults are compared by: its cells, their digests, and what must not stay behind."""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from pipeline.tiny import environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of the tiny pipeline."""

    name: str
    command: str
    out: str
    also: tuple[str, ...] = ()
    """What else it writes."""


def _cell(name: str, command: str, out: str, *also: str) -> Cell:
    return Cell(name=name, command=command, out=out, also=also)


CELLS = {
    cell.name: cell
    for cell in (
        _cell("models@encoder", "stages/models.py --model encoder", "data/models/encoder"),
        _cell("models@subject", "stages/models.py --model subject", "data/models/subject"),
        _cell("tokens", "stages/tokens.py", "data/tokens"),
        _cell("activations", "stages/activations.py", "data/activations"),
        _cell("sae@tiny", "stages/sae.py --sae tiny", "data/saes/tiny"),
        _cell("latents@tiny", "stages/latents.py --sae tiny", "data/latents/tiny"),
        _cell("examples@tiny", "stages/examples.py --sae tiny", "data/examples/tiny"),
        _cell("explain@tiny", "stages/explain.py --sae tiny", "data/explanations/tiny"),
        _cell("score@tiny-embedding", "stages/score.py --sae tiny --scorer embedding", "data/scores/tiny/embedding"),
        _cell("score@tiny-detection", "stages/score.py --sae tiny --scorer detection", "data/scores/tiny/detection"),
        _cell("compare", "stages/compare.py", "data/comparison", "report", "metrics"),
        _cell("track", "stages/track.py", "mlflow.db", "mlartifacts"),
    )
}
MAKERS = [cell for cell in CELLS.values() if cell.name != "track"]
"""The cells whose results are files of their own."""
STORES = (".cache/replies", ".cache/embeddings")


def content(folder: Path) -> dict[str, str]:
    """sha256 of every file, by its path in the folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def results(project: Path, *cells: Cell) -> dict[str, str]:
    """What the cells made, by path; of all cells when none is named. The manifests are among them."""
    outs = [out for cell in cells or MAKERS for out in (cell.out, *cell.also)]
    return {f"{out}/{name}": digest for out in outs for name, digest in content(project / out).items()}


def locked(project: Path) -> dict[str, str]:
    """DVC's digest of every output, from `dvc.lock`."""
    stages = yaml.safe_load((project / "dvc.lock").read_text())["stages"]
    return {out["path"]: out["md5"] for entry in stages.values() for out in entry.get("outs", ())}


def assert_undisturbed(project: Path, whole: Path) -> None:
    """The same digests as where nothing went wrong: DVC's of all outputs, and those of all files."""
    assert locked(project) == locked(whole)
    assert results(project) == results(whole)
    assert_nothing_left(project)


def assert_nothing_left(project: Path) -> None:
    """No half-written file anywhere, and in the work folders locks alone: two a cell, and one of the report."""
    work = list((project / ".cache" / "work").glob("*"))
    assert [path.name for path in project.rglob(".*.partial")] == []
    assert [path.name for path in project.rglob(".*.moving")] == []
    assert [path.name for path in work if path.suffix != ".lock"] == []
    assert len(work) <= 2 * 13 + 1


def take_away(project: Path, *cells: Cell) -> None:
    """The cells' results, as DVC deletes them before it runs a cell again; what they asked and embedded stays."""
    for cell in cells:
        for out in (cell.out, *cell.also):
            path = project / out
            (shutil.rmtree if path.is_dir() else os.unlink)(path) if path.exists() else None


def put_back(project: Path, whole: Path) -> None:
    """Results, stores and inputs as where nothing went wrong, whatever a test left; what is right already is not touched."""
    shutil.rmtree(project / ".cache" / "work", ignore_errors=True)
    for name in (*STORES, "corpus", *(out for cell in MAKERS for out in (cell.out, *cell.also))):
        if content(project / name) != content(whole / name):
            shutil.rmtree(project / name, ignore_errors=True)
            shutil.copytree(whole / name, project / name)
    for name in ("params.yaml", "dvc.lock"):
        if (project / name).read_bytes() != (whole / name).read_bytes():
            shutil.copyfile(whole / name, project / name)


def forget(project: Path, *cells: Cell) -> None:
    """As if the cells had never run: neither their results, nor DVC's memory of them, nor replies and vectors."""
    take_away(project, *cells)
    for made in (".cache/work", ".dvc/cache/runs", *STORES):
        shutil.rmtree(project / made, ignore_errors=True)
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    for cell in cells:
        lock["stages"].pop(cell.name, None)
    (project / "dvc.lock").write_text(yaml.safe_dump(lock))


def start(project: Path, *command: str, **more: str) -> "subprocess.Popen[str]":
    """A command in the project, its output in one pipe."""
    program = str(Path(sys.executable).parent / command[0])
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([program, *command[1:]], cwd=project, env=environment(project) | more, text=True, errors="replace", **both)


def ended(process: "subprocess.Popen[str]", timeout_s: float = 800) -> tuple[int, str]:
    """Its exit code and all it said."""
    said, _ = process.communicate(timeout=timeout_s)
    return process.returncode, said


def stage_of(process: "subprocess.Popen[str]") -> psutil.Process | None:
    """The stage that dvc runs just now, whether or not a shell stands between."""
    with contextlib.suppress(psutil.Error):
        children = psutil.Process(process.pid).children(recursive=True)
        return next((child for child in children if "stages/" in " ".join(child.cmdline()) and "python" in child.name()), None)
    return None


def await_stage(process: "subprocess.Popen[str]") -> psutil.Process | None:
    """Its stage, as soon as it is there; None when it ended without."""
    while process.poll() is None:
        if found := stage_of(process):
            return found
        time.sleep(0.01)
    return None


def kill(process: "subprocess.Popen[str]", who: str, stage: psutil.Process) -> None:
    """Kill one or both, and wait until both are gone; a stage that is left alone goes on to its end."""
    if who in ("dvc", "both"):
        process.kill()
    if who in ("stage", "both"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(stage.pid, signal.SIGKILL)
    process.communicate()
    psutil.wait_procs([stage], timeout=120)


def replace_bytes(path: Path, change: bytes) -> None:
    """Give a file another content and leave its time, as a disk that rots; other names of the file keep theirs."""
    times = path.stat()
    beside = path.with_name(path.name + ".other")
    beside.write_bytes(change)
    beside.replace(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
