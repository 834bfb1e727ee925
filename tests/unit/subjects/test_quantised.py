"""Subjects whose weights are quantised: activations there are floats like any, and what cannot be loaded is told by its method."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from latentry.errors import HookpointError, SourceError
from latentry.subjects.causal_lm import Subject, load_subject
from latentry.subjects.hooks import Hookpoint

SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
TOKENS = np.random.default_rng(0).integers(50, size=(3, 7))
CPU = torch.device("cpu")
PARTS = {"layer": "model.layers.1", "attention": "model.layers.1.self_attn", "linear": "model.layers.1.mlp.down_proj"}
POINTS = [Hookpoint(name=name, module=module, side="output") for name, module in PARTS.items()]


@pytest.fixture
def llama() -> LlamaForCausalLM:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(**SIZES, initializer_range=0.3)).eval().requires_grad_(False)


pytestmark = pytest.mark.filterwarnings("ignore:.*quantiz.*:UserWarning")


@pytest.fixture
def dynamic(llama) -> nn.Module:
    """Every Linear in 8 bits, as torch does it."""
    return torch.ao.quantization.quantize_dynamic(llama, {nn.Linear}, dtype=torch.qint8)


def test_activations_inside_a_quantised_subject_are_floats_near_those_of_the_whole_one(llama, dynamic):
    whole, found = (Subject(model, POINTS, CPU).activations(TOKENS) for model in (llama, dynamic))
    for name in PARTS:
        assert found[name].dtype == torch.float32
        assert not torch.equal(found[name], whole[name])
        # 8 bits of weights and of inputs, a few matrices deep
        assert (found[name] - whole[name]).norm() < 0.1 * whole[name].norm()


def test_losses_and_promoted_tokens_come_from_a_quantised_subject_too(llama, dynamic):
    subject, directions = Subject(dynamic, POINTS, CPU), torch.eye(16)
    assert torch.isfinite(subject.token_losses(TOKENS, ("linear", torch.neg))).all()
    whole = Subject(llama, [], CPU).promoted(directions)
    assert (subject.promoted(directions) - whole).norm() < 0.1 * whole.norm()


def rounded_to_8_bits(weight: torch.Tensor) -> tuple[torch.Tensor, float]:
    scale = weight.abs().max().item() / torch.finfo(torch.float8_e4m3fn).max
    return (weight / scale).to(torch.float8_e4m3fn), scale


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU transformers computes in fp8, on that GPU")
def test_a_quantised_folder_is_loaded_where_its_library_is_there_and_its_method_is_known(llama, tmp_path):
    # transformers itself reads fp8 with a scale for each block, and without a GPU computes in the wanted type.
    method = {"quant_method": "fp8", "weight_block_size": [16, 16], "activation_scheme": "dynamic"}
    folder = stated(llama, tmp_path / "fp8", method)
    weights = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        weights[name] = weight
        if name.endswith("proj.weight"):
            weights[name], scale = rounded_to_8_bits(weight)
            weights[name.replace(".weight", ".weight_scale_inv")] = torch.full((weight.shape[0] // 16, weight.shape[1] // 16), scale)
            llama.get_parameter(name).copy_(weights[name].float() * scale)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    subject = load_subject(folder, POINTS, dtype="float32", device=CPU)
    assert subject.quantisation == "fp8"
    found, wanted = (of.activations(TOKENS)["linear"] for of in (subject, Subject(llama, POINTS, CPU)))
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)


def stated(llama: LlamaForCausalLM, folder: Path, quantisation: dict) -> Path:
    """The model's folder, with a configuration that says its weights are quantised."""
    llama.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantisation}))
    return folder


@pytest.mark.parametrize(
    ("quantisation", "told"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 16}, r"quantised by 'awq' .*gptqmodel"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, r"quantised by 'bitsandbytes' .*bitsandbytes"),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, r"quantised by 'compressed-tensors' .*compressed"),
    ],
)
def test_a_quantisation_whose_library_is_missing_is_told_with_what_to_install(llama, tmp_path, quantisation, told):
    folder = stated(llama, tmp_path / "quantised", quantisation)
    with pytest.raises(SourceError, match=rf"{told}.*; install what that names"):
        load_subject(folder, POINTS, dtype="float32", device=CPU)


def test_a_wrong_hookpoint_in_a_quantised_subject_is_told_before_its_library_is_looked_for(llama, tmp_path):
    folder = stated(llama, tmp_path / "quantised", {"quant_method": "awq", "bits": 4, "group_size": 16})
    with pytest.raises(HookpointError, match=r"did you mean 'model\.layers\.1'"):
        load_subject(folder, [Hookpoint(name="a", module="model.layers.7", side="output")], dtype="float32", device=CPU)
