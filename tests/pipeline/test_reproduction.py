"""A comparison made again from what was tracked of it alone: three files of its run, and the commit that the run names."""

import pytest
import yaml

from latentry.tracking.server import quiet_environment
from pipeline.tiny import run
from pipeline.versioned import git, in_git

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def tracked(copied):
    """A project whose last comparison is of an experiment that was never committed; in its tree stands the base again."""
    project = in_git(copied("project"))
    run(project, "dvc", "exp", "run", "--quiet", "-S", "+explainers.lexical.max_latents=6", "-n", "two")
    git(project, "checkout", ".")
    return project


@pytest.fixture(scope="module")
def store(tracked):
    return f"sqlite:///{tracked / 'mlflow.db'}"


@pytest.fixture(scope="module")
def comparison(store):
    quiet_environment()
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=store)
    experiments = [experiment.experiment_id for experiment in client.search_experiments() if experiment.name == "tiny"]
    (found,) = client.search_runs(experiments, "tags.kind = 'comparison'")
    return found


@pytest.fixture(scope="module")
def again(tracked, store, comparison, tmp_path_factory):
    """The recipe of docs/sharing.md, in another place, with the store and the repository alone; gives the folder and what was said."""
    folder = tmp_path_factory.mktemp("again") / "again"
    recipe = (
        "set -e\n"
        f"git clone --quiet {tracked} {folder} && cd {folder} && git checkout --quiet {comparison.data.tags['commit']}\n"
        "for file in params.yaml dvc.yaml dvc.lock; do\n"
        f"  mlflow artifacts download --run-id {comparison.info.run_id} --artifact-path $file --dst-path .\n"
        "done\n"
        "cp dvc.lock ../logged.lock\n"
        "export PYTHONPATH=$PWD/src\n"  # stands for `make setup`
        "dvc repro\n"
    )
    said = run(folder.parent, "env", f"MLFLOW_TRACKING_URI={store}", "bash", "-c", recipe, capture_output=True).stdout
    return folder, said


def stages_in(path):
    return {name: entry for name, entry in yaml.safe_load(path.read_text())["stages"].items() if name != "track"}


def test_the_run_names_the_commit_and_that_it_holds_the_code(tracked, comparison):
    assert comparison.data.tags["commit"] == git(tracked, "rev-parse", "main")
    assert comparison.data.tags["code"] == "committed"
    assert comparison.data.tags["dvc.experiment"] == "two"


def test_every_stage_ran_and_gave_the_digests_that_were_logged(again):
    folder, said = again
    logged, made = stages_in(folder.parent / "logged.lock"), stages_in(folder / "dvc.lock")
    assert len(logged) == 13
    assert {line.split("'")[1] for line in said.splitlines() if line.startswith("Running stage")} == {*logged, "track"}
    for name, entry in logged.items():
        assert made[name]["outs"] == entry["outs"], name
    assert made == logged


def test_manifests_are_the_same_as_where_it_was_first_made(tracked, again):
    run(tracked, "dvc", "exp", "apply", "two", "--quiet")
    folder, _ = again
    manifests = sorted(path.relative_to(tracked) for path in (tracked / "data").rglob("manifest.json"))
    assert len(manifests) == 13
    for path in manifests:
        assert (folder / path).read_bytes() == (tracked / path).read_bytes()


def test_the_tracker_knows_the_results_already(again):
    folder, said = again
    assert "track: published 0, there already 3, pending 0" in said
    assert "all is as written" in run(folder, "latentry", "verify", capture_output=True).stdout
