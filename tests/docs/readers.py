"""What the readers of some pages have made before they type the page's commands, beyond the finished small example."""

import json
import shutil
from pathlib import Path

import yaml

from docs.example_project import git, small_example
from docs.pages import ROOT, blocks
from pipeline.tiny import run


def own_model(project: Path) -> None:
    """docs/own-models.md: its whole params.yaml, with a model, texts and a SAE of the project's for those it names."""
    whole = next(block.text for block in blocks("yaml", pages=(ROOT / "docs" / "own-models.md",)) if block.text.startswith("seed:"))
    tree = yaml.safe_load(whole)
    small = small_example()
    tree["models"]["my-model"]["sources"] = [{"kind": "folder", "path": str(project / "data" / "models" / "smollm2")}]
    tree["models"]["minilm"] = small["models"]["minilm"]
    tree["subject"] |= {"dtype": "float32", "hookpoints": {"resid-6": {"module": "model.layers.1"}}}
    tree["saes"]["mine"] |= {"folder": str(project / "data" / "saes" / "topk-2k"), "width": 160}
    tree["saes"]["chance"] |= {"width": 160, "k": 4}
    tree["corpus"]["path"] = "corpus/sotu-and-moby-dick.jsonl.xz"
    tree |= {"tokens": small["tokens"], "gate": small["gate"], "run": small["run"], "activations": {"dtype": "float32"}}
    tree["examples"] |= {"n_latents": 4, "min_examples": 20, "explain": {"n": 8, "n_contrast": 8}}
    tree["examples"]["held_out"] = {"n_activating": 10, "n_contrast": 10}
    (project / "params.yaml").write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")


def others(project: Path) -> None:
    """docs/import.md: results of others where the page has them, which are the specimens."""
    specimens = ROOT / "tests" / "specimens"
    shutil.copytree(specimens / "delphi-0.1.3", project / "results" / "their-run")
    shutil.copyfile(specimens / "saebench-0.6.0.json", project / "their-sae_eval_results.json")
    (project / "labels.csv").write_text("latent,text,author\n3,words about tax,A. Person\n", encoding="utf-8")
    batches = project / "downloads" / "6-res-jb" / "explanations"
    batches.mkdir(parents=True)
    row = {"modelId": "gpt2-small", "layer": "6-res-jb", "index": "3", "description": "tax", "explanationModelName": "gpt-4o-mini"}
    rows = [row | {"typeName": method} for method in ("oai_token-act-pair", "np_max-act")]
    (batches / "batch-0.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def another_repository(project: Path) -> None:
    """docs/sharing.md: a repository of others beside this one with two tagged results, a place to push to, and an experiment."""
    them, origin = project.parent / "them", project.parent / "origin.git"
    shutil.copytree(project, them, symlinks=True)
    git(them, "tag", "results-1")
    git(them, "commit", "--quiet", "--allow-empty", "--message", "later")
    git(them, "tag", "results-2")
    git(project, "clone", "--quiet", "--bare", str(project), str(origin))
    git(project, "remote", "add", "origin", str(origin))
    run(project, "dvc", "exp", "save", "--name", "two")
