"""MLPs read off tiny random models of each shape, against what the models' own modules make; what is none is named."""

import pytest
import torch
from torch import nn
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from latentry.errors import HookpointError, UnsupportedError
from latentry.mlp_jacobian import jacobian
from latentry.subjects.mlp import mlp_of

SIZE = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 32}
GROUPED = SIZE | {"num_key_value_heads": 2}
MOE = GROUPED | {"moe_intermediate_size": 8, "num_experts": 4, "num_experts_per_tok": 2, "decoder_sparse_step": 1}
MODELS = {
    "llama": lambda: (LlamaForCausalLM(LlamaConfig(**GROUPED)), "model.layers.0.mlp"),
    "llama with biases": lambda: (LlamaForCausalLM(LlamaConfig(**GROUPED, mlp_bias=True)), "model.layers.0.mlp"),
    "qwen": lambda: (Qwen2ForCausalLM(Qwen2Config(**GROUPED)), "model.layers.0.mlp"),
    "gemma": lambda: (Gemma2ForCausalLM(Gemma2Config(**GROUPED, head_dim=8)), "model.layers.0.mlp"),
    "gpt-neox": lambda: (GPTNeoXForCausalLM(GPTNeoXConfig(**SIZE)), "gpt_neox.layers.0.mlp"),
    "gpt2": lambda: (GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=32)), "transformer.h.0.mlp"),
    "phi": lambda: (PhiForCausalLM(PhiConfig(**SIZE)), "model.layers.0.mlp"),
    "phi3": lambda: (Phi3ForCausalLM(Phi3Config(**SIZE, pad_token_id=0)), "model.layers.0.mlp"),
}


def built(name):
    torch.manual_seed(0)
    model, module = MODELS[name]()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)  # biases begin at 0, where a lost one would not be seen
    return model.eval(), module


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_the_mlp_makes_of_any_row_what_its_module_makes(name):
    model, module = built(name)
    x = torch.randn(9, 16)
    mlp = mlp_of(model, module)
    torch.testing.assert_close(mlp(x), model.get_submodule(module)(x.unsqueeze(0))[0], rtol=1e-4, atol=1e-4)
    assert (mlp.gate is None) == (name in ("gpt-neox", "gpt2", "phi"))


@pytest.mark.parametrize("name", MODELS)
def test_the_jacobian_is_what_the_models_own_module_does_to_the_active_latents(name):
    """By autograd through the module, and by finite differences of it, with the active latents held."""
    model, module = built(name)
    mlp, own = mlp_of(model, module).to(dtype=torch.float64), model.get_submodule(module).double()
    x, decoder, encoder = (torch.randn(n, 16, dtype=torch.float64) for n in (3, 12, 10))
    inputs, outputs = (torch.stack([torch.randperm(n)[:4] for _ in range(3)]) for n in (12, 10))
    found = jacobian(mlp, x, inputs, outputs, decoder, encoder)
    for token in range(3):

        def encoded(strengths, token=token):
            return own((x[token] + strengths @ decoder[inputs[token]])[None, None])[0, 0] @ encoder[outputs[token]].T

        by_autograd = torch.autograd.functional.jacobian(encoded, torch.zeros(4, dtype=torch.float64))
        nudges = 1e-5 * torch.eye(4, dtype=torch.float64)
        by_differences = torch.stack([(encoded(nudge) - encoded(-nudge)) / 2e-5 for nudge in nudges], dim=-1)
        torch.testing.assert_close(found[token], by_autograd, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(found[token], by_differences.detach(), rtol=1e-5, atol=1e-5)


def test_weights_in_bfloat16_are_read_too():
    model, module = built("llama")
    mlp = mlp_of(model.bfloat16(), module)
    assert mlp.up.dtype == torch.float32
    assert torch.equal(mlp.up, model.get_submodule(module).up_proj.weight.float())


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (
            "model.layers.0.self_attn",
            r"is a LlamaAttention of q_proj \(Linear\), .*not understood as an MLP; wanted .*gate_proj/up_proj/down_proj",
        ),
        ("model.layers.0", r"is a LlamaDecoderLayer of self_attn \(LlamaAttention\), mlp \(LlamaMLP\)"),
        ("model.layers.0.mlp.up_proj", r"is a Linear of no modules"),
    ],
)
def test_a_module_that_is_no_mlp_is_named_with_its_class_and_parts(module, told):
    model, _ = built("llama")
    with pytest.raises(UnsupportedError, match=told):
        mlp_of(model, module)


def test_a_name_that_is_no_module_gets_the_nearest():
    model, _ = built("llama")
    with pytest.raises(HookpointError, match=r"'model\.layers\.0\.mpl' is no module of the subject; did you mean 'model\.layers\.0\.mlp'"):
        mlp_of(model, "model.layers.0.mpl")


def test_a_mixture_of_experts_is_none():
    with pytest.raises(UnsupportedError, match=r"is a Qwen3MoeSparseMoeBlock of experts .*not understood as an MLP"):
        mlp_of(Qwen3MoeForCausalLM(Qwen3MoeConfig(**MOE)).eval(), "model.layers.0.mlp")


def test_an_mlp_that_takes_more_than_its_input_is_refused():
    model = BloomForCausalLM(BloomConfig(hidden_size=16, n_layer=1, n_head=2, vocab_size=32)).eval()
    with pytest.raises(UnsupportedError, match=r"is a BloomMLP of dense_h_to_4h .*does not run on its input alone .*residual"):
        mlp_of(model, "transformer.h.0.mlp")


class Halved(nn.Module):
    """It has the names of an MLP, and does something else besides."""

    def __init__(self, activation=None, down=None):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 4) if down is None else down
        self.act = activation or nn.ReLU()

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x))) / 2


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (Halved(), r"its output is not what its projections and activation make"),
        (Halved(activation=nn.Softmax(dim=-1)), r"its activation function Softmax does not work number by number"),
        (Halved(down=nn.Identity()), r"fc2 is a Identity without a matrix of floats"),
    ],
    ids=["scaled", "softmax", "quantised"],
)
def test_names_alone_do_not_make_an_mlp(module, told):
    with pytest.raises(UnsupportedError, match=rf"mlp is a Halved of .*{told}"):
        mlp_of(nn.ModuleDict({"mlp": module}), "mlp")
