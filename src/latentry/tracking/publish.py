"""Upserting the results as MLflow runs: what is there whole is left, what is not is made, and nothing doubles.

Results are read from disk, so those restored from a cache or pulled from a colleague are published like any other,
and a tracker that is down loses nothing.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from latentry.errors import EndpointError
from latentry.params import Params
from latentry.safe_text import presentable
from latentry.tracking import identity, saved_view
from latentry.tracking.results import Results, RunRecord, Study, Totals, headlines, read_results, run_records
from latentry.tracking.server import PORT, artifact_location, quiet_environment, shown_uri, tracking_uri, ui_link

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackResult:
    """What became of every run, by name."""

    published: tuple[str, ...]
    skipped: tuple[str, ...]
    """Already there, whole and with the same identity."""
    pending: tuple[str, ...]
    """Not there, because the tracker failed; `latentry track` publishes them later."""
    link: str
    """The page that compares the runs; empty when the tracker failed before it was known."""


def track(params: Params, root: Path, here: Path = Path(), port: int = PORT) -> TrackResult:
    """Publish the results in `here`; the tracker is `MLFLOW_TRACKING_URI`, else a SQLite file at `root` (its link names `port`).

    A tracker that fails is said on stderr, with what is pending.

    Raises:
        ContractError: there are no complete results.
        EndpointError: the tracker failed, and `tracking.required` is set.
    """
    quiet_environment()
    results = read_results(here)
    records = run_records(results, study_of(params), reply_totals(root))
    uri = tracking_uri(root)
    progress = _Progress()
    lock = root / ".cache" / "track.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(lock):
        fault = _publish_all(uri, root, params.tracking.experiment, records, results, progress, port)
    pending = tuple(record.name for record in records if record.name not in progress.done)
    if fault:
        _tell(uri, fault, pending, required=params.tracking.required)
    return TrackResult(published=tuple(progress.published), skipped=tuple(progress.skipped), pending=pending, link=progress.link)


def study_of(params: Params) -> Study:
    """What all runs of a study have in common."""
    asked = dict.fromkeys(
        getattr(entry, role, None) for entry in (*params.explainers.values(), *params.scorers.values()) for role in ("client", "judge")
    )
    models = [str(getattr(params.clients[name], "model", name)) for name in asked if name]
    return Study(
        saes=tuple(params.saes),
        scorers=tuple(params.scorers),
        judge=", ".join(dict.fromkeys(models)) or "none",
        seed=params.seed,
        n_latents=str(params.examples.n_latents or "all"),
    )


def reply_totals(root: Path) -> Totals:
    """Calls, tokens and, where it is known, money from the reply store at `root`; None where it lacks any of the replies."""
    folder = root / ".cache" / "replies"

    def totals(keys: Sequence[str]) -> Mapping[str, float] | None:
        from latentry.clients.reply_store import ReplyStore

        if not keys:
            return {"calls": 0, "prompt_tokens": 0, "reply_tokens": 0, "usd": 0}
        if not any(folder.glob("*.sqlite")):
            return None
        store = ReplyStore(folder)
        found = store.totals(keys)
        store.close()
        spent: dict[str, float] = {"calls": found.calls, "prompt_tokens": found.prompt_tokens, "reply_tokens": found.reply_tokens}
        spent |= {} if found.usd is None else {"usd": found.usd}
        return spent if found.calls == len(keys) else None

    return totals


@dataclass(slots=True)
class _Progress:
    """Filled while runs are published, so that a fault half way leaves what was done."""

    published: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    link: str = ""

    @property
    def done(self) -> set[str]:
        return {*self.published, *self.skipped}


def _publish_all(
    uri: str, root: Path, experiment: str, records: Sequence[RunRecord], results: Results, progress: _Progress, port: int
) -> str:
    """Publish every record; returns what went wrong with the tracker, or an empty string."""
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient
    from sqlalchemy.exc import SQLAlchemyError

    try:
        client = MlflowClient(tracking_uri=uri)
        experiment_id = _experiment(client, experiment, artifact_location(root, uri))
        progress.link = ui_link(uri, experiment_id, saved_view.VIEW, port)
        tags = identity.source_tags(results.here, results.lock)
        runs = _runs(client, experiment_id)
        for record in records:
            new = _upsert(client, experiment_id, record, tags, runs)
            (progress.published if new else progress.skipped).append(record.name)
        some_sae = next((record.tags["sae"] for record in records if record.kind == "cell"), "")
        for name, view in saved_view.view_tags(headlines(results.cells), some_sae).items():
            client.set_experiment_tag(experiment_id, name, view)
    except (MlflowException, SQLAlchemyError, OSError, ModuleNotFoundError) as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return ""


def _experiment(client: "MlflowClient", name: str, location: str | None) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        return client.create_experiment(name, artifact_location=location, tags=saved_view.EXPERIMENT_TAGS)
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return found.experiment_id


def _runs(client: "MlflowClient", experiment_id: str) -> list[Any]:
    """All runs of the experiment: one request a thousand, and none per cell."""
    found, token = [], None
    while True:
        page = client.search_runs([experiment_id], max_results=1000, page_token=token)
        found += page
        token = page.token
        if not token:
            return found


def _upsert(client: "MlflowClient", experiment_id: str, record: RunRecord, source: Mapping[str, str], runs: Sequence[Any]) -> bool:
    """Make the run unless it is there whole; returns whether it was made."""
    same = [run for run in runs if run.data.tags.get("identity") == record.identity]
    whole = [run for run in same if run.info.status == "FINISHED" and run.data.tags.get("complete") == "true"]
    for run in same:
        if run not in whole:
            client.delete_run(run.info.run_id)
    key = _key(record, source)
    if whole:
        _refresh(client, whole[0], record, source)
    else:
        _make(client, experiment_id, record, {**source, "key": key})
    for run in runs:
        stale = run.data.tags.get("key") == key and run not in same and run.data.tags.get("superseded") != "true"
        if stale:
            client.set_tag(run.info.run_id, "superseded", "true")
    return not whole


def _key(record: RunRecord, source: Mapping[str, str]) -> str:
    """The cell, within its DVC experiment: experiments stand side by side and do not supersede each other."""
    experiment = source.get("dvc.experiment")
    return f"{experiment}:{record.key}" if experiment else record.key


def _refresh(client: "MlflowClient", run: Any, record: RunRecord, source: Mapping[str, str]) -> None:
    """Bring the informative tags up to date: a clean tree names the commit that holds these results."""
    from mlflow.entities import RunTag

    wanted = {"superseded": "false", "comparison": record.tags["comparison"]}
    if source["dirty"] == "false":
        wanted |= {name: source[name] for name in ("commit", "dirty", "code")}
    changed = [RunTag(name, value) for name, value in wanted.items() if run.data.tags.get(name) != value]
    if changed:
        client.log_batch(run.info.run_id, tags=changed)


def _make(client: "MlflowClient", experiment_id: str, record: RunRecord, tags: Mapping[str, str]) -> None:
    """One run from begin to end; the tag `complete` comes last, so that a run cut short is known as such."""
    from mlflow.entities import Metric, Param, RunTag

    first = {"kind": record.kind, "identity": record.identity, "superseded": "false", **tags}
    run_id = client.create_run(experiment_id, tags=first, run_name=record.name).info.run_id
    now = int(time.time() * 1000)
    spent = record.costs()
    metrics = {**record.metrics, **{f"cost/{name}": value for name, value in (spent or {}).items()}}
    shown = [{"path": path, "type": "table"} for path in record.tables]
    more = {
        **record.tags,
        "cost": "unknown" if spent is None else "known",
        "mlflow.source.name": "latentry",
        "mlflow.source.type": "LOCAL",
    } | ({"mlflow.loggedArtifacts": json.dumps(shown)} if shown else {})
    client.log_batch(
        run_id,
        metrics=[Metric(name, value, now, 0) for name, value in metrics.items()],
        params=[Param(name, value) for name, value in record.params.items()],
        tags=[RunTag(name, value) for name, value in more.items()],
    )
    if record.curve:
        points = [Metric(name, value, now, step) for step, values in record.curve for name, value in values.items()]
        client.log_batch(run_id, metrics=points)
    if record.inputs:
        client.log_inputs(run_id, datasets=_datasets(record.inputs))
    with _files(record) as folder:
        client.log_artifacts(run_id, str(folder))
    client.set_terminated(run_id, "FINISHED")
    client.set_tag(run_id, "complete", "true")


@contextmanager
def _files(record: RunRecord) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="latentry-track-") as folder:
        record.write_files(Path(folder))
        yield Path(folder)


def _datasets(inputs: Mapping[str, str]) -> list[Any]:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    return [
        DatasetInput(
            Dataset(name=path, digest=digest[:36], source_type="local", source=json.dumps({"uri": path})),
            [InputTag("mlflow.data.context", "input")],
        )
        for path, digest in inputs.items()
    ]


def _tell(uri: str, fault: str, pending: Sequence[str], *, required: bool) -> None:
    address = shown_uri(uri)
    text = (
        f"TRACKING FAILED: {address}: {fault.replace(uri, address)}\n"
        f"  pending: {len(pending)} runs ({', '.join(pending) or 'none'})\n"
        "  nothing is lost: the results stand in data/. When the tracker answers, run `latentry track`."
    )
    if required:
        raise EndpointError(text)
    sys.stderr.write(presentable(text + "\n"))
