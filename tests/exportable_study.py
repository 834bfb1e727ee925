"""The made-up study with the parameters that it could have been made from, for what exports results."""

from pathlib import Path

from latentry.params import Params, parse_params
from made_up_study import make_study
from small_params import small_params

SAES = ("topk-1k", "jumprelu-1k")


def make_exportable(root: Path, **changes: object) -> Params:
    """Write the study of two SAEs under a folder; gives its parameters, some of them changed."""
    make_study(root, n_latents=15, widths={"1k": 1024})
    (root / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")  # the study's own names no real digests
    return study_params(**changes)


def study_params(**changes: object) -> Params:
    """Parameters that name the study's cells, some of them changed."""
    trained = {"kind": "sae_lens", "hookpoint": "resid-1", "width": 1024}
    saes = {
        "topk-1k": {**trained, "loss": "topk", "train": {"epochs": 1, "k": 4}},
        "jumprelu-1k": {**trained, "loss": "jumprelu", "train": {"epochs": 1, "l0_coefficient": 1.0}},
    }
    return parse_params(small_params(saes=saes, **changes))
