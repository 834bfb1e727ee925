"""The local engine: one shard after another in this process."""

from collections.abc import Sequence

from latentry.engines.base import Job, Tick
from latentry.runtime import use_threads


def make_here(job: Job, shards: Sequence[int], tick: Tick) -> None:
    """Open the job once and make the shards in the order given."""
    use_threads(job.threads)
    make = job.open()
    for shard in shards:
        make(shard, tick)
