"""One SAE in the files of every format, through the stages: pinned, gated, encoded and read for neighbours, it is the same SAE."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import Tensor

from latentry.latents.latent_store import LatentStore
from pipeline.tiny import lay_out, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

K, WIDTH = 4, 48
READ = ("as-sparsify", "signed", "jumprelu")
SAME = ("as-sparsify", "as-dictionary-learning", "as-jsae", "as-saelens")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("formats")
    lay_out(folder)
    tree = yaml.safe_load((folder / "params.yaml").read_text())
    tree["gate"] = {"max_fvu": 2.0}
    tree["examples"]["contrasts"] = {"random": {}, "near": {"kind": "neighbours", "by": "cosine", "n_neighbours": 3}}
    tree["explainers"], tree["scorers"] = {"lexical": {}}, {"embedding": {"model": "encoder"}}
    tree["saes"] = {"tiny": {"kind": "sae_lens", "hookpoint": "resid-1", "width": WIDTH, "loss": "topk"}}
    tree["saes"]["tiny"]["train"] = {"epochs": 1, "batch": 256, "k": K}
    (folder / "params.yaml").write_text(yaml.safe_dump(tree))
    run(folder, "dvc", "repro", "--quiet", "latents@tiny")
    tree["saes"] |= written(folder, load_file(folder / "data/saes/tiny/sae_weights.safetensors"))
    (folder / "params.yaml").write_text(yaml.safe_dump(tree))
    run(folder, "dvc", "repro", "--quiet", "latents", *(f"examples@{name}" for name in READ))
    return folder


def written(project: Path, held: dict[str, Tensor]) -> dict[str, Any]:
    """The SAE in the files of every format, its decoder at unit norm and b_dec subtracted, and their entries of params."""
    described = json.loads((project / "data/saes/tiny/cfg.json").read_text())
    norms = held["W_dec"].norm(dim=-1) if described["rescale_acts_by_decoder_norm"] else torch.ones(WIDTH)
    uncentred = torch.zeros(WIDTH) if described["apply_b_dec_to_input"] else held["b_dec"] @ held["W_enc"]
    w_enc, b_enc = held["W_enc"] * norms, (held["b_enc"] + uncentred) * norms
    w_dec, b_dec, d_in = held["W_dec"] / norms[:, None], held["b_dec"], len(held["b_dec"])
    layers = {"encoder.weight": w_enc.T.contiguous(), "encoder.bias": b_enc, "b_dec": b_dec}
    sparsify = {"d_in": d_in, "k": K, "num_latents": WIDTH, "activation": "topk"}
    put(project / "layers.1", "cfg.json", sparsify, "sae.safetensors", layers | {"W_dec": w_dec})
    trainer = {"dict_class": "AutoEncoderTopK", "activation_dim": d_in, "dict_size": WIDTH, "k": K, "layer": 1}
    numbers = {"decoder.weight": w_dec.T.contiguous(), "k": torch.tensor(K)}
    put(project / "trainer_0", "config.json", {"trainer": trainer}, "ae.pt", layers | numbers)
    pair = {"architecture": "standard", "d_in": d_in, "d_sae": WIDTH, "activation_fn_str": "topk", "activation_fn_kwargs": {"k": K}}
    halves = {"_W_enc_out": w_enc, "_b_enc_out": b_enc, "_W_dec_out": w_dec, "_b_dec_out": b_dec}
    both = halves | {name.removesuffix("_out"): torch.zeros_like(tensor) for name, tensor in halves.items()}
    put(project / "pair", "cfg.json", pair, "sae_weights.safetensors", both)
    put(project / "lens", "cfg.json", described | {"metadata": {}}, "sae_weights.safetensors", held)
    put(project / "signed", "cfg.json", described | {"metadata": {}, "architecture": "abstopk"}, "sae_weights.safetensors", held)
    jump = {"W_enc": w_enc, "W_dec": w_dec, "b_enc": b_enc - b_dec @ w_enc, "b_dec": b_dec, "threshold": torch.zeros(WIDTH)}
    trainer = {"dict_class": "JumpReluAutoEncoder", "activation_dim": d_in, "dict_size": WIDTH, "layer": 1}
    put(project / "trainer_1", "config.json", {"trainer": trainer}, "ae.pt", jump)
    common = {"hookpoint": "resid-1", "width": WIDTH}
    return {
        "as-sparsify": common | {"kind": "sparsify", "folder": "layers.1"},
        "as-dictionary-learning": common | {"kind": "dictionary_learning", "folder": "trainer_0"},
        "as-jsae": common | {"kind": "jsae", "half": "output", "folder": "pair"},
        "as-saelens": common | {"kind": "sae_lens", "loss": "topk", "folder": "lens"},
        "signed": common | {"kind": "sae_lens", "loss": "abstopk", "folder": "signed"},
        "jumprelu": common | {"kind": "dictionary_learning", "folder": "trainer_1"},
    }


def put(folder: Path, config: str, described: dict[str, Any], weights: str, tensors: dict[str, Tensor]) -> None:
    folder.mkdir()
    (folder / config).write_text(json.dumps(described))
    (torch.save if weights.endswith(".pt") else save_file)(tensors, folder / weights)


@pytest.mark.parametrize("name", SAME)
def test_its_latents_are_those_of_the_sae_that_was_trained(project, name):
    ours, theirs = LatentStore.of(project / "data/latents" / name), LatentStore.of(project / "data/latents/tiny")
    assert ours.width == theirs.width == WIDTH
    for latent in range(WIDTH):
        (position, activation), (expected, exact) = ours.read(latent), theirs.read(latent)
        both, here, there = np.intersect1d(position, expected, return_indices=True)
        # a place that two latents tie for, to rounding
        assert len(both) >= 0.999 * max(len(position), len(expected))
        np.testing.assert_allclose(activation[here], exact[there], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", [*SAME, "signed", "jumprelu"])
def test_it_is_pinned_as_it_is_and_passes_the_gate(project, name):
    source = json.loads((project / f"data/saes/{name}/source.json").read_text())
    assert str(project) not in json.dumps(source)
    assert json.loads((project / f"data/latents/{name}/gate.json").read_text())["passed"]


@pytest.mark.parametrize("name", READ)
def test_its_decoder_finds_neighbours(project, name):
    sources = pq.read_table(project / f"data/examples/{name}/examples.parquet")["source"].to_pylist()
    assert "neighbours_cosine" in sources


def test_a_signed_sae_has_a_latent_for_each_direction(project):
    store = json.loads((project / "data/latents/signed/store.json").read_text())
    assert (store["signed"], store["width"]) == (True, 2 * WIDTH)
    assert json.loads((project / "data/saes/signed/evaluation.json").read_text())["l0"] == pytest.approx(K, rel=0.01)
