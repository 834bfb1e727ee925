"""Where tracked results came from: a run's tags say whether its commit holds all that they were made from."""

import os
import subprocess
from pathlib import Path

import pytest

from latentry.tracking.identity import source_tags

LOCK = {
    "stages": {
        "tokens": {"deps": [{"path": "src/room"}, {"path": "my texts"}], "outs": [{"path": "data/tokens"}]},
        "compare": {"deps": [{"path": "data/tokens"}, {"path": "data"}, {"path": "stages/compare.py"}], "outs": [{"path": "report"}]},
    }
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which everything is committed but results, and files that no result is made from are changed."""
    monkeypatch.delenv("DVC_EXP_NAME", raising=False)
    for name in ("src/room/a.py", "my texts/ä.txt", "stages/compare.py", "params.yaml", "README.md", "data/tokens/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("as committed")
    who = {f"GIT_{role}_{what}": "tester" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for command in (("init", "-q"), ("add", "src", "my texts", "stages", "params.yaml", "README.md"), ("commit", "-qm", "base")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, env=os.environ | who)
    for name in ("params.yaml", "README.md", "data/tokens/x"):
        (tmp_path / name).write_text("changed")
    return tmp_path


def test_what_results_were_made_from_is_committed_though_other_files_are_not(project: Path) -> None:
    tags = source_tags(project, LOCK)
    assert (tags["dirty"], tags["code"]) == ("true", "committed")
    assert source_tags(project.parent, LOCK)["code"] == "unknown"


@pytest.mark.parametrize("name", ["src/room/a.py", "src/room/new.py", "my texts/ä.txt", "stages/compare.py"])
def test_a_file_that_the_commit_lacks_is_named(project: Path, name: str) -> None:
    (project / name).write_text("changed")
    assert source_tags(project, LOCK)["code"] == f"not committed: {name}"


def test_a_file_outside_the_repository_is_in_no_commit(project: Path) -> None:
    lock = {"stages": {"tokens": {"deps": [{"path": "/elsewhere/texts"}, {"path": "src/room"}]}}}
    (project / "src/room/a.py").write_text("changed")
    assert source_tags(project, lock)["code"] == "not committed: /elsewhere/texts, src/room/a.py"
