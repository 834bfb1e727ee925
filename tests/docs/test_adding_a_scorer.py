"""The worked example of docs/adding-a-scorer.md: the page shows the file, the file keeps what scorers keep, and it runs as one dropped file."""

import importlib.util
import re
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from docs.pages import ROOT, blocks
from fakes import scorer_inputs
from latentry.metrics import LatentScore
from latentry.records import Status
from latentry.registry import ScorerConfig
from pipeline.tiny import run
from planted_windows import item

FILE = ROOT / "examples" / "adding-a-scorer" / "words.py"


def loaded():
    """The file as a module, without its being in the room."""
    spec = importlib.util.spec_from_file_location("words", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def score_of(text: str) -> LatentScore:
    module = loaded()
    scorer = module.build(module.Config(kind="words"), scorer_inputs())
    told = item(text, word="tax")
    return scorer.score(told, scorer.judge([told]), np.random.default_rng(0))


def test_the_page_shows_the_file():
    shown = [block.text for block in blocks("python") if block.page == "docs/adding-a-scorer.md"]
    assert shown == [FILE.read_text(encoding="utf-8")]


def test_a_true_explanation_tells_the_windows_apart_and_another_latents_does_not():
    true, false, empty = (score_of(text) for text in ("tax of 1790", "names of whales", ""))
    assert (true.status, true.values["auroc"].value) == (Status.OK, 1.0)
    assert false.values["auroc"].value == empty.values["auroc"].value == 0.5


def test_it_is_configured_as_scorers_are():
    config = loaded().Config
    assert issubclass(config, ScorerConfig)
    with pytest.raises(ValueError, match="min_letters"):
        config(kind="words", min_letters=0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_dropped_into_a_project_it_conforms_and_is_scored_to_the_report(project_of):
    project = project_of("one-file")
    shutil.copyfile(FILE, project / "src" / "latentry" / "scorers" / "words.py")
    conformance = "tests/conformance/test_explainers_and_scorers.py"
    kept = run(project, "python", "-m", "pytest", conformance, "-k", "words", capture_output=True)
    assert re.search(r"\d+ passed|^\.{10}", kept.stdout, re.MULTILINE)
    params = yaml.safe_load((project / "params.yaml").read_text())
    (entries,) = [block.text for block in blocks("yaml") if block.page == "docs/adding-a-scorer.md"]
    params["scorers"] |= yaml.safe_load(entries)["scorers"]
    (project / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    run(project, "latentry", "check")
    run(project, "dvc", "repro", "--quiet")
    for name in ("words", "long-words"):
        scores = pq.read_table(project / "data" / "scores" / "topk-2k" / name / "scores.parquet").to_pylist()
        assert {row["explainer"] for row in scores} == {"lexical", "default"}
        assert "ok" in {row["status"] for row in scores if row["explainer"] == "lexical"}
        explained = pq.read_table(project / "data" / "explanations" / "topk-2k" / "explanations.parquet").to_pylist()
        failed = {(row["latent"], row["explainer"]): row["status"] for row in explained if row["status"] != "ok"}
        assert all(row["status"] == failed.get((row["latent"], row["explainer"]), "ok") for row in scores)
        assert name in (project / "report" / "index.html").read_text(encoding="utf-8")
