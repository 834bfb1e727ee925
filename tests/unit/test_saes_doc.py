"""The pieces of params.yaml in docs/saes.md, and the studies in `examples/`, are params that are right."""

import re
from pathlib import Path

import pytest
import yaml

from latentry.params import load_params, parse_params
from latentry.registry import kinds
from latentry.saes.recipe import RECIPES
from small_params import small_params

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "saes.md").read_text(encoding="utf-8")
PIECES = [yaml.safe_load(piece) for piece in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]
HOOKPOINTS = {
    "resid-1": {"module": "model.layers.1"},
    "mlp-in": {"module": "model.layers.1.mlp", "side": "input"},
    "mlp-out": {"module": "model.layers.1.mlp"},
}


@pytest.mark.parametrize("piece", PIECES)
def test_a_piece_of_params_in_the_page_is_right(piece):
    tree = small_params(saes=piece["saes"])
    tree["subject"]["hookpoints"] = HOOKPOINTS | piece.get("subject", {}).get("hookpoints", {})
    parse_params(tree)


def test_the_page_shows_every_kind_and_every_loss():
    shown = [entry for piece in PIECES for entry in piece["saes"].values()]
    assert {entry["kind"] for entry in shown} == set(kinds("saes"))
    assert {loss for loss in RECIPES if "transcoder" not in loss} <= {entry.get("loss") for entry in shown}


def test_the_study_of_sizes_and_losses_is_a_whole_grid_beside_two_baselines():
    params = load_params(ROOT / "examples" / "sizes-and-losses" / "params.yaml")
    trained = [sae for sae in params.saes.values() if sae.kind == "sae_lens" and sae.hookpoint == "resid-15"]
    losses = {sae.loss for sae in trained}
    assert len(losses) == 4
    assert sorted((sae.loss, sae.width) for sae in trained) == sorted((loss, width) for loss in losses for width in (1024, 2048, 4096))
    assert {sae.kind for sae in params.saes.values()} == {"sae_lens", "random"}
    assert params.subject.hookpoints["resid-15-random"].random is not None
