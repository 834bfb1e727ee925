"""Experiments and sharing by version, as a user types them: in a git repository, with a real remote, on the tiny pipeline."""

import os
import shutil
import subprocess

import pytest

from pipeline.tiny import ROOT, lay_out, run

pytestmark = pytest.mark.slow


def git(folder, *command):
    names = {f"GIT_{who}_{what}": "tester" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True, env=os.environ | names)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharing") / "project"
    lay_out(folder)
    shutil.rmtree(folder / ".dvc")
    git(folder, "init", "--quiet")
    run(folder, "dvc", "init", "--quiet")
    shutil.copyfile(ROOT / ".dvc" / "config", folder / ".dvc" / "config")
    shutil.copytree(ROOT / ".dvc" / "plots", folder / ".dvc" / "plots", dirs_exist_ok=True)
    shutil.copyfile(ROOT / ".gitignore", folder / ".gitignore")
    run(folder, "dvc", "repro", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "base")
    run(folder, "dvc", "push", "--quiet")
    return folder


def test_an_experiment_is_compared_and_pays_nothing_twice(repository):
    said = run(repository, "dvc", "exp", "run", "-S", "scorers.detection.max_examples=2", "-n", "two", capture_output=True)
    assert "score@tiny-detection: 20 requests, 20 distinct, 0 to ask" in said.stderr + said.stdout
    shown = run(repository, "dvc", "exp", "show", "--csv", capture_output=True).stdout
    assert "two" in shown
    difference = run(repository, "dvc", "metrics", "diff", "--json", capture_output=True).stdout
    assert "tiny.scores.lexical.detection.score" in difference
    assert "score_by_width" in run(repository, "dvc", "plots", "diff", "--json", capture_output=True).stdout
    git(repository, "checkout", ".")
    run(repository, "dvc", "checkout", "--quiet")


def test_a_clone_pulls_results_and_has_nothing_to_run(repository):
    clone = repository.parent / "clone"
    git(repository, "clone", "--quiet", str(repository), str(clone))
    run(clone, "dvc", "pull", "--quiet", "sae", "examples", "explain", "score", "compare")
    assert not (clone / "data" / "activations").exists()
    assert (clone / "report" / "index.html").is_file()
    would = run(clone, "dvc", "repro", "--allow-missing", "--dry", capture_output=True).stdout
    assert [line for line in would.splitlines() if line.startswith("Running stage")] == ["Running stage 'track':"]
    tracked = run(clone, "python", "stages/track.py", capture_output=True).stdout
    assert "published 3, there already 0, pending 0" in tracked
    got = clone / "got"
    run(clone, "dvc", "get", str(repository), "data/explanations/tiny", "--out", str(got), "--quiet")
    assert (got / "explanations.parquet").is_file()
