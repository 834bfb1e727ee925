"""Tracking on made-up results and a real SQLite store: nothing doubles, nothing is lost, and runs say where they came from."""

import base64
import dataclasses
import itertools
import json
import shutil
import socket
import time
import zlib
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import yaml

from latentry.clients.reply_store import ReplyStore
from latentry.errors import ContractError, EndpointError
from latentry.records import Reply, Status
from latentry.tracking import identity, saved_view
from latentry.tracking.publish import TrackResult, reply_totals, track
from latentry.tracking.results import read_results, run_records
from latentry.tracking.server import quiet_environment, shown_uri, tracking_uri, ui_command, ui_link
from made_up_study import SCORERS, make_study, rewrite
from tracked_study import ALL, SAES, params_of


def client_of(root: Path):
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=tracking_uri(root))


def runs_of(root: Path, filter_string: str = "", experiment: str = "sizes") -> dict:
    client = client_of(root)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return {run.info.run_name: run for run in client.search_runs([found.experiment_id], filter_string)}


def artifact(run, name: str) -> Path:
    return Path(run.info.artifact_uri.removeprefix("file://")) / name


def relock(root: Path, stage: str, command: str) -> None:
    lock = json.loads((root / "dvc.lock").read_text())
    lock["stages"][stage]["cmd"] = command
    (root / "dvc.lock").write_text(json.dumps(lock))


def state_of(tag: str) -> dict:
    return json.loads(zlib.decompress(base64.b64decode(json.loads(tag)["state"].removeprefix("deflate;"))))


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory):
    """A SQLite store with its tables and nothing in them: making them takes seconds."""
    quiet_environment()
    folder = tmp_path_factory.mktemp("store")
    client_of(folder).search_experiments()
    return folder / "mlflow.db"


@pytest.fixture(scope="module")
def published(tmp_path_factory, empty_store):
    """A study and its runs; tests that change them take a copy."""
    root = tmp_path_factory.mktemp("study")
    make_study(root, n_latents=12, widths={"1k": 1024})
    shutil.copy(empty_store, root / "mlflow.db")
    return root, track(params_of(), root, root)


@pytest.fixture
def copy(published, tmp_path):
    """The published study with its runs, free to change."""
    return Path(shutil.copytree(published[0], tmp_path / "copy"))


@pytest.fixture(autouse=True)
def no_server(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("DVC_EXP_NAME", raising=False)


def test_every_cell_and_the_comparison_become_one_run_each(published):
    root, result = published
    assert set(result.published) == ALL == set(runs_of(root))
    assert (result.skipped, result.pending) == ((), ())
    assert "viewStateShareKey=size-x-loss" in result.link


def test_a_run_holds_size_loss_scores_with_intervals_null_and_lift(published):
    run = runs_of(published[0])["topk-1k/default"]
    cell = next(
        row
        for row in read_results(published[0]).cells
        if (row["sae"], row["explainer"], row["scorer"], row["metric"]) == ("topk-1k", "default", "fuzzing", "auroc_wrong_position")
    )
    assert run.data.params["d_sae"] == "1024"
    assert run.data.params["log2_d_sae"] == "10.00"
    assert (run.data.params["loss"], run.data.params["judge"]) == ("topk", "a-small-judge")
    for suffix, column in {"": "mean", "_low": "low", "_null": "null", "_lift": "lift", "_lift_high": "lift_high", "_n": "n"}.items():
        assert run.data.metrics[f"fuzzing/auroc_wrong_position{suffix}"] == pytest.approx(cell[column], abs=1e-4)
    assert run.data.metrics["sae/l0"] == 32.0
    assert run.data.tags["complete"] == "true"


def test_a_run_holds_the_training_curve_of_its_sae_by_tokens(published):
    root, _ = published
    run = runs_of(root)["topk-1k/lexical"]
    history = {name: client_of(root).get_metric_history(run.info.run_id, f"training/{name}") for name in ("loss", "mse", "l0")}
    assert [point.step for point in history["loss"]] == [n * 10_000 for n in range(24)]
    assert [point.value for point in history["loss"]][:2] == [1.0, 0.5]
    assert (history["mse"][1].value, history["l0"][1].value) == (0.25, 32)


def test_all_cells_have_the_same_params(published):
    cells = runs_of(published[0], "tags.kind = 'cell'").values()
    assert len({tuple(sorted(run.data.params)) for run in cells}) == 1


def test_interpretations_begin_with_latent_and_explanation_and_show_a_failure_as_status(published):
    run = runs_of(published[0])["topk-1k/default"]
    table = json.loads(artifact(run, "interpretations.json").read_text())
    assert table["columns"][:4] == ["latent", "explanation", "embedding", "embedding null"]
    assert table["columns"][-2:] == ["firing_frequency", "status"]
    (failed,) = [row for row in table["data"] if row[-1] == "parse_error"]
    assert failed[1:-2] == [None] * (len(failed) - 3)
    assert len(table["data"]) == 6
    assert json.loads(run.data.tags["mlflow.loggedArtifacts"]) == [{"path": "interpretations.json", "type": "table"}]


def test_the_comparison_holds_what_reproduces_it(published):
    run = runs_of(published[0])["comparison of 2 SAEs"]
    lock = yaml.safe_load(artifact(run, "dvc.lock").read_text())
    assert "compare" in lock["stages"] and "track" not in lock["stages"]
    for name in ("report/index.html", "params.yaml", "dvc.yaml", "tables/cells.parquet", "figures/score_by_width.png"):
        assert artifact(run, name).stat().st_size > 0


def test_the_comparison_holds_the_figures_of_jacobians_and_what_their_edges_predict(published):
    run = runs_of(published[0])["comparison of 2 SAEs"]
    assert run.data.metrics["jacobian/jsae/mean_abs"] == 0.0123
    assert run.data.metrics["jacobian/jsae/kurtosis_high"] == 0.0135
    assert run.data.metrics["jacobian/jsae/lexical/edges_score"] == 0.5
    for name in ("tables/explained_edges.parquet", "tables/jacobian_pairs.parquet", "jacobians/jsae/edges.parquet"):
        assert artifact(run, name).stat().st_size > 0


def test_runs_name_their_inputs_by_the_digests_of_dvc(published):
    run = runs_of(published[0])["topk-1k/lexical"]
    locked = identity.out_digests(identity.read_lock(published[0]), ["examples@topk-1k"])
    assert {entry.dataset.name: entry.dataset.digest for entry in run.inputs.dataset_inputs}.items() >= locked.items()


def test_tracking_again_adds_nothing(published):
    root, _ = published
    before = {name: run.info.run_id for name, run in runs_of(root).items()}
    again = track(params_of(), root, root)
    assert set(again.skipped) == ALL and again.published == ()
    assert {name: run.info.run_id for name, run in runs_of(root).items()} == before


def test_a_run_cut_short_is_made_again_and_a_changed_result_supersedes_the_old_run(copy):
    root = copy
    client, first = client_of(root), runs_of(root)
    client.delete_tag(first["topk-1k/default"].info.run_id, "complete")
    relock(root, "score@jumprelu-1k-fuzzing", "another command")

    again = track(params_of(), root, root)

    assert set(again.published) == {"topk-1k/default", "jumprelu-1k/lexical", "jumprelu-1k/default"}
    current = runs_of(root, "tags.superseded = 'false'")
    assert set(current) == ALL
    assert client.get_run(first["topk-1k/default"].info.run_id).info.lifecycle_stage == "deleted"
    assert client.get_run(first["jumprelu-1k/default"].info.run_id).data.tags["superseded"] == "true"


def test_a_tracker_that_is_down_is_said_in_seconds_and_stops_nothing(published, monkeypatch, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://user:secret@127.0.0.1:{port}")
    start = time.monotonic()
    result = track(params_of(), published[0], published[0])
    assert time.monotonic() - start < 20
    assert set(result.pending) == ALL
    said = capsys.readouterr().err
    assert "latentry track" in said and "5 runs" in said and "secret" not in said


def test_a_tracker_that_is_down_fails_where_it_is_required(published, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(EndpointError, match="latentry track"):
        track(params_of(required=True), published[0], published[0])


def test_without_results_the_stage_to_rerun_is_named(tmp_path):
    with pytest.raises(ContractError, match="dvc repro compare"):
        track(params_of(), tmp_path, tmp_path)


def test_an_identity_follows_its_own_stages_and_no_others(published):
    root, _ = published
    lock, data = identity.read_lock(root), root / "data"
    stages, folders = identity.cell_stages("topk-1k", SCORERS), identity.cell_folders(data, "topk-1k", SCORERS)
    before = identity.identity_of(lock, stages, data, folders, "content")

    def changed(name: str) -> str:
        stages_now = {**lock["stages"], name: {"cmd": "other"}}
        return identity.identity_of({"stages": stages_now}, stages, data, folders, "content")

    assert changed("sae@jumprelu-1k") == changed("score@topk-1k-4k-fuzzing") == before
    assert changed("score@topk-1k-fuzzing") != before
    assert identity.identity_of(lock, stages, data, folders, "other content") != before


def test_an_identity_without_a_lock_follows_the_manifests_wherever_they_stand(published, tmp_path):
    copied = tmp_path / "elsewhere"
    shutil.copytree(published[0] / "data", copied)

    def of(data: Path) -> str:
        return identity.identity_of({}, identity.cell_stages("topk-1k", SCORERS), data, identity.cell_folders(data, "topk-1k", SCORERS), 1)

    assert of(copied) == of(published[0] / "data")
    (copied / "explanations" / "topk-1k" / "manifest.json").write_text('{"sizes": {}}')
    assert of(copied) != of(published[0] / "data")


def test_cost_is_summed_from_the_reply_store_and_unknown_where_a_reply_is_missing(copy):
    before = runs_of(copy)["topk-1k/default"]
    assert before.data.tags["cost"] == "unknown"
    assert not any(name.startswith("cost/") for name in before.data.metrics)

    folder = copy / "data" / "scores" / "topk-1k"
    files = [copy / "data" / "explanations" / "topk-1k" / "explanations.parquet", *folder.glob("*/judgments.parquet")]
    rows = [row for path in files for row in pq.read_table(path).to_pylist() if row["explainer"] == "default"]
    keys = {row["reply_key"] for row in rows if row["reply_key"]}
    store = ReplyStore(copy / ".cache" / "replies")
    store.keep(dict.fromkeys(keys, Reply(status=Status.OK, text="yes", detail="", prompt_tokens=10, reply_tokens=2)))
    store.close()
    relock(copy, "sae@topk-1k", "another command")
    track(params_of(), copy, copy)
    after = runs_of(copy, "tags.superseded = 'false'")["topk-1k/default"]
    assert after.data.tags["cost"] == "known"
    cost = {name: value for name, value in after.data.metrics.items() if name.startswith("cost/")}
    assert cost == {"cost/calls": len(keys), "cost/prompt_tokens": 10 * len(keys), "cost/reply_tokens": 2 * len(keys)}
    assert reply_totals(copy)([*keys, "one that is not there"]) is None


def test_a_result_that_comes_back_is_the_current_one_again(copy):
    client, first = client_of(copy), runs_of(copy)["topk-1k/default"]
    lock = (copy / "dvc.lock").read_text()
    relock(copy, "sae@topk-1k", "another command")
    track(params_of(), copy, copy)
    assert client.get_run(first.info.run_id).data.tags["superseded"] == "true"
    (copy / "dvc.lock").write_text(lock)
    assert track(params_of(), copy, copy).published == ()
    (current,) = runs_of(copy, "tags.superseded = 'false' and tags.key = 'topk-1k/default'").values()
    assert current.info.run_id == first.info.run_id


@pytest.mark.slow
def test_what_is_missing_is_said_and_the_rest_published_from_a_folder_and_to_an_experiment_of_any_name(tmp_path, empty_store):
    root = tmp_path / "eine Größe, 実験 #1 100%"
    make_study(root, n_latents=12, widths={"1k": 1024})
    shutil.copy(empty_store, root / "mlflow.db")
    rewrite(root, "saes.parquet", lambda row: row if row["sae"] == "topk-1k" else dict.fromkeys(row) | {"sae": row["sae"]})
    gone = {"n": 0, "n_asked": 0, "n_lift": 0, "statuses": "{}"}

    def without(row):
        numbers = {name: None for name, value in row.items() if isinstance(value, float)}
        return {**row, **numbers, **gone} if row["sae"] == "jumprelu-1k" or row["scorer"] == "fuzzing" else row

    def explained(row):
        return None if row["sae"] == "jumprelu-1k" or row["scorer"] == "fuzzing" else {**row, "explanation": "Wale, 鯨 \u202eside\u202c"}

    rewrite(root, "cells.parquet", without)
    rewrite(root, "latents.parquet", explained)

    result = track(params_of(required=True, experiment="größen 実験"), root, root)

    assert set(result.published) == {"topk-1k/lexical", "topk-1k/default", "comparison of 2 SAEs"}
    runs = runs_of(root, experiment="größen 実験")
    comparison, cell = runs["comparison of 2 SAEs"].data, runs["topk-1k/default"].data
    assert (comparison.tags["missing"], cell.tags["missing"]) == ("jumprelu-1k", "fuzzing")
    assert comparison.metrics["comparison/n_missing_saes"] == 1
    assert "**Missing**, never made or failed: jumprelu-1k" in comparison.tags["mlflow.note.content"]
    assert "| fuzzing | auroc_wrong_position | unknown |" in cell.tags["mlflow.note.content"]
    assert "missing**: not run" in cell.tags["mlflow.note.content"] and "1 parse_error" in cell.tags["mlflow.note.content"]
    assert "detection/auroc_random" in cell.metrics and "fuzzing/auroc_wrong_position" not in cell.metrics
    files = client_of(root).download_artifacts(runs["topk-1k/default"].info.run_id, "interpretations.json", str(tmp_path))
    assert json.loads(Path(files).read_text())["data"][0][1] == "Wale, 鯨 \u202eside\u202c"


def test_one_sae_alone_is_a_comparison_and_one_never_made_is_said(copy):
    def records() -> dict:
        study = SimpleNamespace(saes=SAES, scorers=tuple(SCORERS), judge="j", seed=1, n_latents="12")
        return {record.name: record for record in run_records(read_results(copy), study, lambda _: None)}

    rewrite(copy, "saes.parquet", lambda row: row if row["sae"] == "topk-1k" else dict.fromkeys(row) | {"sae": row["sae"]})
    found = records()
    assert set(found) == {"topk-1k/lexical", "topk-1k/default", "comparison of 2 SAEs"}
    assert found["comparison of 2 SAEs"].tags["missing"] == "jumprelu-1k"
    for name in ("saes.parquet", "cells.parquet"):
        rewrite(copy, name, lambda row: row if row["sae"] == "topk-1k" else None)
    found = records()
    assert set(found) == {"topk-1k/lexical", "topk-1k/default", "comparison of 1 SAE"}
    assert found["comparison of 1 SAE"].tags["missing"] == "none"


def test_a_long_training_curve_is_thinned_with_both_its_ends(published):
    results = read_results(published[0])
    rows = [{"sae": "topk-1k", "tokens": n, "value": 1.0, "mse": 1.0, "l0": 32.0} for n in range(5000)]
    long = dataclasses.replace(results, training_rows=rows)
    study = SimpleNamespace(saes=SAES, scorers=tuple(SCORERS), judge="j", seed=1, n_latents="12")
    steps = [step for step, _ in next(iter(run_records(long, study, lambda _: None))).curve]
    assert (steps[0], steps[-1], len(steps)) == (0, 4999, 300)
    assert max(later - step for step, later in itertools.pairwise(steps)) <= 17


def test_the_saved_view_fits_a_tag_and_shows_size_and_loss_first():
    metrics = {f"scorer-{n}/balanced_accuracy_wrong_position": ["a", "b"] for n in range(14)}
    tags = saved_view.view_tags(metrics, "topk-1k")
    assert max(map(len, tags.values())) <= 5000
    state, explanations = (state_of(tags[f"mlflow.sharedViewState.{key}"]) for key in ("size-x-loss", "explanations"))
    assert explanations["searchFilter"] == f"{state['searchFilter']} and tags.sae = 'topk-1k'"
    assert state["selectedColumns"][:2] == ["params.`d_sae`", "params.`loss`"]
    scattered = [(chart["xaxis"]["key"], chart["yaxis"]["key"]) for chart in state["compareRunCharts"] if chart["type"] == "SCATTER"]
    assert set(scattered) == {(x, metric) for x in ("d_sae", "l0") for metric in metrics}


def test_the_view_of_all_axes_leaves_out_what_stands_in_other_runs():
    cells = ["a/x", "b/x", "c/x", "d/x"]
    together = saved_view.shown_together(
        {"intruder/accuracy": ["a/none", "b/none"], "fuzzing/auroc": cells[:3], "detection/auroc": cells, "failed/auroc": []}
    )
    assert together == ["fuzzing/auroc", "detection/auroc"]
    assert saved_view.shown_together({"failed/auroc": []}) == []
    assert saved_view.shown_together({}) == []


def test_links_and_logs_hold_no_password_and_paths_do_not_depend_on_the_folder(tmp_path, monkeypatch):
    assert "secret" not in ui_link("https://me:secret@host/mlflow", "3", "view")
    assert shown_uri("https://me:secret@host/mlflow") == "https://host/mlflow"
    monkeypatch.chdir(tmp_path)
    assert tracking_uri(Path()) == f"sqlite:///{tmp_path.resolve()}/mlflow.db"
    assert f"sqlite:///{tmp_path.resolve()}/mlflow.db" in ui_command(Path())


def test_an_experiment_of_dvc_stands_beside_the_workspace(copy, monkeypatch):
    relock(copy, "sae@topk-1k", "other k")
    monkeypatch.setenv("DVC_EXP_NAME", "k64")
    result: TrackResult = track(params_of(), copy, copy)
    assert set(result.published) == {"topk-1k/lexical", "topk-1k/default"}
    client = client_of(copy)
    experiment = client.get_experiment_by_name("sizes")
    assert experiment is not None
    names = [run.info.run_name for run in client.search_runs([experiment.experiment_id], "tags.superseded = 'false'")]
    assert names.count("topk-1k/default") == 2
