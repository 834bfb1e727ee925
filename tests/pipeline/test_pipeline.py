"""The DAG as a user runs it: dvc, the stages and the tracker, on tiny random models."""

import json
import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.tiny import run


@pytest.fixture(scope="module")
def project(whole):
    return whole


def would_run(project: Path) -> list[str]:
    """The cells whose own inputs changed, so that `dvc repro` runs them; `track` always does."""
    return sorted(set(json.loads(run(project, "dvc", "status", "--json", capture_output=True).stdout)) - {"track"})


def with_params(project: Path, change) -> list[str]:
    path = project / "params.yaml"
    before = path.read_text()
    tree = yaml.safe_load(before)
    change(tree)
    path.write_text(yaml.safe_dump(tree))
    try:
        return would_run(project)
    finally:
        path.write_text(before)


def rows(path: Path) -> list[dict]:
    return pq.read_table(path).to_pylist()


def test_every_latent_looked_at_has_a_row_with_its_status(project):
    latents = rows(project / "data/examples/tiny/latents.parquet")
    explained = {
        row["latent"]: row["status"]
        for row in rows(project / "data/explanations/tiny/explanations.parquet")
        if row["explainer"] == "lexical"
    }
    assert {row["latent"] for row in latents} == set(explained)
    assert sum(status == "ok" for status in explained.values()) == 12
    assert all(explained[row["latent"]] == row["status"] for row in latents)


def test_an_explainer_that_says_nothing_readable_leaves_statuses_and_no_text_and_no_score(project):
    explained = [row for row in rows(project / "data/explanations/tiny/explanations.parquet") if row["explainer"] == "default"]
    assert len(explained) == 3
    assert all(row["status"] != "ok" and row["text"] is None and row["reply"] is not None for row in explained)
    for scorer in ("embedding", "detection", "fuzzing"):
        scored = [row for row in rows(project / f"data/scores/tiny/{scorer}/scores.parquet") if row["explainer"] == "default"]
        assert {row["status"] for row in scored} == {row["status"] for row in explained}
        assert all(row["auroc"] is None and row["balanced_accuracy"] is None for row in scored)


def test_scorers_and_explainers_share_no_document_and_no_text(project):
    examples = rows(project / "data/examples/tiny/examples.parquet")
    for column in ("document", "text"):
        sides = {split: {(row["latent"], row[column]) for row in examples if row["split"] == split} for split in ("explain", "held_out")}
        assert sides["explain"] and sides["held_out"]
        assert not sides["explain"] & sides["held_out"]


def test_every_judgment_is_on_a_held_out_example(project):
    held_out = {row["example_id"] for row in rows(project / "data/examples/tiny/examples.parquet") if row["split"] == "held_out"}
    for scorer in ("embedding", "detection", "fuzzing"):
        judged = {row["example_id"].removesuffix("~wrong") for row in rows(project / f"data/scores/tiny/{scorer}/judgments.parquet")}
        assert judged and judged <= held_out


def test_the_text_of_every_example_is_the_sources_own(project):
    texts = {row["document"]: row["text"] for row in rows(project / "data/tokens/documents.parquet")}
    for row in rows(project / "data/examples/tiny/examples.parquet"):
        assert row["text"] in texts[row["document"]]


def test_each_score_stands_beside_its_interval_and_its_null(project):
    cells = [row for row in rows(project / "data/comparison/cells.parquet") if row["headline"] and row["explainer"] == "lexical"]
    assert {row["scorer"] for row in cells} == {"embedding", "detection", "fuzzing"}
    for row in cells:
        assert row["low"] <= row["mean"] <= row["high"]
        assert row["null"] is not None and row["lift"] is not None


def test_the_chain_of_manifests_leads_from_a_score_to_the_weights(project):
    import hashlib

    folder, seen = project / "data/scores/tiny/detection", []
    waiting = [folder]
    while waiting:
        manifest = json.loads((waiting.pop() / "manifest.json").read_text())
        seen.append(manifest["contract"])
        for name, digest in manifest["inputs"].items():
            assert hashlib.sha256((project / name / "manifest.json").read_bytes()).hexdigest() == digest
            waiting.append(project / name)
    assert {"scores", "explanations", "examples", "latents", "sae", "activations", "tokens", "model"} <= set(seen)


def test_nothing_to_do_runs_nothing(project):
    assert would_run(project) == []


def test_a_scorers_knob_reruns_that_scorer_alone(project):
    assert with_params(project, lambda tree: tree["scorers"]["embedding"].update(max_examples=5)) == ["compare", "score@tiny-embedding"]


def test_another_sae_runs_its_cells_alone(project):
    cells = [
        "sae@more",
        "latents@more",
        "examples@more",
        "explain@more",
        *(f"score@more-{name}" for name in ("embedding", "detection", "fuzzing")),
    ]
    ran = with_params(project, lambda tree: tree["saes"].update(more=tree["saes"]["tiny"] | {"width": 64}))
    assert ran == sorted(["compare", *cells])


def test_how_it_is_run_reruns_nothing(project):
    assert with_params(project, lambda tree: tree["run"].update(threads=2, batch_contexts=4, clients={"judge": {"batch": 2}})) == []


@pytest.mark.parametrize(
    ("file", "cells"),
    [
        ("src/latentry/tracking/saved_view.py", []),
        ("src/latentry/params.py", []),
        ("src/latentry/scorers/fuzzing.py", ["score@tiny-detection", "score@tiny-embedding", "score@tiny-fuzzing"]),
        ("src/latentry/scorers/detection.py", ["explain@tiny", "score@tiny-detection", "score@tiny-embedding", "score@tiny-fuzzing"]),
    ],
)
def test_a_comment_reruns_only_what_uses_the_file(project, file, cells):
    path = project / file
    before = path.read_text()
    path.write_text(before + "# a comment\n")
    try:
        assert would_run(project) == sorted(cells)
    finally:
        path.write_text(before)


def test_tracking_again_adds_nothing_and_a_lost_store_comes_back(project):
    def runs() -> int:
        with sqlite3.connect(project / "mlflow.db") as store:
            return store.execute("SELECT count(*) FROM runs WHERE lifecycle_stage = 'active'").fetchone()[0]

    assert runs() == 3
    again = run(project, "python", "stages/track.py", capture_output=True).stdout
    assert "published 0, there already 3, pending 0" in again
    assert runs() == 3
    (project / "mlflow.db").unlink()
    run(project, "python", "stages/track.py", capture_output=True)
    assert runs() == 3


def test_wrong_params_stop_before_any_work(project):
    path = project / "params.yaml"
    before = path.read_text()
    path.write_text(before.replace("hookpoint: resid-1", "hookpoint: resid-2").replace("k: 4}", "k: 4000}"))
    try:
        done = run(project, "python", "stages/sae.py", "--sae", "tiny", check=False, capture_output=True)
    finally:
        path.write_text(before)
    assert done.returncode == 2
    assert "did you mean 'resid-1'?" in done.stderr or "k: 4000 is above the width" in done.stderr
    assert "Traceback" not in done.stderr
    assert (project / "data/saes/tiny/manifest.json").is_file()
