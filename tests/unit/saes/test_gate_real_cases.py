"""The gate on a SAE that was trained here, and then misused in the ways that load without a complaint."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from latentry.errors import GateError
from latentry.models.random import Config, build
from latentry.saes import neurons, random, sae_lens
from latentry.saes.base import Sae
from latentry.saes.evaluation import evaluation_record, reconstruction
from latentry.saes.gate import InUse, gate
from latentry.saes.hook_names import place_of
from latentry.store import digest_of, file_digest
from latentry.subjects.causal_lm import load_subject
from latentry.subjects.hooks import Hookpoint
from planted_saes import StoredActivations

TOKENS = np.random.default_rng(0).integers(40, size=(96, 24))
TRAINING, HELD_OUT = np.arange(80), np.arange(80, 96)
K, WIDTH = 4, 96


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    return build(Config(kind="random", purpose="language_model", d_model=16, n_layers=3)).fetch(folder, folder)


@pytest.fixture(scope="module")
def chat(base, tmp_path_factory) -> Path:
    """The base model after some tuning: every weight is a little different, every shape and name the same."""
    folder = tmp_path_factory.mktemp("chat")
    for path in base.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    weights, generator = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(0)
    tuned = {
        name: weight + 0.01 * weight.std(correction=0) * torch.randn(weight.shape, generator=generator) for name, weight in weights.items()
    }
    save_file(tuned, folder / "model.safetensors", {"format": "pt"})
    return folder


def activations_of(model: Path, layer: int) -> StoredActivations:
    point = Hookpoint(name="here", module=f"model.layers.{layer}", side="output")
    return StoredActivations(load_subject(model, [point], dtype="float32", device=torch.device("cpu")).activations(TOKENS)["here"])


def in_use(model: Path, layer: int) -> InUse:
    place = place_of(f"model.layers.{layer}", "output")
    digest = digest_of(file_digest(model / "model.safetensors"))
    return InUse(subject=("tiny",), subject_digest=digest, reads=place, writes=place, begins_with_bos=False, context=TOKENS.shape[1])


def metadata_of(model: Path, layer: int) -> dict[str, Any]:
    place = in_use(model, layer)
    about = {"model_name": "tiny", "subject_digest": place.subject_digest, "hf_hook_name": place.reads.name, "hook_side": place.reads.side}
    return about | {"prepend_bos": False, "context_size": place.context}


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    """A TopK SAE of layer 1 of the base model, and what was recorded of it."""
    folder, activations = tmp_path_factory.mktemp("sae"), activations_of(base, 1)
    recipe = {"epochs": 12, "batch": 64, "lr": 0.005, "k": K}
    config = sae_lens.Config(kind="sae_lens", hookpoint="here", width=WIDTH, loss="topk", train=recipe)
    how = {"seed": 0, "folder": folder, "metadata": metadata_of(base, 1), "checkpoint_tokens": 10**6}
    n_tokens = sae_lens.make(config, activations, TRAINING, **how)
    sae = sae_lens.build(config, "topk", folder)
    return folder, evaluation_record(sae, measured(sae, activations), None, subject="tiny", n_training_tokens=n_tokens)


def measured(sae: Sae, activations: StoredActivations):
    return reconstruction(sae, activations, HELD_OUT, block=WIDTH, batch_tokens=1024)


def read(folder: Path, loss: str = "topk") -> Sae:
    return sae_lens.build(sae_lens.Config(kind="sae_lens", hookpoint="here", width=WIDTH, loss=loss, folder=folder), loss, folder)


def judged(sae: Sae, model: Path, layer: int, recorded: dict[str, Any] | None) -> dict[str, Any]:
    return gate(sae, measured(sae, activations_of(model, layer)), in_use(model, layer), recorded=recorded)


def test_it_passes_where_it_was_trained(trained, base):
    folder, recorded = trained
    report = judged(read(folder), base, 1, recorded)
    assert (report["passed"], report["not_checked"]) == (True, [])
    assert report["fvu"] < 0.5


def test_at_the_next_layer_it_is_stopped_by_the_hookpoints_name(trained, base):
    folder, recorded = trained
    with pytest.raises(GateError, match=r"names hookpoint 'model\.layers\.1', in use is output of 'model\.layers\.2'"):
        judged(read(folder), base, 2, recorded)


def test_on_the_chat_version_it_is_stopped_by_the_digest_though_its_figures_are_good(trained, chat):
    folder, recorded = trained
    with pytest.raises(
        GateError, match=r"trained on subject weights \w+, in use are \w+; likely another revision, precision or a fine-tuned"
    ):
        judged(read(folder), chat, 1, recorded)
    silent = replace(read(folder), provenance={})
    assert judged(silent, chat, 1, recorded)["passed"], "figures alone do not show it"


def test_a_topk_that_is_read_as_relu_is_stopped_by_its_figures_with_that_cause(trained, base, tmp_path):
    folder, recorded = trained
    described = json.loads((folder / "cfg.json").read_text())
    del described["metadata"]["training_architecture"]
    (tmp_path / "cfg.json").write_text(json.dumps(described | {"architecture": "standard"}))
    (tmp_path / "sae_weights.safetensors").write_bytes((folder / "sae_weights.safetensors").read_bytes())
    with pytest.raises(GateError, match=r"L0 is .*, declared is 4\.0[\s\S]*a TopK read as ReLU") as ours:
        judged(read(tmp_path, "standard"), base, 1, recorded)
    assert "off by one" not in str(ours.value)
    with pytest.raises(GateError, match=r"L0 is .*, declared is 4\.0"):  # of one from elsewhere the k in its file tells
        judged(read(tmp_path, "standard"), base, 1, None)


def test_activations_of_another_scale_are_stopped_with_that_cause(trained, base):
    folder, recorded = trained
    sae, activations = read(folder), activations_of(base, 1)
    with pytest.raises(GateError, match=r"FVU is [\s\S]*another scale than in training"):
        gate(sae, measured(sae, StoredActivations(activations._x / 20)), in_use(base, 1), recorded=recorded)


def test_baselines_pass_with_their_label_whatever_their_figures_are(trained, base, chat, tmp_path):
    activations, how = activations_of(base, 1), {"seed": 0, "metadata": metadata_of(chat, 0), "checkpoint_tokens": 10**6}
    entries = {random: {"width": WIDTH, "k": K}, neurons: {"k": 1}}
    for module, settings in entries.items():
        folder, config = tmp_path / module.__name__, module.Config(kind="baseline", hookpoint="here", **settings)
        folder.mkdir()
        module.make(config, activations, TRAINING, folder=folder, **how)
        report = judged(module.build(config, "baseline", folder), base, 1, None)
        assert report["baseline"] == module.__name__.rpartition(".")[2]
        assert not report["passed"]
        assert len(report["faults"]) >= 2
    of_redrawn = replace(read(trained[0]), baseline="random_subject")
    assert judged(of_redrawn, chat, 2, trained[1])["baseline"] == "random_subject"
