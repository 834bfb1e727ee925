"""Seconds of `dvc repro` with nothing to do, 5 SAEs x 6 scorers; with QUICK=1, 1 x 1.

The pipeline is the tests' tiny one, run once in .cache/bench-noop and kept; then only what does nothing is timed.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from pipeline.tiny import lay_out, run  # noqa: E402 (the path is set above)

QUICK = bool(os.environ.get("QUICK"))
RUNS = 3 if QUICK else 5


def timed(project: Path, *command: str) -> float:
    """Median wall seconds of a command over several runs."""
    walls = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run(project, *command, stdout=subprocess.DEVNULL)
        walls.append(time.perf_counter() - start)
    return statistics.median(walls)


def main() -> None:
    """Lay the grid out, run it once, time the rest."""
    n_saes, n_scorers = (1, 1) if QUICK else (5, 6)
    project = ROOT / ".cache" / f"bench-noop-{n_saes}x{n_scorers}"
    lay_out(project)
    path = project / "params.yaml"
    params = yaml.safe_load(path.read_text())
    params["saes"] = {f"tiny-{number}": params["saes"]["tiny"] | {"width": 48 + number} for number in range(n_saes)}
    params["scorers"] = {
        f"embedding-{number}": {"kind": "embedding", "model": "encoder", "max_examples": 4 + number} for number in range(n_scorers)
    }
    params["tokens"]["n_tokens"] = 12800
    params["evaluation"] = {"contexts": 8, "ce_contexts": 2}
    params["explainers"], params["clients"] = {"lexical": {}}, {}
    del params["models"]["judge"]
    path.write_text(yaml.safe_dump(params))
    run(project, "dvc", "repro", "--quiet")
    whole = timed(project, "dvc", "repro")
    untracked = f" without_track_s={timed(project, 'dvc', 'repro', 'compare'):.1f}" if not QUICK else ""
    cells = len((run(project, "dvc", "stage", "list", "--name-only", capture_output=True).stdout).split())
    print(f"noop n={n_saes}x{n_scorers} cells={cells} s={whole:.1f}{untracked} runs={RUNS}")  # noqa: T201


if __name__ == "__main__":
    main()
