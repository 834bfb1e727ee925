"""A project as a reader of the docs has it: the example's names, in git with a remote, every cell run; small, on random models."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from pipeline.tiny import ROOT, environment, run

COPIED = (
    *(
        "src",
        "stages",
        "docs",
        "examples",
        "tests",
        "benchmarks",
        "corpus",
        "constraints",
        "Makefile",
        "dvc.yaml",
        "mkdocs.yml",
        "pyproject.toml",
    ),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", ".gitignore", ".dvcignore", ".importlinter"),
    *("data/jacobians/.keep", "data/edges/.keep"),
)
SMALL: dict[str, Any] = {
    "tokens": {"context": 128, "n_tokens": 24000, "tokens_per_document": 480},
    "evaluation": {"contexts": 16, "ce_contexts": 4},
    "gate": {"max_fvu": 2.0},
    "latents": {"dtype": "float32", "n_top_tokens": 10},
    "max_failed_fraction": 1.0,
    "run": {"threads": 1, "shard_contexts": 64},
}
SAES = {"topk-1k": 144, "topk-2k": 160}
"""Of the example's SAEs, with other widths."""
SCORERS = ("embedding", "detection")


def small_example() -> dict[str, Any]:
    """The example's params with its names, as few cells as the pages speak of, and models that know nothing."""
    tree = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8")) | SMALL
    purposes = {"smollm2": ("language_model", 0), "qwen": ("language_model", 1), "minilm": ("embedding_model", 0)}
    tree["models"] = {
        name: {"format": "folder", "sources": [{"kind": "random", "purpose": purpose, "seed": seed}]}
        for name, (purpose, seed) in purposes.items()
    }
    tree["subject"] = {"model": "smollm2", "dtype": "float32", "hookpoints": {"resid-15": {"module": "model.layers.1", "side": "output"}}}
    tree["saes"] = {name: tree["saes"][name] | {"width": width} for name, width in SAES.items()}
    for sae in tree["saes"].values():
        sae["train"] = sae["train"] | {"k": 4}
    tree["examples"] |= {"n_latents": 8, "min_examples": 20, "explain": {"n": 8, "n_contrast": 8}}
    tree["examples"]["held_out"] = {"n_activating": 10, "n_contrast": 10}
    tree["scorers"] = {name: tree["scorers"][name] for name in SCORERS}
    tree["scorers"]["detection"] |= {"max_latents": 3, "null_latents": 2}
    tree["explainers"]["default"] |= {"max_latents": 3, "max_tokens": 8}
    return tree


def lay_out(folder: Path) -> None:
    """The project's files, `.venv` as `make` wants it, and a commit."""
    for name in COPIED:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, target)
    (folder / "params.yaml").write_text(yaml.safe_dump(small_example(), sort_keys=False), encoding="utf-8")
    _link_environment(folder / ".venv")
    git(folder, "init", "--quiet")
    run(folder, "dvc", "init", "--quiet", "--force")
    shutil.copyfile(ROOT / ".dvc" / "config", folder / ".dvc" / "config")
    shutil.copytree(ROOT / ".dvc" / "plots", folder / ".dvc" / "plots")  # `dvc init` makes `.dvc` anew
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "the example, small")


def _link_environment(venv: Path) -> None:
    """What `make` takes for an installed environment: this process's own."""
    venv.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (venv / name).symlink_to(Path(sys.prefix) / name)
    (venv / ".installed").touch()


def run_all(folder: Path) -> None:
    """Every cell, committed and pushed to the remote beside the project."""
    run(folder, "dvc", "repro", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "results")
    run(folder, "dvc", "push", "--quiet")


def copy_of(project: Path, parent: Path) -> Path:
    """The project and its remote once more, in a folder of their own."""
    shutil.copytree(project.parent, parent, symlinks=True)
    return parent / project.name


def git(folder: Path, *command: str) -> None:
    """One command of git, by a made-up person."""
    subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True, env=shell_environment(folder))


def shell_environment(folder: Path) -> dict[str, str]:
    """A reader's shell in the project: no keys, no tracker, a name for git."""
    names = {
        f"GIT_{who}_{what}": f"reader{'@example.org' * (what == 'EMAIL')}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    quiet = {"DVC_NO_ANALYTICS": "1", "GIT_CONFIG_GLOBAL": os.devnull, "PAGER": "cat", "NO_MKDOCS_2_WARNING": "1"}
    return environment(folder) | names | quiet
