"""`run_job`: makes what is missing of a job, by the engine that `run.engine` names."""

from tqdm import tqdm

from latentry.engines.base import Job
from latentry.engines.local import make_here


def run_job(job: Job, *, engine: str, workers: int | None, address: str | None) -> None:
    """Make every missing shard of a job, with one progress bar over their tokens; nothing is opened where nothing is missing.

    Raises:
        UnsupportedError: `ray` is wanted and is not installed.
        EngineError: workers or the cluster were lost more often than can be made good.
        LatentryError: whatever the job raised, also from another process.
    """
    shards = list(job.missing())
    if not shards:
        return
    with tqdm(total=sum(map(job.size, shards)), unit="tok", unit_scale=True, desc=job.title) as bar:
        if engine == "ray":
            from latentry.engines.ray import make_on_ray

            make_on_ray(job, shards, bar.update, workers=workers, address=address)
        else:
            make_here(job, shards, bar.update)
