"""Which settings of a SAE are refused, and that the refusal says what is allowed."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from latentry.saes.sae_lens import Config

TOPK = {"kind": "sae_lens", "hookpoint": "resid", "width": 64, "loss": "topk"}


def test_a_topk_recipe_is_accepted():
    assert Config(**TOPK, train={"epochs": 1, "k": 8}).train.k == 8


def test_k_above_the_width_is_refused_and_the_allowed_range_is_named():
    with pytest.raises(ValidationError, match=r"train\.k: 65 is above the width; allowed are 1 to 64"):
        Config(**TOPK, train={"epochs": 1, "k": 65})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train": {"epochs": 1}}, r"train\.k: missing"),
        ({"train": {"epochs": 1, "k": 8, "l1_coefficient": 5.0}}, r"train\.l1_coefficient: loss 'topk' has no such knob"),
        ({"loss": "gated", "train": {"epochs": 1}}, "cannot be trained here"),
        ({"loss": "jumprelu", "train": {"epochs": 1, "l0_coefficient": 1.0, "sparsity_mode": "quadratic"}}, r"train\.target_l0"),
        ({"train": {"epochs": 1, "k": 8, "lr_warm_up": 0.9, "lr_decay": 0.2}}, "at most 1"),
        ({}, "neither of `train` and `folder`"),
        ({"train": {"epochs": 1, "k": 8}, "folder": "saes/x"}, "both of `train` and `folder`"),
        ({"train": {"epochs": 1, "k": 8, "momentum": 0.9}}, "momentum"),
        ({"train": {"epochs": 0, "k": 8}}, "epochs"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(change, said):
    with pytest.raises(ValidationError, match=said):
        Config(**{**TOPK, **change})


def test_validating_a_recipe_imports_no_torch():
    code = "import sys; from latentry.saes import sae_lens; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
