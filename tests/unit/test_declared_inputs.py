"""dvc.yaml against the code: each stage declares the files it imports, and nothing that it does not."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
FRAME = {
    "errors",
    "records",
    "registry",
    "contracts",
    "store",
    "atomic",
    "locks",
    "engines",
    "params",
    "sections",
    "crosschecks",
    "pair_checks",
    "rows",
    "runtime",
    "metric_kinds",
    "hub",
    "loaded_code",
    "commits",
    "databases",
    "dvc_lock",
    "pinned_files",
    "safe_text",
    "yaml_file",
}
"""They change no number: params are declared one by one, a change of format raises its contract's version, and where shards are made
changes no byte (`tests/pipeline/test_ray.py`)."""
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


def module_file(name: str) -> Path | None:
    base = SOURCE.joinpath(*name.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those under `if TYPE_CHECKING`, which never run."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING"):
            yield child
            yield from run_nodes(child)


def imports_of(path: Path) -> set[Path]:
    """The latentry files that a file names: imports at any depth, but for types alone, and rooms whose variants it builds."""
    found: set[Path] = set()
    for node in run_nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("latentry"):
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            found |= {file for name in names if (file := module_file(name)) and name.split(".")[1:2] and name.split(".")[1] not in FRAME}
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "variant":
            room = ast.literal_eval(node.args[0])
            found |= {file for file in (SOURCE / "latentry" / room).glob("*.py") if "\nclass Config(" in file.read_text()}
    return found


def closure_of(script: Path) -> set[Path]:
    reached, waiting = set(), [script]
    while waiting:
        for file in imports_of(waiting.pop()) - reached:
            reached.add(file)
            waiting.append(file)
    return {file for file in reached if file.name != "__init__.py"}


def declared(stage: str) -> list[Path]:
    body = STAGES[stage].get("do", STAGES[stage])
    kinds = [file.stem for file in (SOURCE / "latentry" / "saes").glob("*.py") if "\nclass Config(" in file.read_text()]
    deps = [dep.replace("${item.kind}", kind) for dep in body["deps"] for kind in (kinds if "${item.kind}" in dep else [""])]
    return [ROOT / dep for dep in deps if dep.startswith(("src/", "stages/"))]


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_declares_exactly_the_code_it_imports(stage):
    deps = declared(stage)
    script = ROOT / "stages" / f"{stage}.py"
    assert script in deps
    reached = closure_of(script)
    undeclared = {str(file.relative_to(ROOT)) for file in reached if not any(dep == file or dep in file.parents for dep in deps)}
    assert not undeclared
    unused = {
        str(dep.relative_to(ROOT)) for dep in deps if dep != script and not any(dep == file or dep in file.parents for file in reached)
    }
    assert not unused


@pytest.mark.parametrize("stage", STAGES)
def test_every_declared_file_is_there(stage):
    assert all(dep.exists() for dep in declared(stage))


def test_run_is_declared_by_no_stage():
    for stage in STAGES.values():
        assert not [name for name in stage.get("do", stage).get("params", []) if name.split(".")[0] == "run"]
