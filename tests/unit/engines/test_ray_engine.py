"""The Ray engine makes the local engine's bytes with two workers, whatever happens to them, and leaves nothing running."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from latentry.engines.run import run_job
from latentry.errors import EngineError, NumericsError
from toy_job import ToyJob

ray = pytest.importorskip("ray")
TESTS = str(Path(__file__).parents[2])
"""Where workers find the toy job."""
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    """One cluster for those tests that are not about starting one; it says that it has two GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", TESTS)
        ray.init(address="local", num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000)
        yield
        ray.shutdown()


def job_in(folder: Path, **named) -> ToyJob:
    folder.mkdir()
    return ToyJob(folder=folder, **named)


def on_ray(job: ToyJob, workers: int = 2) -> None:
    run_job(job, engine="ray", workers=workers, address=None)


def until(true, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.usefixtures("cluster")
def test_two_workers_make_the_local_engines_bytes_each_opening_the_job_once(tmp_path):
    here, there = job_in(tmp_path / "here"), job_in(tmp_path / "there")
    run_job(here, engine="local", workers=None, address=None)
    on_ray(there)
    assert there.bytes() == here.bytes()
    assert sorted(there.opened()) == sorted(set(there.opened()))
    assert 1 <= len(there.opened()) <= 2
    assert os.getpid() not in there.opened()
    assert all(len(there.begun(shard)) == 1 for shard in range(there.n_shards))


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("n_losses", [1, 2])
def test_a_worker_killed_at_its_shard_costs_that_shard_only(tmp_path, n_losses):
    job = job_in(tmp_path / "job", waits_at=2)

    def kill() -> None:
        for n in range(1, n_losses + 1):
            until(lambda n=n: len(job.begun(2)) == n)
            alive = [pid for pid in job.begun(2) if psutil.pid_exists(pid)]
            os.kill(alive[0], signal.SIGKILL)
        (job.folder / "go").touch()

    killer = threading.Thread(target=kill)
    killer.start()
    on_ray(job)
    killer.join()
    assert job.missing() == []
    assert [len(job.begun(shard)) for shard in range(job.n_shards)] == [1, 1, 1 + n_losses, 1, 1, 1]


@pytest.mark.usefixtures("cluster")
def test_a_shard_that_kills_its_worker_three_times_ends_the_job_and_those_before_it_stay(tmp_path):
    job = job_in(tmp_path / "job", dies_at=3)
    with pytest.raises(EngineError, match=r"at shard 3, 3 times .*run.batch_contexts"):
        on_ray(job)
    assert len(job.begun(3)) == 3
    assert len(job.bytes()) >= 2


@pytest.mark.usefixtures("cluster")
def test_what_a_job_raises_in_a_worker_is_raised_here_with_its_message(tmp_path):
    with pytest.raises(NumericsError) as caught:
        on_ray(job_in(tmp_path / "job", fails_at=1))
    assert str(caught.value) == "shard 1 holds NaN"
    assert type(caught.value) is NumericsError


@pytest.mark.usefixtures("cluster")
def test_more_workers_and_threads_than_there_are_cpus_wait_for_nothing(tmp_path):
    job = job_in(tmp_path / "job", threads=64)
    on_ray(job, workers=5)
    assert job.missing() == []


@pytest.mark.usefixtures("cluster")
def test_each_worker_has_a_gpu_of_its_own_and_there_are_no_more_workers_than_gpus(tmp_path):
    job = job_in(tmp_path / "job", device="auto", waits_at=0)
    releaser = threading.Thread(target=lambda: (until(lambda: len(job.opened()) == 2), (job.folder / "go").touch()))
    releaser.start()
    on_ray(job, workers=5)
    releaser.join()
    assert job.gpus() == ["0", "1"]


@pytest.mark.usefixtures("cluster")
def test_a_job_for_the_cpu_takes_no_gpu(tmp_path):
    job = job_in(tmp_path / "job", device="cpu")
    on_ray(job)
    assert set(job.gpus()) <= {"", "all"}


@pytest.mark.usefixtures("cluster")
def test_the_cluster_that_was_there_before_stays_and_has_all_its_cpus_again(tmp_path):
    on_ray(job_in(tmp_path / "job"))
    assert ray.is_initialized()
    until(lambda: ray.available_resources().get("CPU") == 2)


SCRIPT = """
import sys
from pathlib import Path
from toy_job import ToyJob
from latentry.engines.run import run_job
from latentry.runtime import run_stage

job = ToyJob(folder=Path(sys.argv[1]), waits_at=1)
run_stage(lambda: run_job(job, engine="ray", workers=2, address=sys.argv[2] if len(sys.argv) > 2 else None))
"""


def stage(*args: object) -> subprocess.Popen:
    environ = os.environ | {"PYTHONPATH": TESTS}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), *map(str, args)]
    return subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True, start_new_session=True)


def family(process: subprocess.Popen) -> list[psutil.Process]:
    """Ray's processes that a stage started, found while it runs."""
    return psutil.Process(process.pid).children(recursive=True)


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_ray_is_started_here_where_no_address_is_given_and_gone_afterwards(tmp_path):
    process = stage(tmp_path)
    until(lambda: ToyJob(folder=tmp_path).begun(1))
    children = family(process)
    (tmp_path / "go").touch()
    assert process.wait(120) == 0
    until(lambda: not any(alive(child) for child in children))
    assert ToyJob(folder=tmp_path).missing() == []


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGTERM])
def test_a_stage_that_is_stopped_leaves_no_process_behind(tmp_path, blow):
    process = stage(tmp_path)
    until(lambda: ToyJob(folder=tmp_path).begun(1))
    children = family(process)
    assert children
    process.send_signal(blow)
    assert process.wait(120) != 0
    until(lambda: not any(alive(child) for child in children))


def test_the_workers_of_a_killed_stage_end_by_themselves(tmp_path):
    process = stage(tmp_path)
    until(lambda: ToyJob(folder=tmp_path).begun(1))
    workers = [psutil.Process(pid) for pid in ToyJob(folder=tmp_path).opened()]
    assert all(alive(worker) for worker in workers)
    process.kill()
    process.wait(120)
    until(lambda: not any(alive(worker) for worker in workers))


def test_a_cluster_that_is_not_there_is_named(tmp_path):
    process = stage(tmp_path, "127.0.0.1:1")
    assert process.wait(120) == 3
    assert process.stderr is not None
    assert "run.ray_address: no cluster is reached at '127.0.0.1:1'" in process.stderr.read()
