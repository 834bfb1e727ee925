"""examples/all-scorers: it runs every scorer there is, on what the example has made already."""

from pathlib import Path

import pytest
import yaml

from latentry.params import load_params
from latentry.registry import kinds

ROOT = Path(__file__).parents[2]
MADE_BEFORE = ("seed", "models", "corpus", "tokens", "subject", "activations", "evaluation", "gate", "latents")
FILES = {name: ROOT / name for name in ("params.yaml", "examples/all-scorers/params.yaml")}


@pytest.fixture(scope="module")
def trees():
    return {name: yaml.safe_load(path.read_text()) for name, path in FILES.items()}


def test_every_scorer_is_among_those_it_runs():
    params = load_params(FILES["examples/all-scorers/params.yaml"])
    assert {config.kind for config in params.scorers.values()} == set(kinds("scorers"))
    assert "steered" in {config.kind for config in params.explainers.values()}


def test_it_makes_nothing_anew_that_the_example_has_made(trees):
    example, variant = trees["params.yaml"], trees["examples/all-scorers/params.yaml"]
    assert {name: variant[name] for name in MADE_BEFORE} == {name: example[name] for name in MADE_BEFORE}
    assert variant["saes"].items() <= example["saes"].items()
