"""The local engine makes what is missing, in order, here; what it cannot do it says before it begins."""

import os
import sys

import pytest

from latentry.engines.run import run_job
from latentry.errors import NumericsError, UnsupportedError
from toy_job import ToyJob


def run(job: ToyJob) -> None:
    run_job(job, engine="local", workers=None, address=None)


def test_every_shard_is_made_in_this_process_after_one_opening(tmp_path):
    job = ToyJob(folder=tmp_path)
    run(job)
    assert job.opened() == [os.getpid()]
    assert [job.begun(shard) for shard in range(job.n_shards)] == [[os.getpid()]] * job.n_shards
    assert job.missing() == []


def test_only_missing_shards_are_made(tmp_path):
    job = ToyJob(folder=tmp_path)
    run(job)
    whole = job.bytes()
    job.file(3).unlink()
    for mark in tmp_path.glob("begun-*"):
        mark.unlink()
    run(job)
    assert [shard for shard in range(job.n_shards) if job.begun(shard)] == [3]
    assert job.bytes() == whole


def test_nothing_is_opened_where_nothing_is_missing(tmp_path):
    run(ToyJob(folder=tmp_path, n_shards=0))
    assert list(tmp_path.iterdir()) == []


def test_the_job_runs_with_the_threads_that_it_states(tmp_path):
    for threads in (1, 2):
        folder = tmp_path / str(threads)
        folder.mkdir()
        run(ToyJob(folder=folder, n_shards=1, threads=threads))
        assert (folder / "shard-0").read_bytes()[-1] == threads


def test_a_failing_shard_keeps_those_before_it_and_its_error_is_the_jobs_own(tmp_path):
    job = ToyJob(folder=tmp_path, fails_at=2)
    with pytest.raises(NumericsError, match="shard 2 holds NaN"):
        run(job)
    assert sorted(job.bytes()) == ["shard-0", "shard-1"]


def test_the_bar_counts_the_tokens_of_what_was_missing(tmp_path, capsys):
    job = ToyJob(folder=tmp_path, n_shards=3)
    job.file(0).touch()
    run(job)
    assert "23.0/23.0" in capsys.readouterr().err


def test_a_missing_ray_is_named_with_its_extra_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnsupportedError, match=r"latentry\[distributed\].*run.engine: local"):
        run_job(ToyJob(folder=tmp_path), engine="ray", workers=2, address=None)
    assert list(tmp_path.iterdir()) == []
