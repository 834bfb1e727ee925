"""SIGKILL at random moments of every stage: of the stage, of dvc, of both. Then `dvc repro` ends as if nothing had happened."""

import random
import time

import pytest

from faults.disturbed import (
    CELLS,
    assert_nothing_left,
    await_stage,
    ended,
    forget,
    kill,
    locked,
    results,
    start,
)
from pipeline.tiny import run

pytestmark = pytest.mark.slow

ORDER = ("both", "stage", "dvc")
"""A stage left alone finishes, so it comes last."""
FIRST_GUESS_S = 6.0
LEAST = 0.25
"""Earlier a stage has loaded nothing of its own yet."""


def kill_once(project, cell, who, moments):
    """One run of the cell that is killed at a random moment of its life; run again, and killed earlier, while it ends before."""
    lasts_s = FIRST_GUESS_S
    for _ in range(8):
        process = start(project, "dvc", "repro", "--quiet", "-s", cell.name)
        stage = await_stage(process)
        began = time.monotonic()
        if stage is not None:
            time.sleep(moments.uniform(LEAST, 1) * lasts_s)
            if process.poll() is None and stage.is_running():
                kill(process, who, stage)
                return
        code, said = ended(process)
        assert code == 0, said
        lasts_s = min(lasts_s, time.monotonic() - began) * 0.8
        forget(project, cell)
    pytest.fail("it always ended before it was killed")


@pytest.mark.parametrize("name", [name for name in CELLS if name != "track"])
def test_a_stage_killed_at_random_moments_ends_as_if_undisturbed(project, whole, name):
    cell, moments = CELLS[name], random.Random(name)
    forget(project, cell)
    for who in ORDER:
        kill_once(project, cell, who, moments)
        run(project, "latentry", "check", capture_output=True)
    code, said = ended(start(project, "dvc", "repro", "-s", name))
    assert code == 0, said
    assert "Traceback" not in said
    assert results(project, cell) == results(whole, cell)
    assert locked(project)[cell.out] == locked(whole)[cell.out]
    assert_nothing_left(project)


def test_track_killed_at_random_moments_doubles_no_run(project, whole):
    moments = random.Random("track")
    forget(project, CELLS["track"])
    for who in ORDER:
        kill_once(project, CELLS["track"], who, moments)
    assert run(project, "latentry", "track", capture_output=True).stdout.endswith("pending 0\n")
    assert finished_runs(project) == finished_runs(whole)
    again = run(project, "latentry", "track", capture_output=True).stdout
    assert "published 0, there already 3, pending 0" in again


def finished_runs(project):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{project / 'mlflow.db'}")
    (experiment,) = (found for found in client.search_experiments() if found.name == "tiny")
    runs = client.search_runs([experiment.experiment_id])
    assert all(run.data.tags["complete"] == "true" for run in runs)
    return sorted((run.info.run_name, run.data.tags["identity"]) for run in runs)
