"""examples/slurm/sweep.sh, as the scheduler would start it: one task, without a scheduler."""

import pytest

from docs.example_project import shell_environment
from pipeline.tiny import run

pytestmark = pytest.mark.slow


@pytest.mark.timeout(1800)
def test_a_task_runs_its_setting_and_leaves_its_experiment_in_the_project(project_of, monkeypatch):
    project = project_of("slurm")
    for name, value in (shell_environment(project) | {"SLURM_ARRAY_TASK_ID": "0"}).items():
        monkeypatch.setenv(name, value)
    run(project, "bash", "examples/slurm/sweep.sh")
    assert "task-0" in run(project, "dvc", "exp", "list", "--name-only", capture_output=True).stdout
    run(project, "dvc", "exp", "apply", "--quiet", "task-0")
    assert "k: 16" in (project / "params.yaml").read_text(encoding="utf-8")
    assert run(project, "dvc", "checkout", "--quiet", "report", check=False).returncode == 0
    assert (project / "report" / "index.html").is_file()
