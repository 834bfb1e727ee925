"""Every family of subjects that we name, read at every kind of hookpoint, on tiny random models of transformers' own classes.

References: transformers' `output_hidden_states`, and each layer's arithmetic done again from its weights.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from latentry.subjects.causal_lm import Subject
from latentry.subjects.hooks import Hookpoint

PAD = 3
SIZES = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 24}
SIZES |= {"pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = SIZES | {"num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64}
SLIDING = GROUPED | {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
GPT2 = {"vocab_size": 60, "n_embd": 16, "n_layer": 3, "n_head": 4, "n_positions": 64, "bos_token_id": 1, "eos_token_id": 2}


@dataclass(frozen=True)
class Family:
    """One family: how a model of it is made, and how transformers names its parts."""

    make: Callable[[], nn.Module]
    layers: str
    attention: str
    last_projections: tuple[str, str]
    final_norm: str
    mlp_by_hand: Callable[[nn.Module, Tensor], Tensor]
    norms_before_adding: tuple[str, str] | None = None
    """Norms of attention's and the MLP's output before the residual stream takes them."""


def gated(activation: Callable[[Tensor], Tensor]) -> Callable[[nn.Module, Tensor], Tensor]:
    return lambda mlp, x: (activation(x @ mlp.gate_proj.weight.T) * (x @ mlp.up_proj.weight.T)) @ mlp.down_proj.weight.T


def tanh_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


def neox_mlp(mlp: nn.Module, x: Tensor) -> Tensor:
    inner = functional.gelu(x @ mlp.dense_h_to_4h.weight.T + mlp.dense_h_to_4h.bias)
    return inner @ mlp.dense_4h_to_h.weight.T + mlp.dense_4h_to_h.bias


def gpt2_mlp(mlp: nn.Module, x: Tensor) -> Tensor:
    return tanh_gelu(x @ mlp.c_fc.weight + mlp.c_fc.bias) @ mlp.c_proj.weight + mlp.c_proj.bias


def llama_like(make: Callable[[], nn.Module], activation=functional.silu, norms: tuple[str, str] | None = None) -> Family:
    projections = ("self_attn.o_proj", "mlp.down_proj")
    return Family(make, "model.layers", "self_attn", projections, "model.norm", gated(activation), norms)


POST = ("post_attention_layernorm", "post_feedforward_layernorm")
FAMILIES = {
    "gpt2": Family(
        lambda: GPT2LMHeadModel(GPT2Config(**GPT2)), "transformer.h", "attn", ("attn.c_proj", "mlp.c_proj"), "transformer.ln_f", gpt2_mlp
    ),
    "gpt_neox": Family(
        lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES, max_position_embeddings=64)),
        "gpt_neox.layers",
        "attention",
        ("attention.dense", "mlp.dense_4h_to_h"),
        "gpt_neox.final_layer_norm",
        neox_mlp,
    ),
    "llama": llama_like(lambda: LlamaForCausalLM(LlamaConfig(**GROUPED))),
    "gemma": llama_like(lambda: GemmaForCausalLM(GemmaConfig(**GROUPED)), tanh_gelu),
    "gemma2": llama_like(lambda: Gemma2ForCausalLM(Gemma2Config(**SLIDING, final_logit_softcapping=3.0)), tanh_gelu, POST),
    "gemma3": llama_like(lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SLIDING)), tanh_gelu, POST),
    "qwen2": llama_like(lambda: Qwen2ForCausalLM(Qwen2Config(**(GROUPED | {"head_dim": 4})))),
    "qwen3": llama_like(lambda: Qwen3ForCausalLM(Qwen3Config(**GROUPED))),
}
TOKENS = np.random.default_rng(0).integers(4, 60, size=(5, 9))
TOKENS[1, :2] = TOKENS[2, -2:] = TOKENS[3, 4] = PAD
IDS = torch.from_numpy(TOKENS)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request) -> tuple[nn.Module, Family]:
    described = FAMILIES[request.param]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = described.make().eval().requires_grad_(False)
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3)
    return model, described


def read(model: nn.Module, *places: tuple[str, str], tokens: np.ndarray = TOKENS) -> list[Tensor]:
    """Activations at each (module, side)."""
    points = [Hookpoint(name=str(number), module=module, side=side) for number, (module, side) in enumerate(places)]
    found = Subject(model, points, torch.device("cpu")).activations(tokens)
    return [found[point.name] for point in points]


def test_the_residual_stream_is_transformers_hidden_states(family):
    model, described = family
    with torch.inference_mode():
        states = model(input_ids=IDS, output_hidden_states=True).hidden_states
    for layer in (0, 1):
        before, after = read(model, (f"{described.layers}.{layer}", "input"), (f"{described.layers}.{layer}", "output"))
        assert torch.equal(before, states[layer])
        assert torch.equal(after, states[layer + 1])


def test_attention_and_mlp_add_up_to_what_their_layer_adds_to_the_stream(family):
    model, described = family
    layer = f"{described.layers}.1"
    places = [(layer, "input"), (f"{layer}.{described.attention}", "output"), (f"{layer}.mlp", "output"), (layer, "output")]
    before, attention, mlp, after = read(model, *places)
    if described.norms_before_adding:
        with torch.inference_mode():
            first, second = (model.get_submodule(f"{layer}.{norm}") for norm in described.norms_before_adding)
            attention, mlp = first(attention), second(mlp)
    # float32, three numbers added in another order
    assert torch.allclose(before + attention + mlp, after, rtol=1e-5, atol=1e-5)


def test_the_mlps_output_is_its_input_through_its_weights(family):
    model, described = family
    mlp = f"{described.layers}.1.mlp"
    x, y = read(model, (mlp, "input"), (mlp, "output"))
    # float32, sums of at most 64 products
    assert torch.allclose(described.mlp_by_hand(model.get_submodule(mlp), x), y, rtol=1e-4, atol=1e-5)


def test_a_last_projection_gives_what_its_module_gives(family):
    model, described = family
    layer = f"{described.layers}.1"
    wholes = read(model, (f"{layer}.{described.attention}", "output"), (f"{layer}.mlp", "output"))
    parts = read(model, *((f"{layer}.{projection}", "output") for projection in described.last_projections))
    assert all(torch.equal(whole, part) for whole, part in zip(wholes, parts, strict=True))


def test_a_batch_gives_what_single_rows_give(family):
    model, described = family
    places = [(f"{described.layers}.1.{described.attention}", "output"), (f"{described.layers}.1", "output")]
    whole = read(model, *places)
    for row in range(len(TOKENS)):
        for single, batch in zip(read(model, *places, tokens=TOKENS[row : row + 1]), whole, strict=True):
            # float32: another batch multiplies matrices in another order
            assert torch.allclose(single[0], batch[row], rtol=1e-4, atol=1e-5)


def test_positions_count_from_0_and_every_token_is_seen_whatever_its_id(family):
    model, described = family
    with torch.inference_mode():
        explicit = model(
            input_ids=IDS,
            attention_mask=torch.ones_like(IDS),
            position_ids=torch.arange(IDS.shape[1]).expand(IDS.shape),
            output_hidden_states=True,
        ).hidden_states[2]
    # float32: an explicit mask may take another kernel of attention
    assert torch.allclose(read(model, (f"{described.layers}.1", "output"))[0], explicit, rtol=1e-4, atol=1e-5)
    changed = TOKENS.copy()
    changed[:, 0] = TOKENS[:, 0] % 50 + 5
    assert not torch.allclose(read(model, (f"{described.layers}.1", "output"), tokens=changed)[0][1, 1], explicit[1, 1], atol=1e-3)


def test_no_position_sees_the_ones_after_it(family):
    model, described = family
    changed = TOKENS.copy()
    changed[:, 5:] = (TOKENS[:, 5:] + 7) % 60
    here, there = (read(model, (f"{described.layers}.1", "output"), tokens=tokens)[0] for tokens in (TOKENS, changed))
    assert torch.allclose(here[:, :5], there[:, :5], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(here[:, 5:], there[:, 5:], atol=1e-3)


@pytest.mark.parametrize("deepest", ["layer", "attention", "mlp input"])
def test_nothing_after_the_deepest_hookpoint_runs(family, deepest):
    model, described = family
    layer, ran = f"{described.layers}.1", []
    watched = {name: module for name, module in model.named_modules() if name and not list(module.children())}
    hooks = [
        module.register_forward_pre_hook(lambda _m, _a, _k, name=name: ran.append(name), with_kwargs=True)
        for name, module in watched.items()
    ]
    place = {"layer": (layer, "output"), "attention": (f"{layer}.{described.attention}", "output"), "mlp input": (f"{layer}.mlp", "input")}
    try:
        read(model, (f"{described.layers}.0", "output"), place[deepest])
    finally:
        for hook in hooks:
            hook.remove()
    after = [
        name for name in ran if name.startswith((f"{described.layers}.2", described.final_norm)) or "head" in name or "embed_out" in name
    ]
    assert not after
    assert any(name.startswith(f"{layer}.{described.attention}") for name in ran)
    assert any(name.startswith(f"{layer}.mlp") for name in ran) == (deepest == "layer")


def test_what_writes_to_the_residual_stream_is_known_by_name(family):
    model, described = family
    layer = f"{described.layers}.1"
    writes = {(layer, "input"), (layer, "output")}
    parts = (described.attention, "mlp", *described.last_projections)
    writes |= {(f"{layer}.{part}", "output") for part in described.norms_before_adding or parts}
    places = [(name, side) for name, _ in model.named_modules() if name.startswith(layer) for side in ("input", "output")]
    points = [Hookpoint(name=f"{module} {side}", module=module, side=side) for module, side in places]
    subject = Subject(model, points, torch.device("cpu"))
    assert {(point.module, point.side) for point in points if subject.is_residual(point.name)} == writes


def test_what_is_said_to_write_to_the_stream_changes_the_layers_output_by_just_that(family):
    model, described = family
    layer = f"{described.layers}.1"
    module, norms = f"{layer}.mlp", described.norms_before_adding
    if norms:
        module = f"{layer}.{norms[1]}"
    direction = torch.randn(16, generator=torch.Generator().manual_seed(1))
    before = read(model, (layer, "output"))[0]
    hook = model.get_submodule(module).register_forward_hook(lambda _m, _a, output: output + direction)
    after = read(model, (layer, "output"))[0]
    hook.remove()
    assert torch.allclose(after - before, direction.expand_as(before), atol=1e-4)


def test_promoted_logits_are_the_unembedding_of_the_final_norm_of_the_direction(family):
    model, described = family
    directions = torch.randn(7, 16, generator=torch.Generator().manual_seed(1))
    found = Subject(model, [], torch.device("cpu")).promoted(directions)
    norm = model.get_submodule(described.final_norm)
    if hasattr(norm, "bias"):
        centred = directions - directions.mean(-1, keepdim=True)
        normed = centred / (centred.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias
    else:
        scale = norm.weight + 1 if type(norm).__name__.startswith("Gemma") else norm.weight
        normed = directions / (directions.pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps).sqrt() * scale
    assert torch.allclose(found, normed @ model.get_output_embeddings().weight.T, rtol=1e-4, atol=1e-4)


def test_a_soft_cap_of_the_logits_keeps_the_order_of_promoted_tokens():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = FAMILIES["gemma2"].make().eval().requires_grad_(False)
    last = "model.layers.2"
    seen: list[Tensor] = []
    hook = model.get_submodule(last).register_forward_hook(lambda _m, _a, output: seen.append(output))
    with torch.inference_mode():
        capped = model(input_ids=IDS).logits
    hook.remove()
    found = Subject(model, [], torch.device("cpu")).promoted(seen[0].flatten(0, 1))
    assert torch.equal(found.argsort(dim=-1), capped.flatten(0, 1).argsort(dim=-1))
    assert torch.allclose(3.0 * torch.tanh(found / 3.0), capped.flatten(0, 1), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_promoted_logits_of_a_subject_of_half_precision_are_close_to_those_in_full(family, dtype):
    model, described = family
    directions = torch.randn(7, 16, generator=torch.Generator().manual_seed(1))
    full = Subject(model, [], torch.device("cpu")).promoted(directions)
    half = described.make().eval().requires_grad_(False)
    half.load_state_dict(model.state_dict())
    found = Subject(half.to(dtype), [], torch.device("cpu")).promoted(directions)
    assert found.dtype == torch.float32
    # bfloat16 keeps 8 bits; logits are sums of 16 products of numbers around 1
    assert torch.allclose(found, full, atol=0.15, rtol=0.05)
