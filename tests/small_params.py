"""A small valid tree of params.yaml, every section filled with the cheapest kind there is, for tests that change one thing in it."""

import copy
from typing import Any

_TREE: dict[str, Any] = {
    "seed": 0,
    "models": {
        "subject": {"format": "folder", "sources": [{"kind": "random", "purpose": "language_model", "d_model": 32}]},
        "encoder": {"format": "folder", "sources": [{"kind": "random", "purpose": "embedding_model"}]},
    },
    "corpus": {"kind": "files", "path": "corpus"},
    "tokens": {"context": 32, "n_tokens": 3200, "separator": "<|end|>"},
    "subject": {"model": "subject", "dtype": "float32", "hookpoints": {"resid-1": {"module": "model.layers.1"}}},
    "activations": {"dtype": "float32", "max_norm_multiple": 10},
    "saes": {"topk-64": {"kind": "sae_lens", "hookpoint": "resid-1", "width": 64, "loss": "topk", "train": {"epochs": 1, "k": 4}}},
    "evaluation": {"contexts": 8, "ce_contexts": 4},
    "latents": {"dtype": "float32"},
    "examples": {
        "window": 8,
        "n_latents": 4,
        "min_examples": 20,
        "explain": {"n": 10, "n_contrast": 5},
        "held_out": {"n_activating": 10, "n_contrast": 10},
        "contrasts": {"random": {}},
    },
    "clients": {"judge": {"kind": "transformers", "model": "subject"}},
    "explainers": {"lexical": {}, "default": {"client": "judge"}},
    "scorers": {
        "embedding": {"model": "encoder", "contrast": "random"},
        "detection": {"client": "judge", "contrast": "random", "max_examples": 5},
        "fuzzing": {"client": "judge", "contrast": "wrong-position"},
    },
    "jacobians": {},
    "tracking": {"experiment": "small"},
    "run": {"device": "cpu"},
}


def small_params(**changes: Any) -> dict[str, Any]:
    """The tree with some places set anew, by dotted path with `__` for the dots; a fresh copy each time."""
    tree = copy.deepcopy(_TREE)
    for path, value in changes.items():
        put(tree, path.replace("__", "."), value)
    return tree


def put(tree: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Set one dotted place of a tree, in place; missing sections are made."""
    *sections, last = path.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
    tree[last] = value
    return tree
