"""The made-up study with the parameters that it could have been made from, for what exports results."""

import copy
import functools
from pathlib import Path
from typing import Any

import yaml

from latentry.params import Params, parse_params
from made_up_study import make_study
from small_params import small_params

SAES = ("topk-1k", "jumprelu-1k")


def make_exportable(root: Path, **changes: object) -> Params:
    """Write the study of two SAEs under a folder; gives its parameters, some of them changed."""
    make_study(root, n_latents=15, widths={"1k": 1024})
    tree = _tree()
    (root / "params.yaml").write_text(yaml.safe_dump(tree))
    (root / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": _locked(tree)}))  # the study's own names no real digests
    return study_params(**changes)


def _locked(tree: dict[str, Any]) -> dict[str, Any]:
    """The stages with what each declares, as far as what exports read goes."""
    declared = {"tokens": ["tokens"], "compare": ["saes", "scorers"]}
    for sae in SAES:
        declared[f"sae@{sae}"], declared[f"latents@{sae}"] = [f"saes.{sae}"], ["latents"]
        declared[f"examples@{sae}"], declared[f"explain@{sae}"] = ["examples"], ["explainers"]
        declared |= {f"score@{sae}-{scorer}": [f"scorers.{scorer}"] for scorer in tree["scorers"]}
    return {name: {"cmd": name, "params": {"params.yaml": {key: _at(tree, key) for key in keys}}} for name, keys in declared.items()}


def _at(tree: Any, key: str) -> Any:
    return copy.deepcopy(functools.reduce(lambda level, name: level[name], key.split("."), tree))


def study_params(**changes: object) -> Params:
    """Parameters that name the study's cells, some of them changed."""
    return parse_params(_tree(**changes))


def _tree(**changes: object) -> dict[str, Any]:
    trained = {"kind": "sae_lens", "hookpoint": "resid-1", "width": 1024}
    saes = {
        "topk-1k": {**trained, "loss": "topk", "train": {"epochs": 1, "k": 4}},
        "jumprelu-1k": {**trained, "loss": "jumprelu", "train": {"epochs": 1, "l0_coefficient": 1.0}},
    }
    return small_params(saes=saes, **changes)
