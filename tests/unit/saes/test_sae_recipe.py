"""Which settings of a SAE are refused, and that the refusal says where, what was found and what is allowed."""

import subprocess
import sys

import pytest

from latentry.errors import ParamsError
from latentry.params import parse_params
from latentry.saes.recipe import RECIPES
from latentry.saes.sae_lens import Config
from latentry.saes.sae_lens_layout import ARCHITECTURE_OF
from small_params import small_params

TOPK = {"kind": "sae_lens", "hookpoint": "resid-1", "width": 64, "loss": "topk", "train": {"epochs": 1, "k": 8}}
JUMP = {"loss": "jumprelu", "train": {"epochs": 1, "l0_coefficient": 1.0}}


def refusal_of(change: dict) -> str:
    hookpoints = {"resid-1": {"module": "model.layers.1"}, "mlp-1": {"module": "model.layers.1.mlp"}}
    with pytest.raises(ParamsError) as refused:
        parse_params(small_params(saes={"mine": {**TOPK, **change}}, subject__hookpoints=hookpoints))
    return str(refused.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train": {"epochs": 1, "k": 65}}, "saes.mine.train.k: 65 is above the width; allowed are 1 to 64"),
        ({"train": {"epochs": 1}}, "saes.mine.train.k: is missing"),
        ({"train": {"epochs": 1, "k": 8, "l1_coefficient": 5.0}}, "saes.mine.train.l1_coefficient: is 5.0; loss 'topk' has no such knob"),
        ({"train": {"epochs": 1, "k": 8, "epoch": 5}}, "saes.mine.train.epoch: is 5; unknown key; did you mean 'epochs'?"),
        ({"train": {"epochs": 1, "k": 8, "lr_warm_up": 0.9, "lr_decay": 0.2}}, "saes.mine.train.lr_decay: lr_warm_up + lr_decay is 1.1"),
        ({"train": {"epochs": 0, "k": 8}}, "saes.mine.train.epochs: is 0; input should be greater than 0"),
        ({"train": [3]}, "saes.mine.train: is [3]"),
        ({"train": None}, "none of `train`, `folder`"),
        ({"folder": "saes/x"}, "found train and folder"),
        (
            {"loss": "matching_pursuit"},
            "saes.mine.loss: is 'matching_pursuit'; unsupported, for each latent it takes depends on those taken",
        ),
        ({"loss": ["topk"]}, "saes.mine.loss: is ['topk']"),
        ({"loss": "topj"}, "saes.mine.loss: is 'topj'"),
        (JUMP | {"train": JUMP["train"] | {"sparsity_mode": "quadratic"}}, "saes.mine.train.target_l0: goes with train.sparsity_mode"),
        (JUMP | {"train": JUMP["train"] | {"target_l0": 3}}, "saes.mine.train.target_l0: goes with train.sparsity_mode"),
        ({"loss": "matryoshka_batchtopk", "train": {"epochs": 1, "k": 8}}, "saes.mine.train.widths: is missing"),
        ({"loss": "matryoshka_batchtopk", "train": {"epochs": 1, "k": 8, "widths": [16, 64]}}, "ascending numbers below the width 64"),
        ({"loss": "matryoshka_batchtopk", "train": {"epochs": 1, "k": 8, "widths": [32, 16]}}, "saes.mine.train.widths: is [32, 16]"),
        ({"loss": "batchtopk_transcoder"}, "loss 'batchtopk_transcoder' with writes none"),
        ({"writes": "mlp-1"}, "loss 'topk' with writes 'mlp-1'"),
        (
            {"loss": "batchtopk_transcoder", "writes": "mlp-2"},
            "saes.mine.writes: 'mlp-2' is not under `subject.hookpoints`; did you mean 'mlp-1'?",
        ),
        ({"loss": "batchtopk_transcoder", "writes": "resid-1"}, "saes.mine.writes: 'resid-1' is what it reads"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_that_do_not_fit_are_refused_by_name(change, said):
    assert said in refusal_of(change)


def test_all_faults_of_a_recipe_are_told_at_once():
    said = refusal_of({"train": {"epochs": 0, "momentum": 0.9, "l1_coefficient": 1, "dead_after": 0}})
    assert all(f"saes.mine.train.{knob}: " in said for knob in ("epochs", "momentum", "l1_coefficient", "dead_after", "k"))


def test_every_loss_has_a_recipe_and_a_form_in_which_it_is_stored():
    assert set(RECIPES) == set(ARCHITECTURE_OF)


def test_the_knobs_of_a_loss_are_its_own():
    train = {"epochs": 1, "k": 8.5, "threshold_lr": 0.1, "widths": [8, 16]}
    config = Config(**{**TOPK, "loss": "matryoshka_batchtopk", "train": train})
    assert config.model_dump()["train"]["widths"] == (8, 16)


def test_a_signed_loss_has_twice_the_latents_of_its_file():
    tree = small_params(saes={"mine": {**TOPK, "loss": "abstopk"}}, examples__latents={"first": 0, "last": 127})
    assert parse_params(tree).saes["mine"].n_latents == 128
    tree["examples"]["latents"]["last"] = 128
    with pytest.raises(ParamsError, match="128 is no latent of SAE 'mine', which has 0 to 127"):
        parse_params(tree)


def test_validating_a_recipe_imports_no_torch():
    code = "import sys; from latentry.saes import sae_lens; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
