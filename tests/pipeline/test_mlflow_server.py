"""Tracking to MLflow's own server on loopback: all arrives, requests do not grow with latents, and a server that dies half way is no loss."""

import json
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests

from latentry.tracking.publish import track
from latentry.tracking.server import HOST, quiet_environment
from made_up_study import make_study
from mlflow_server import free_port, kill, serving
from tracked_study import ALL, params_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Server:
    """A server that can die and come back to the same address with the same runs."""

    def __init__(self, root: Path) -> None:
        self.root, self.port, self.running = root, free_port(), ExitStack()

    def start(self) -> None:
        self.process = self.running.enter_context(serving(self.root, self.port))

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    quiet_environment()
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    with server.running:
        yield server


@pytest.fixture(autouse=True)
def address(server, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.address)
    monkeypatch.delenv("DVC_EXP_NAME", raising=False)


@pytest.fixture
def sent(monkeypatch):
    """The paths that the client asks for, one after another; `before` is called with each path before it goes out."""
    log = SimpleNamespace(paths=[], before=lambda _: None)
    send = requests.Session.send

    def noted(session, request, **options):
        log.paths.append(request.path_url)
        log.before(request.path_url)
        return send(session, request, **options)

    monkeypatch.setattr(requests.Session, "send", noted)
    return log


def client_of(server: Server):
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=server.address)


def runs_of(server: Server, experiment: str) -> list:
    client = client_of(server)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return list(client.search_runs([found.experiment_id]))


def test_all_arrives_at_a_server_in_as_many_requests_for_few_latents_as_for_many(server, tmp_path, sent):
    counts = []
    for n in (6, 60):
        root = make_study(tmp_path / str(n), n_latents=n, widths={"1k": 1024})
        result = track(params_of(experiment=f"{n} latents"), root, root)
        assert set(result.published) == ALL
        counts.append(len(sent.paths))
        sent.paths.clear()
        assert set(track(params_of(experiment=f"{n} latents"), root, root).skipped) == ALL
        assert len(sent.paths) <= 4
        sent.paths.clear()
    assert counts[0] == counts[1]
    run = next(run for run in runs_of(server, "60 latents") if run.info.run_name == "topk-1k/lexical")
    table = json.loads(Path(client_of(server).download_artifacts(run.info.run_id, "interpretations.json", str(tmp_path))).read_text())
    assert len(table["data"]) == 60
    assert run.data.tags["complete"] == "true"
    comparison = next(run for run in runs_of(server, "60 latents") if run.data.tags["kind"] == "comparison")
    attached = {file.path for file in client_of(server).list_artifacts(comparison.info.run_id, "report")}
    assert attached == {"report/index.html"}


def test_a_server_that_dies_half_way_leaves_what_is_pending_for_later(server, tmp_path, sent, capsys, monkeypatch):
    root = make_study(tmp_path / "study", n_latents=6, widths={"1k": 1024})

    def dies(path: str) -> None:
        if path.endswith("runs/create"):
            dies.n += 1
        if dies.n == 3 and path.endswith("log-inputs"):
            kill(server.process)

    dies.n = 0
    sent.before = dies
    first = track(params_of(experiment="half way"), root, root)
    sent.before = lambda _: None
    assert len(first.published) == 2
    assert set(first.published) | set(first.pending) == ALL
    said = capsys.readouterr().err
    assert "TRACKING FAILED" in said and "3 runs" in said and "latentry track" in said

    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    server.start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.address)
    half = [run for run in runs_of(server, "half way") if run.data.tags.get("complete") != "true"]
    assert len(half) == 1
    again = track(params_of(experiment="half way"), root, root)
    assert (set(again.published), set(again.skipped), again.pending) == (set(first.pending), set(first.published), ())
    runs = runs_of(server, "half way")
    assert sorted(run.info.run_name for run in runs) == sorted(ALL)
    assert all(run.data.tags["complete"] == "true" and run.info.status == "FINISHED" for run in runs)
