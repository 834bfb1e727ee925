"""A disk that fills up under every stage: an error that names the disk's file, nothing half-written, and the same bytes when there is room."""

import shutil

import pytest

from faults.disturbed import CELLS, MAKERS, STORES, assert_undisturbed, ended, forget, put_back, results, start, take_away
from faults.places import filled, small_disk
from pipeline.tiny import run

pytestmark = pytest.mark.slow

MB = 1 << 20


@pytest.fixture(scope="module")
def one_disk(whole, tmp_path_factory):
    """The project on a disk of its own, without DVC's cache."""
    with small_disk(tmp_path_factory.mktemp("disks") / "disk", 120 * MB) as disk:
        shutil.copytree(whole, disk / "project", ignore=shutil.ignore_patterns("cache", "__pycache__"))
        shutil.copytree(whole / ".cache", disk / "project" / ".cache", dirs_exist_ok=True)
        yield disk


@pytest.fixture
def full_disk(one_disk, whole):
    """The disk, with room and all results on it before each test."""
    put_back(one_disk / "project", whole)
    return one_disk


def size_of(project, cell):
    return sum(path.stat().st_size for out in (cell.out, *cell.also) for path in (project / out).rglob("*") if path.is_file())


def is_told(ended_stage):
    return "No space left on device" in ended_stage.error and "cannot write" in ended_stage.error


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("cell", MAKERS, ids=lambda cell: cell.name)
def test_a_stage_says_that_the_disk_is_full_and_goes_on_when_there_is_room(full_disk, whole, stages, cell, share):
    project = full_disk / "project"
    free = int(size_of(whole, cell) * share)
    take_away(project, cell)
    for made in (".cache/work", *STORES):
        shutil.rmtree(project / made, ignore_errors=True)
    with filled(full_disk, free):
        stopped = stages.run(project, *cell.command.split())
        assert (stopped.code, is_told(stopped), "Traceback" in stopped.said) == (1, True, False), stopped.said
        assert str(cell.out) not in stopped.error or not (project / cell.out / "manifest.json").exists() or cell.name == "compare"
    assert [path.name for path in project.rglob(".*.partial")] == []
    went_on = stages.run(project, *cell.command.split())
    assert went_on.code == 0, went_on.said
    assert results(project, cell) == results(whole, cell)


def test_a_reply_store_without_room_keeps_what_was_paid(full_disk, whole, stages):
    """The work folder is on a disk with room, the replies are not."""
    project, cell = full_disk / "project", CELLS["score@tiny-detection"]
    take_away(project, cell)
    shutil.rmtree(project / ".cache" / "replies")
    with filled(full_disk, 40_000):
        stopped = stages.run(project, *cell.command.split())
        assert stopped.code == 1 and "replies.sqlite" in stopped.error and "No space left" in stopped.error, stopped.said
    went_on = stages.run(project, *cell.command.split())
    assert went_on.code == 0, went_on.said
    assert results(project, cell) == results(whole, cell)


def test_a_tracker_without_room_is_said_and_published_later(full_disk, stages):
    project = full_disk / "project"
    take_away(project, CELLS["track"])
    with filled(full_disk, 200_000):
        pending = stages.run(project, "stages/track.py")
        assert pending.code == 0 and "TRACKING FAILED" in pending.said and "pending 3" in pending.said
        assert "Traceback" not in pending.said
    assert "published 3, there already 0, pending 0" in stages.run(project, "stages/track.py").said


@pytest.mark.timeout(900)
def test_dvc_on_a_full_disk_goes_on_when_there_is_room(whole, tmp_path):
    """The room is too little for `tokens`, then for `activations`, then enough."""
    with small_disk(tmp_path / "disk", 120 * MB) as disk:
        project = disk / "project"
        shutil.copytree(whole, project, ignore=shutil.ignore_patterns("__pycache__"))
        forget(project, CELLS["tokens"], CELLS["activations"])
        for free, stopped_at in ((300_000, "tokens"), (3 * MB, "activations")):
            with filled(disk, free):
                code, said = ended(start(project, "dvc", "repro"))
                assert code != 0 and "No space left" in said and f"stages/{stopped_at}.py" in said, said
            run(project, "latentry", "check", capture_output=True)
        code, said = ended(start(project, "dvc", "repro"))
        assert code == 0, said
        assert_undisturbed(project, whole)
