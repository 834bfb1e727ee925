"""Sweeps as a user types them: experiments, the queue, cells side by side, and the same grid written by hand, in a git repository of its own."""

import csv
import hashlib
import io
import json
import os
import shutil
import sqlite3
import subprocess
import time
import zlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from loopback import completion, loopback
from pipeline.tiny import ROOT, lay_out, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

QUEUE_WAIT_S = 600
STATES = ("Queued", "Running", "Success", "Failed")
L1 = ("saes.tiny.loss=standard", "~saes.tiny.train.k", "+saes.tiny.train.l1_coefficient=1.5", "saes.tiny.width=32")
QUEUED = {"wide": ("saes.tiny.width=64",), "fewer": ("saes.tiny.width=64", "scorers.detection.max_examples=2"), "l1": L1}
"""What the second asks, the first asks at the same time."""
BY_HAND: dict[str, dict[str, Any]] = {
    "by-hand": {"width": 64, "loss": "topk", "train": {"epochs": 1, "batch": 256, "k": 4}},
    "by-hand-l1": {"width": 32, "loss": "standard", "train": {"epochs": 1, "batch": 256, "l1_coefficient": 1.5}},
}
SAME_AS = {"by-hand": "wide", "by-hand-l1": "l1"}


def judge(text, _before):
    """Explains and grades by a digest of what it is shown; slowly, so that two who ask do meet."""
    digest = zlib.crc32(text.encode())
    if "yes" in text.lower():
        answer = completion("yes", logprobs={"yes": -0.1 - (digest % 97) / 50, "no": -1.0})
    else:
        answer = completion(f"EXPLANATION: texts such as number {digest}")
    return type(answer)(status=answer.status, body=answer.body, after_s=0.1)


def git(folder: Path, *command: str) -> str:
    names = {f"GIT_{who}_{what}": "tester" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True, text=True, env=os.environ | names)
    return done.stdout


def dvc(folder: Path, *command: str) -> str:
    done = run(folder, "dvc", *command, check=False, capture_output=True)
    assert done.returncode == 0, f"dvc {' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def set_params(folder: Path, url: str) -> None:
    """The tiny grid with a judge that counts its calls, and as few cells as tell the difference."""
    path = folder / "params.yaml"
    tree = yaml.safe_load(path.read_text())
    del tree["models"]["judge"]
    tree["examples"]["contrasts"] = {"random": {}}
    tree["clients"] = {"judge": {"kind": "openai_compatible", "model": "any"}}
    tree["explainers"] = {"lexical": {}, "default": {"client": "judge", "max_latents": 4, "max_examples": 4, "max_tokens": 16}}
    tree["scorers"] = {
        "embedding": {"model": "encoder"},
        "detection": {"client": "judge", "max_latents": 4, "max_examples": 3, "null_latents": 2},
    }
    tree["run"]["clients"] = {"judge": {"base_url": url, "concurrency": 3}}
    path.write_text(yaml.safe_dump(tree, sort_keys=False))


def as_committed(folder: Path) -> None:
    git(folder, "checkout", "--quiet", ".")
    run(folder, "dvc", "checkout", "--quiet")


@pytest.fixture(scope="module")
def server():
    with loopback(judge) as served:
        yield served


@pytest.fixture(scope="module")
def repository(tmp_path_factory, server):
    """The base, run by `dvc repro` and committed."""
    folder = tmp_path_factory.mktemp("sweeps") / "project"
    lay_out(folder)
    shutil.rmtree(folder / ".dvc")
    git(folder, "init", "--quiet")
    dvc(folder, "init", "--quiet")
    shutil.copyfile(ROOT / ".dvc" / "config", folder / ".dvc" / "config")
    shutil.copytree(ROOT / ".dvc" / "plots", folder / ".dvc" / "plots", dirs_exist_ok=True)
    for name in (".gitignore", "Makefile"):
        shutil.copyfile(ROOT / name, folder / name)
    set_params(folder, server.url)
    dvc(folder, "repro", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "base")
    return folder


def wait_for_queue(folder: Path) -> dict[str, str]:
    """States of the queued experiments by name, when none of them waits or runs any more."""
    deadline, states = time.monotonic() + QUEUE_WAIT_S, {}
    while time.monotonic() < deadline:
        lines = [line.split() for line in dvc(folder, "queue", "status").splitlines()]
        states = {words[1]: next(word for word in words if word in STATES) for words in lines if words[1:2] and words[1] in QUEUED}
        if len(states) == len(QUEUED) and not {"Queued", "Running"} & set(states.values()):
            return states
        time.sleep(2)
    run(folder, "dvc", "queue", "stop", "--kill")
    raise AssertionError(f"the queue was not done in {QUEUE_WAIT_S} s: {states}")


@pytest.fixture(scope="module")
def swept(repository):
    """One experiment in the workspace, then three from the queue, two at a time."""
    dvc(repository, "exp", "run", "-S", "saes.tiny.train.k=6", "-n", "k6")
    as_committed(repository)
    for name, settings in QUEUED.items():
        dvc(repository, "exp", "run", "--queue", "-n", name, *(word for setting in settings for word in ("-S", setting)))
    dvc(repository, "queue", "start", "-j", "2")
    assert wait_for_queue(repository) == dict.fromkeys(QUEUED, "Success"), dvc(repository, "queue", "logs", "wide")
    return repository


@pytest.fixture(scope="module")
def results(swept):
    """The results of each experiment, out of DVC's cache."""
    found = {}
    for name in QUEUED:
        dvc(swept, "exp", "apply", name)
        found[name] = swept.parent / name
        shutil.copytree(swept / "data", found[name] / "data", ignore=shutil.ignore_patterns("models", "activations", "tokens"))
        shutil.copytree(swept / "metrics", found[name] / "metrics")
    as_committed(swept)
    return found


def quality(folder: Path, sae: str = "tiny") -> dict[str, float]:
    return json.loads((folder / "metrics" / "summary.json").read_text())[sae]["quality"]


def test_experiments_are_shown_and_compared_with_their_numbers(swept, results):
    shown = list(csv.DictReader(io.StringIO(dvc(swept, "exp", "show", "--csv"))))
    rows = {row["Experiment"]: row for row in shown if row["Experiment"]}
    assert {"k6", *QUEUED} <= rows.keys()
    assert float(rows["k6"]["tiny.quality.l0"]) == 6.0
    assert [float(rows[name]["tiny.quality.width"]) for name in QUEUED] == [64, 64, 32]
    assert [rows[name]["saes.tiny.loss"] for name in QUEUED] == ["topk", "topk", "standard"]
    assert "k6" in json.dumps(json.loads(dvc(swept, "exp", "show", "--json")))
    for name, folder in results.items():
        for metric in ("l0", "fvu"):
            assert float(rows[name][f"tiny.quality.{metric}"]) == pytest.approx(quality(folder)[metric], abs=1e-4)
    difference = json.loads(dvc(swept, "exp", "diff", "k6", "wide", "--json"))
    (metrics,) = difference["metrics"].values()
    assert (metrics["tiny.quality.width"]["old"], metrics["tiny.quality.width"]["new"]) == (48, 64)
    assert difference["params"]["params.yaml"]["saes.tiny.train.k"] == {"old": 6, "new": 4, "diff": -2}


def test_plots_of_experiments_stand_in_one_page(swept):
    plots = json.loads(dvc(swept, "plots", "diff", "k6", "wide", "l1", "--json"))
    (score,) = plots["data"]["score_by_width"]
    assert set(score["revisions"]) == {"k6", "wide", "l1"}
    dvc(swept, "plots", "diff", "k6", "wide", "l1", "--out", "compared")
    page = (swept / "compared" / "index.html").read_text()
    assert "score by" in page.lower() or "score_by_width" in page
    shutil.rmtree(swept / "compared")


def test_two_experiments_at_once_pay_for_no_question_twice_and_break_nothing(swept, results, server):
    assert max(server.calls.values()) == 1
    store = swept / ".cache" / "replies" / "replies.sqlite"
    with sqlite3.connect(store) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert opened.execute("SELECT count(*) FROM replies").fetchone()[0] == len(server.calls)
        assert opened.execute("SELECT calls FROM spending").fetchall() == [(len(server.calls),)]
        assert opened.execute("SELECT count(*) FROM claims").fetchone()[0] == 0
    with sqlite3.connect(swept / ".cache" / "embeddings" / "embeddings.sqlite") as opened:
        assert opened.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with sqlite3.connect(swept / "mlflow.db") as opened:
        names = dict(opened.execute("SELECT value, count(*) FROM tags WHERE key = 'dvc.experiment' GROUP BY value").fetchall())
        assert {name: names.get(name) for name in ("k6", *QUEUED)} == dict.fromkeys(("k6", *QUEUED), 3)
    for folder in results.values():
        assert_whole(folder)
    run(swept, "latentry", "check", capture_output=True)


def assert_whole(folder: Path) -> None:
    """Every manifest's files are there with their digests."""
    manifests = list(folder.rglob("manifest.json"))
    assert len(manifests) == 7
    for path in manifests:
        for name, digest in json.loads(path.read_text())["files"].items():
            assert hashlib.sha256((path.parent / name).read_bytes()).hexdigest() == digest


def test_what_two_experiments_share_comes_out_the_same_in_both(results):
    wide, fewer = (contents(results[name], "tiny") for name in ("wide", "fewer"))
    shared = [name for name in wide if name != "metrics" and not name.startswith("scores/detection")]
    assert len(shared) > 6
    assert {name: wide[name] for name in shared} == {name: fewer[name] for name in shared}
    judged = wide["scores/detection/judgments.parquet"]
    assert 0 < len(fewer["scores/detection/judgments.parquet"]) < len(judged)
    assert all(row in judged for row in fewer["scores/detection/judgments.parquet"])


def contents(folder: Path, sae: str) -> dict[str, Any]:
    """All that was found out about one SAE: digests of its files, rows of its tables, and its metrics; names taken out."""
    data, found = folder / "data", {}
    for kind in ("saes", "latents"):
        for path in sorted((data / kind / sae).rglob("*")):
            if path.is_file() and path.name not in ("manifest.json", "cfg.json", "evaluation.json"):
                found[f"{kind}/{path.relative_to(data / kind / sae)}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    found["evaluation"] = json.loads((data / "saes" / sae / "evaluation.json").read_text()) | {"name": ""}
    for kind in ("examples", "explanations", "scores"):
        for path in sorted((data / kind / sae).rglob("*.parquet")):
            found[f"{kind}/{path.relative_to(data / kind / sae)}"] = pq.read_table(path).to_pylist()
    found["metrics"] = json.loads((folder / "metrics" / "summary.json").read_text())[sae]
    return found


def is_forgotten(cell: str) -> bool:
    return "tiny" in cell or cell == "models@encoder"


@pytest.fixture(scope="module")
def by_hand(swept, results, server):
    """The swept settings written into params.yaml, the base's cells and a model forgotten; then cells side by side."""
    assert results.keys() == QUEUED.keys()  # they are read before the workspace changes
    path, calls = swept / "params.yaml", dict(server.calls)
    tree = yaml.safe_load(path.read_text())
    tree["saes"] |= {name: tree["saes"]["tiny"] | entry for name, entry in BY_HAND.items()}
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    base = yaml.safe_load((swept / "dvc.lock").read_text())
    kept = {name: entry for name, entry in base["stages"].items() if not is_forgotten(name)}
    (swept / "dvc.lock").write_text(yaml.safe_dump(base | {"stages": kept}))
    for folder in (swept / ".dvc" / "cache" / "runs", swept / "data" / "models" / "encoder", *(swept / "data").glob("*/tiny")):
        shutil.rmtree(folder, ignore_errors=True)
    done = run(swept, "make", "-o", ".venv/.installed", "repro-parallel", "JOBS=2", check=False, capture_output=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert dict(server.calls) == calls, "the grid asked what its experiments had asked"
    return swept, base


def test_cells_side_by_side_leave_what_dvc_repro_leaves(by_hand):
    folder, base = by_hand
    made = yaml.safe_load((folder / "dvc.lock").read_text())["stages"]
    ours = {name: entry["outs"] for name, entry in base["stages"].items() if is_forgotten(name)}
    assert len(ours) == 7
    assert {name: made[name]["outs"] for name in ours} == ours
    assert set(json.loads(run(folder, "dvc", "status", "--json", capture_output=True).stdout)) <= {"track"}


def test_a_grid_written_by_hand_has_the_numbers_of_the_sweep(by_hand, results):
    folder, _ = by_hand
    for name, experiment in SAME_AS.items():
        assert contents(folder, name) == contents(results[experiment], "tiny")


def cells(folder: Path, sae: str) -> dict[tuple[str, ...], dict[str, Any]]:
    rows = pq.read_table(folder / "data" / "comparison" / "cells.parquet").to_pylist()
    return {(row["explainer"], row["scorer"], row["metric"]): row | {"sae": ""} for row in rows if row["sae"] == sae}


def test_the_grids_comparison_says_of_each_sae_what_its_sweep_said(by_hand, results):
    folder, _ = by_hand
    for name, experiment in SAME_AS.items():
        ours, theirs = cells(folder, name), cells(results[experiment], "tiny")
        assert theirs and {key: ours[key] for key in theirs} == theirs
