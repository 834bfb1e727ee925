"""Results that may be read and not written: what only reads goes on, what would write says which file, and nothing is lost."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from faults.disturbed import CELLS, MAKERS, assert_undisturbed, ended, results, start, take_away
from faults.places import read_only
from pipeline.tiny import environment, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CHANGED = [cell for cell in MAKERS if not cell.name.startswith("models")]


@pytest.mark.parametrize("cell", CHANGED, ids=lambda cell: cell.name)
def test_a_stage_that_may_not_write_names_the_file_and_changes_nothing(project, whole, stages, cell):
    take_away(project, cell)
    with read_only(project):
        seen = stages.run(project, *cell.command.split())
        assert (seen.code, "Read-only" in seen.error, str(project.name) in seen.error or ".cache" in seen.error) == (1, True, True), (
            seen.said
        )
        assert "Traceback" not in seen.said
    assert stages.run(project, *cell.command.split()).code == 0
    assert results(project, cell) == results(whole, cell)


@pytest.mark.parametrize("place", ["data", "report", ".cache/replies", ".cache/embeddings"])
def test_one_place_that_may_not_be_written_is_named(project, whole, stages, place):
    cell = {"report": CELLS["compare"], ".cache/embeddings": CELLS["score@tiny-embedding"]}.get(place, CELLS["score@tiny-detection"])
    take_away(project, *([] if place == "report" else [cell]))
    if place.startswith(".cache"):
        for path in (project / place).iterdir():
            path.unlink()
    with read_only(project / place):
        seen = stages.run(project, *cell.command.split())
        assert (seen.code, "Read-only" in seen.error, Path(place).name in seen.error) == (1, True, True), seen.said
        assert "Traceback" not in seen.said
    assert stages.run(project, *cell.command.split()).code == 0
    assert results(project, cell) == results(whole, cell)


def test_what_only_reads_works_on_read_only_results(project):
    with read_only(project):
        shown = run(project, "latentry", "show", "tiny", "1", capture_output=True, check=False)
        assert (shown.returncode, shown.stderr) == (0, "")
        estimated = run(project, "latentry", "estimate", capture_output=True, check=False)
        assert estimated.returncode == 0 or "Read-only" in estimated.stderr
        assert "Traceback" not in estimated.stderr


def test_tracking_of_read_only_results_is_said_or_done(project, stages):
    with read_only(project):
        seen = stages.run(project, "stages/track.py")
        assert "Traceback" not in seen.said
        assert (seen.code == 0 and "TRACKING FAILED" in seen.said) or "Read-only" in seen.error, seen.said


def test_dvc_repro_on_read_only_results_says_so_and_goes_on_later(project, whole):
    take_away(project, CELLS["score@tiny-detection"])
    with read_only(project):
        code, said = ended(start(project, "dvc", "repro"))
        assert code != 0 and "Read-only" in said, said
    run(project, "dvc", "repro", "--quiet")
    assert_undisturbed(project, whole)


def test_another_user_is_told_what_may_not_be_written(project):
    """Files of one user, a run of another: as where a colleague's folder is shared."""
    cell, as_nobody = CELLS["examples@tiny"], ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    with tempfile.TemporaryDirectory(prefix="latentry-shared-") as folder:
        shared = Path(folder, "project")
        shutil.copytree(project, shared)
        take_away(shared, cell)
        Path(folder).chmod(0o755)
        shared.chmod(0o755)
        if subprocess.run([*as_nobody, sys.executable, "-c", ""], cwd=shared, check=False).returncode:
            pytest.skip("another user cannot be taken on here")
        asked = [*as_nobody, sys.executable, *cell.command.split()]
        seen = subprocess.run(asked, cwd=shared, env=environment(shared) | {"HOME": folder}, capture_output=True, text=True, check=False)
        assert (seen.returncode, "Traceback" in seen.stderr) == (1, False), seen.stderr
        assert "Permission denied" in seen.stderr and ".cache/work" in seen.stderr, "what may be read is read, models among it"
        assert not (shared / cell.out).exists()
