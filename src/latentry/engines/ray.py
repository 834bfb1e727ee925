"""The Ray engine: one actor a worker, each opens the job once and makes the shards that the driver hands out one by one.

Sole owner of ray. Nothing but shards' numbers travels: the actors commit into the work folder, which on a cluster every
machine sees under the same path. A worker that is lost costs the shard it was at; a fresh one makes it again. Nothing that
this module started outlives `make_on_ray`.
"""

import logging
import math
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from latentry.engines.base import Job, Tick
from latentry.errors import EngineError, UnsupportedError
from latentry.runtime import use_threads

POLL_S = 1.0
"""How long the driver waits before it looks around."""
START_S = 600.0
"""How long no worker at all may be running before the cluster counts as full: nodes that are started on demand take minutes."""
KNOCK_S = 10.0
"""How long a cluster's address may take to answer."""
PROBE_S = 60.0
"""The same for an address without a port, such as `auto`, which Ray has to look up."""
LOSSES = 3
"""Workers lost at one shard, or one after another before they were ready, before the engine gives up."""
STORE_BYTES = 100_000_000
"""Ray's object store on this machine, near the least it takes: no arrays pass through it."""
UNSTARTED = "every machine of the cluster needs this environment, with latentry in it"
SHORT = (
    "a worker that takes too much memory is killed like this: lower `run.batch_contexts`, `run.batch_tokens`, `run.block_latents`"
    " or `run.workers`"
)

log = logging.getLogger(__name__)


def make_on_ray(job: Job, shards: Sequence[int], tick: Tick, *, workers: int | None, address: str | None) -> None:
    """Make the shards on a cluster, or, without an address, by Ray started on this machine and stopped afterwards.

    Raises:
        UnsupportedError: ray is not installed.
        EngineError: no cluster is there, no worker starts, or too many are lost.
        Exception: whatever the job raised in a worker.
    """
    ray = _imported(here=address is None)
    with _connected(ray, address):
        crew = _Crew(ray, job, workers, len(shards))
        try:
            crew.make(shards, tick)
        finally:
            crew.dismiss()


class _Maker:
    """What an actor holds: the job, opened for its first shard."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._make: Callable[[int, Tick], None] | None = None

    def ready(self) -> None:
        """Answered as soon as the actor runs."""

    def make(self, shard: int) -> None:
        """Make and commit one shard."""
        if self._make is None:
            use_threads(self._job.threads)
            self._make = self._job.open()
        self._make(shard, lambda _tokens: None)


class _Crew:
    """The actors of one job. None is given a shard before it runs, so one that never starts holds nothing up."""

    def __init__(self, ray: Any, job: Job, workers: int | None, n_shards: int) -> None:
        self._ray, self._job = ray, job
        self._size, reserved = _crew_of(ray, job, workers, n_shards)
        self._actor: Any = ray.remote(_Maker).options(max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD", **reserved)
        self._reserved = reserved
        self._calls: dict[Any, tuple[Any, int | None]] = {}
        """By pending reply: the actor, and the shard it makes, or None while it starts."""
        self._losses: Counter[int | None] = Counter()

    def make(self, shards: Sequence[int], tick: Tick) -> None:
        """Hand the shards out, in order, until all are committed."""
        waiting, n_left = deque(shards), len(shards)
        for _ in range(self._size):
            self._hire()
        while n_left:
            actor, shard, loss = self._next_ended()
            if loss:
                self._count_loss(shard, loss)
                waiting.extendleft([] if shard is None else [shard])
                self._ray.kill(actor)
                self._hire()
                continue
            if shard is not None:
                n_left -= 1
                tick(self._job.size(shard))
            self._employ(actor, waiting)

    def dismiss(self) -> None:
        """Let go of whatever still starts or works."""
        for actor, _ in self._calls.values():
            self._ray.kill(actor)
        self._calls.clear()

    def _hire(self) -> None:
        actor = self._actor.remote(self._job)
        self._calls[actor.ready.remote()] = actor, None

    def _employ(self, actor: Any, waiting: deque[int]) -> None:
        if waiting:
            shard = waiting.popleft()
            self._calls[actor.make.remote(shard)] = actor, shard
        else:
            self._ray.kill(actor)

    def _next_ended(self) -> tuple[Any, int | None, str | None]:
        """The actor and shard of the next call that ended, and how the actor was lost, if it was; raises what the job raised."""
        reply = self._next_reply()
        actor, shard = self._calls.pop(reply)
        loss = self._loss(reply)
        if loss is None and shard is None:
            self._losses[None] = 0
        return actor, shard, loss

    def _next_reply(self) -> Any:
        """The next call that ended, well or not: Ray ends the calls of a dead actor by itself."""
        begun = time.monotonic()
        while True:
            ended, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=POLL_S)
            if ended:
                return ended[0]
            none_runs = all(shard is None for _, shard in self._calls.values())
            if none_runs and time.monotonic() - begun > START_S:
                raise EngineError(
                    f"run.engine: no worker has started for {START_S:.0f} s; each reserves {self._reserved}, the cluster has free"
                    f" {self._ray.available_resources()}; lower `run.workers` or `run.threads`, or wait for the cluster, then run again"
                )

    def _loss(self, reply: Any) -> str | None:
        """How the worker of an ended call was lost, or None when it answered."""
        from ray.exceptions import RayError, RayTaskError

        try:
            self._ray.get(reply, timeout=START_S)
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from error
        except RayError as error:
            return _in_short(str(error))
        return None

    def _count_loss(self, shard: int | None, loss: str) -> None:
        self._losses[shard] += 1
        where = f"{self._job.title}: a worker was lost " + ("before it ran" if shard is None else f"at shard {shard}")
        if self._losses[shard] == LOSSES:
            raise EngineError(
                f"{where}, {LOSSES} times ({loss}); {UNSTARTED if shard is None else SHORT}; what was committed is kept: run again"
            )
        log.warning("%s (%s); a fresh one takes over", where, loss)


def _in_short(text: str) -> str:
    """Ray's pages of text in a line: their first and their last, without colours."""
    lines = [line.strip()[:300] for line in re.sub(r"\x1b\[\d+m", "", text).splitlines() if line.strip()] or [""]
    return " ... ".join(dict.fromkeys((lines[0], lines[-1])))


def _crew_of(ray: Any, job: Job, workers: int | None, n_shards: int) -> tuple[int, dict[str, float]]:
    """How many actors, and what each reserves: a GPU where there are any and the job may use them, else its part of the CPUs.

    More than there is would wait for ever, so a part is never larger than what the cluster, or its largest machine, has.
    """
    total = ray.cluster_resources()
    n_gpus = int(total.get("GPU", 0)) if job.device == "auto" or job.device.startswith("cuda") else 0
    if n_gpus:
        return min(workers or n_gpus, n_gpus, n_shards), {"num_gpus": 1, "num_cpus": 0}
    size = min(workers or 1, n_shards)
    largest = max((node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
    part = min(job.threads, largest, total.get("CPU", 0.0) / size)
    return size, {"num_gpus": 0, "num_cpus": math.floor(part) if part > 1 else math.floor(part * 100) / 100}


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """In a cluster; it is left, or what was started here is stopped, at the end. One that this process is in already stays."""
    if ray.is_initialized():
        yield
        return
    here = {"address": "local", "include_dashboard": False, "object_store_memory": STORE_BYTES}
    try:
        _knock(address or "")
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **({"address": address} if address else here))
    except (OSError, RuntimeError, ValueError) as error:
        what = f"run.ray_address: no cluster is reached at {address!r}" if address else "run.engine: Ray cannot be started on this machine"
        raise EngineError(f"{what} ({_in_short(str(error))}); start it there, or set `run.engine: local`") from error
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Fail soon where nothing answers: Ray itself would try for minutes, and for ever at a cluster of its memory that has died."""
    found = re.fullmatch(r"(?:ray://)?\[?([^\[\]/]+?)\]?:(\d+)", address)
    if found:
        socket.create_connection((found[1], int(found[2])), timeout=KNOCK_S).close()
    elif address:
        try:
            subprocess.run([sys.executable, "-c", _PROBE, address], timeout=PROBE_S, capture_output=True, check=False)
        except subprocess.TimeoutExpired:
            raise OSError(f"it did not answer in {PROBE_S:.0f} s") from None


_PROBE = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False)"


def _imported(*, here: bool) -> Any:
    """ray. What is started here listens on the loopback alone, which Ray reads at its import, under the name of where that is usual."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if here:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        import ray
    except ImportError:
        raise UnsupportedError(
            "run.engine: 'ray' needs an extra that is not installed; `pip install 'latentry[distributed]'`, or set `run.engine: local`"
        ) from None
    return ray
