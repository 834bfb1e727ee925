"""An endpoint that fails in every way at once: each latent has one row, no failure is a text or an answer, and only failures are asked again."""

import json
import os
from collections import Counter

import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from judged_project import SAE, lay_out, stage
from latentry.cli import commands
from latentry.errors import EndpointError, TooManyFailuresError
from latentry.params import load_params
from latentry.retry import failed_cells, following_cells, unmade_cells
from latentry.sections import JacobianSettings
from loopback import Answer, completion, failure, loopback

N = 30
FAULTS = {
    "over-long": completion("EXPLANATION: " + "word " * 200),
    "unreadable": completion("I cannot see a pattern."),
    "empty": completion(""),
    "refused": completion(None, refusal="I will not"),
    "cut off": completion("EXPLANATION: the wor", finish="length"),
    "broken": failure(500, "oops"),
    "page": Answer(body="<html>Bad gateway</html>", is_html=True),
    "slow down": failure(429, "slow down"),
    "half": Answer(body="{ broken"),
}
"""What a third of the replies is."""
PASSING = {"broken", "page", "slow down", "half"}


class Faulty:
    """Gives each fault to a share of the distinct prompts, always the same, until it is mended."""

    def __init__(self) -> None:
        self.mended = False
        self.fault_of: dict[str, str | None] = {}
        self.order: Counter[bool] = Counter()

    def __call__(self, text: str, _: int) -> Answer:
        explains = text.startswith("Texts:")
        if text not in self.fault_of:
            place = self.order[explains]
            self.order[explains] += 1
            # three prompts of ten, and each fault in turn
            self.fault_of[text] = list(FAULTS)[(place % 10 + 3 * (place // 10)) % len(FAULTS)] if place % 10 < 3 else None
        fault = self.fault_of[text]
        if fault is not None and not (self.mended and fault in PASSING):
            return FAULTS[fault]
        return completion("EXPLANATION: some words") if explains else completion("Yes", logprobs={"Yes": -0.1, "No": -2.0})


@pytest.fixture
def endpoint(project):
    rule = Faulty()
    with loopback(rule) as server:
        lay_out(project, server.url, N, max_failed_fraction=0.6, run__clients__judge__retries=0)
        yield rule, server


def rows(project, name: str) -> list[dict]:
    return pq.read_table(project / "data" / name).to_pylist()


@pytest.mark.usefixtures("endpoint")
def test_mixed_faults_leave_one_row_each_and_are_never_texts_or_answers(project):
    assert stage("explain") is None
    explanations = rows(project, f"explanations/{SAE}/explanations.parquet")
    assert [row["latent"] for row in explanations] == list(range(N + 1))
    counts = Counter(row["status"] for row in explanations)
    assert counts == {"ok": 21, "parse_error": 3, "refused": 1, "truncated": 1, "client_error": 4, "dead": 1}
    assert all((row["text"] is not None) == (row["status"] == "ok") for row in explanations)
    kept = {row["status"]: row["reply"] for row in explanations if row["reply"]}
    assert kept["truncated"] == "EXPLANATION: the wor" and {"ok", "parse_error"} <= set(kept)

    assert stage("score", "--scorer", "detection") is None
    judgments = rows(project, f"scores/{SAE}/detection/judgments.parquet")
    keys = {(row["latent"], row["null"], row["example_id"]) for row in judgments}
    assert len(keys) == len(judgments)
    assert {row["status"] for row in judgments} == {"ok", "parse_error", "refused", "client_error"}
    assert all((row["confidence"] is None) == (row["status"] != "ok") for row in judgments)


def test_the_next_run_asks_only_for_what_failed_for_the_moment(project, endpoint):
    rule, server = endpoint
    assert stage("explain") is None
    before = Counter(server.calls)
    (failed,) = failed_cells(load_params())
    assert (failed.cell, failed.n_rows, failed.n_failed) == (f"explain@{SAE}", N + 1, 4)
    rule.mended = True
    (project / "data" / "explanations" / SAE / "manifest.json").unlink()  # as dvc does before it runs a cell again
    assert stage("explain") is None
    asked_again = {text for text, n in (server.calls - before).items() if n}
    assert asked_again == {text for text, fault in rule.fault_of.items() if fault in PASSING}
    assert not failed_cells(load_params())
    statuses = Counter(row["status"] for row in rows(project, f"explanations/{SAE}/explanations.parquet"))
    assert statuses == {"ok": 25, "parse_error": 3, "refused": 1, "truncated": 1, "dead": 1}


def test_too_many_failures_stop_the_stage_and_keep_what_was_paid(project, endpoint):
    _, server = endpoint
    path = project / "params.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"max_failed_fraction": 0.1}))
    stopped = stage("explain")
    assert isinstance(stopped, TooManyFailuresError) and stopped.exit_code == 1
    assert not (project / "data" / "explanations").exists()
    before = sum(server.calls.values())
    stage("explain")
    assert sum(server.calls.values()) - before == 4


def test_a_budget_stops_the_stage_with_exit_3_and_it_goes_on_when_raised(project, endpoint):
    _, server = endpoint
    path = project / "params.yaml"
    tree = yaml.safe_load(path.read_text())
    for budget, code in ((10, 3), (None, None)):
        tree["run"]["budget"] = {"calls": budget}
        path.write_text(yaml.safe_dump(tree))
        stopped = stage("explain")
        assert (stopped.exit_code if stopped else None) == code
        assert (project / "data" / "explanations" / SAE).exists() == (code is None)
    assert sum(server.calls.values()) <= N + 4  # what failed for the moment before the stop is asked again


@pytest.mark.usefixtures("endpoint")
def test_an_endpoint_that_is_down_stops_the_stage_with_exit_3(project):
    tree = yaml.safe_load((project / "params.yaml").read_text())
    tree["run"]["clients"]["judge"]["base_url"] = "http://127.0.0.1:9/v1"
    (project / "params.yaml").write_text(yaml.safe_dump(tree))
    stopped = stage("explain")
    assert isinstance(stopped, EndpointError) and stopped.exit_code == 3


@pytest.mark.usefixtures("endpoint")
def test_retry_names_the_cells():
    assert "nothing to retry" in CliRunner().invoke(commands, ["retry", "--dry-run"]).output
    assert stage("explain") is None
    assert f"explain@{SAE}: 4 of 31 rows" in CliRunner().invoke(commands, ["retry", "--dry-run"]).output


@pytest.fixture
def dvc_calls(tmp_path, monkeypatch):
    """What `dvc` was called with, in its place a script that writes it down."""
    (tmp_path / "bin").mkdir()
    script, said = tmp_path / "bin" / "dvc", tmp_path / "said"
    script.write_text(f'#!/bin/sh\necho "$@" >> {said}\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    return lambda: said.read_text().splitlines()


@pytest.mark.usefixtures("endpoint")
@pytest.mark.parametrize("are_compared", [False, True])
def test_retry_runs_no_cell_without_results(project, dvc_calls, are_compared):
    assert stage("explain") is None
    if are_compared:
        (project / "data" / "comparison").mkdir()
    told = CliRunner().invoke(commands, ["retry"])
    assert (told.exit_code, f"without results: score@{SAE}-detection" in told.output) == (0, True)
    following = ["repro --single-item compare track"] if are_compared else []
    assert dvc_calls() == [f"repro --force --single-item explain@{SAE}", *following]


@pytest.mark.usefixtures("endpoint")
def test_retry_runs_scores_that_were_made_of_failed_explanations(project):
    assert stage("explain") is None
    assert stage("score", "--scorer", "detection") is None
    params = load_params(project / "params.yaml")
    assert following_cells(params, [f"explain@{SAE}"]) == [f"score@{SAE}-detection"]
    assert following_cells(params, [f"explain@{SAE}", f"score@{SAE}-detection"]) == []
    assert unmade_cells(params) == []
    (project / "data" / "edges" / "pair").mkdir(parents=True)
    around = JacobianSettings(input=SAE, output="another", scorer="detection")
    with_edges = params.model_copy(update={"jacobians": {"pair": around, "unmade": around}})
    assert following_cells(with_edges, [f"explain@{SAE}"]) == [f"score@{SAE}-detection", "edges@pair"]


@pytest.mark.usefixtures("endpoint")
def test_the_model_that_answered_stands_in_the_manifest(project):
    assert stage("explain") is None
    manifest = json.loads((project / "data" / "explanations" / SAE / "manifest.json").read_text())
    assert manifest["counts"]["served"]["judge"][-1] == "served-model"
