"""Two at once: two `dvc repro` of one project, two processes of one cell, a cell beside the whole. One result, and nothing paid twice."""

import shutil

import pytest

from faults.disturbed import CELLS, STORES, assert_nothing_left, assert_undisturbed, ended, forget, results, start, take_away
from pipeline.tiny import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ONE_OF_EACH = ("tokens", "latents@tiny", "explain@tiny", "score@tiny-detection", "compare")


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_two_processes_of_one_cell_make_one_result(project, whole, name):
    cell = CELLS[name]
    take_away(project, cell)
    for made in STORES:
        shutil.rmtree(project / made)
    both = [start(project, "python", *cell.command.split()) for _ in range(2)]
    for code, said in map(ended, both):
        assert code == 0, said
        assert "Traceback" not in said
    assert results(project, cell) == results(whole, cell)
    assert_nothing_left(project)


def test_two_dvc_repro_at_once_do_the_work_once(project, whole):
    """DVC lets the first in; the second says so and does nothing, or finds all done."""
    cells = [CELLS[name] for name in ("examples@tiny", "explain@tiny", "score@tiny-detection")]
    forget(project, *cells)
    both = [ended(process) for process in [start(project, "dvc", "repro"), start(project, "dvc", "repro")]]
    assert 0 in [code for code, _ in both], both
    for code, said in both:
        assert code == 0 or "Unable to acquire lock" in said or "is busy" in said or "lock" in said.lower(), said
    run(project, "dvc", "repro", "--quiet")
    assert_undisturbed(project, whole)


def test_a_second_dvc_repro_can_wait_for_the_first(project, whole):
    """As `make repro-parallel` runs cells."""
    forget(project, CELLS["score@tiny-embedding"], CELLS["score@tiny-detection"])
    both = [start(project, "dvc", "--wait-for-lock", "repro", "-s", f"score@tiny-{name}") for name in ("embedding", "detection")]
    for code, said in map(ended, both):
        assert code == 0, said
    assert_undisturbed(project, whole)
