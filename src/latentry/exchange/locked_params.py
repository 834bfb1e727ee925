"""Whether params.yaml is what `dvc.lock` says each stage was run with, read without DVC.

Always true: a stage is judged by the parameters that it declared then, and one that params.yaml no longer has is not judged.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from latentry.dvc_lock import parsed_lock
from latentry.errors import ContractError
from latentry.exchange.locked import LOCK
from latentry.exchange.result_files import shown
from latentry.yaml_file import read_yaml

PARAMS = "params.yaml"
_ALONE = ("tokens", "activations", "compare")
"""Stages of one cell that results rest on."""
_SECTIONS = {"models": "models", "jacobian": "jacobians", "edges": "jacobians"}
"""Where the names of a stage's cells stand in params; those of the others are SAEs', or a SAE's and a scorer's."""
_MISSING = object()


def lock_changes(here: Path, cells: Collection[str]) -> Iterator[str]:
    """Each parameter of a stage that is another one in params.yaml, and each of the cells asked for that was never run.

    Raises:
        ContractError: there is no `dvc.lock`, or it is cut short.
    """
    path = here / LOCK
    lock = parsed_lock(path) if path.is_file() else None
    if lock is None:
        raise ContractError(
            f"{path}: is not there or cut short, so it is unknown what results were made from; take the one that came with them,"
            " or run `latentry check` and `dvc repro`"
        )
    stages, tree = lock["stages"], read_yaml(here / PARAMS)
    yield from (f"{shown(cell)}: was never run, by {LOCK}" for cell in cells if cell not in stages)
    for name, entry in stages.items():
        if name in cells or _stands(name, tree):
            for key, then in ((entry.get("params") or {}).get(PARAMS) or {}).items():
                yield from (f"{shown(name)}: {change}" for change in _difference(key, then, _at(tree, key)))


def _stands(name: str, tree: Any) -> bool:
    """Whether params.yaml has the cell; scores are asked for by name."""
    stage, _, cell = name.partition("@")
    return _at(tree, f"{_SECTIONS.get(stage, 'saes')}.{cell}") is not _MISSING if cell else stage in _ALONE


def _at(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part, _MISSING) if isinstance(tree, Mapping) else _MISSING
    return tree


def _difference(path: str, then: Any, now: Any) -> Iterator[str]:
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*then, *now]):
            yield from _difference(f"{path}.{key}", then.get(key, _MISSING), now.get(key, _MISSING))
    elif not _is_same(then, now):
        yield f"run with {path} {_value(then)}, now {_value(now)} in {PARAMS}"


def _is_same(then: Any, now: Any) -> bool:
    """DVC writes 1e-05 where YAML 1.1 wants 1.0e-05, and reads it as a number."""
    if isinstance(then, Mapping) or isinstance(now, Mapping) or isinstance(then, bool) or isinstance(now, bool):
        return then is now or then == now
    try:
        return then == now or float(then) == float(now)
    except (TypeError, ValueError):
        return False


def _value(value: Any) -> str:
    return "not set" if value is _MISSING else f"= {shown(repr(value))}"
