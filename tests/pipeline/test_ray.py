"""`run.engine: ray` is how, not what: two workers on this machine leave the very folders that one process does."""

import shutil
import sys
from pathlib import Path

import pytest
import yaml

from pipeline.tiny import lay_out, run

pytestmark = pytest.mark.slow
pytest.importorskip("ray")


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module", params=[True, False], ids=["stored", "streamed"])
def project(request, tmp_path_factory):
    """Everything up to the SAE, made by the local engine."""
    folder = tmp_path_factory.mktemp("ray")
    lay_out(folder)
    write(folder, lambda tree: tree["activations"].update(store=request.param))
    write(folder, lambda tree: tree["run"].update(shard_contexts=32, threads=2))
    write(folder, lambda tree: tree["subject"]["hookpoints"].update({"resid-0-random": {"module": "model.layers.0", "random": {}}}))
    run(folder, "dvc", "repro", "--quiet", "latents")
    return folder


def write(project: Path, change) -> None:
    path = project / "params.yaml"
    tree = yaml.safe_load(path.read_text())
    change(tree)
    path.write_text(yaml.safe_dump(tree))


@pytest.mark.parametrize("stage", [("activations", "data/activations"), ("latents", "data/latents/tiny", "--sae", "tiny")])
def test_two_workers_leave_the_folder_that_one_process_leaves(project, stage):
    name, out, *options = stage
    made_here = content(project / out)
    shutil.rmtree(project / out)
    command = [sys.executable, f"stages/{name}.py", *options]
    write(project, lambda tree: tree["run"].update(engine="ray", workers=2, ray_address="127.0.0.1:1"))
    assert run(project, *command, check=False).returncode == 3, "it was not Ray's to make"
    write(project, lambda tree: tree["run"].update(ray_address=None))
    run(project, *command)
    assert content(project / out) == made_here
    assert "manifest.json" in {Path(path).name for path in made_here}
