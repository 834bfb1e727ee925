"""A subject read to a hookpoint, against transformers' own outputs, on tiny random models of three families."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM

from latentry.errors import HookpointError, ParamsError
from latentry.models.random import Config, build
from latentry.subjects.causal_lm import Hookpoint, Subject, load_subject, module_names

SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
FAMILIES = {
    "llama": (lambda: LlamaForCausalLM(LlamaConfig(**SIZES)), "model.layers"),
    "gpt_neox": (lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES, max_position_embeddings=64)), "gpt_neox.layers"),
    "gpt2": (lambda: GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=3, n_head=2, n_positions=64)), "transformer.h"),
}
TOKENS = np.random.default_rng(0).integers(50, size=(3, 7))
IDS = torch.from_numpy(TOKENS)


@pytest.fixture(params=FAMILIES)
def family(request) -> tuple[nn.Module, str]:
    make, layers = FAMILIES[request.param]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make().eval().requires_grad_(False)
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3)
    return model, layers


@pytest.fixture
def llama() -> nn.Module:
    return FAMILIES["llama"][0]().eval().requires_grad_(False)


def point(module: str, side: str = "output", name: str = "here") -> Hookpoint:
    return Hookpoint(name=name, module=module, side=side)


def subject_of(model: nn.Module, *points: Hookpoint) -> Subject:
    return Subject(model, points, torch.device("cpu"))


def hooks_on(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


@torch.inference_mode()
def hooked(model: nn.Module, module: str, side: str) -> torch.Tensor:
    """What a plain hook of torch sees at a module."""
    seen = []
    inner = model.get_submodule(module)
    if side == "output":
        handle = inner.register_forward_hook(lambda _m, _a, out: seen.append(out[0] if isinstance(out, tuple) else out))
    else:
        handle = inner.register_forward_pre_hook(
            lambda _m, args, kwargs: seen.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
        )
    model(input_ids=IDS)
    handle.remove()
    return seen[0]


def test_outputs_of_layers_are_the_hidden_states_that_transformers_gives(family):
    model, layers = family
    with torch.inference_mode():
        states = model(input_ids=IDS, output_hidden_states=True).hidden_states
    found = subject_of(model, *(point(f"{layers}.{number}", name=str(number)) for number in (0, 1))).activations(TOKENS)
    for number in (0, 1):
        assert torch.equal(found[str(number)], states[number + 1])


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize("part", ["", ".mlp", ".attention"])
def test_any_module_and_side_gives_what_a_plain_hook_sees(family, side, part):
    model, layers = family
    attention = {"model.layers": ".self_attn", "gpt_neox.layers": ".attention", "transformer.h": ".attn"}[layers]
    module = f"{layers}.1{attention if part == '.attention' else part}"
    assert torch.equal(subject_of(model, point(module, side)).activations(TOKENS)["here"], hooked(model, module, side))


def test_the_input_of_a_layer_is_the_output_of_the_one_before(family):
    model, layers = family
    found = subject_of(model, point(f"{layers}.1", "input", "in"), point(f"{layers}.0", "output", "out")).activations(TOKENS)
    assert torch.equal(found["in"], found["out"])


@pytest.mark.parametrize("side", ["input", "output"])
def test_nothing_after_the_deepest_hookpoint_is_run(family, side):
    model, layers = family

    def must_not_run(*_: object) -> None:
        raise AssertionError("a layer after the deepest hookpoint was run")

    model.get_submodule(f"{layers}.2").register_forward_pre_hook(must_not_run)
    if side == "input":
        model.get_submodule(f"{layers}.1.mlp").register_forward_pre_hook(must_not_run)
    shallow, deep = point(f"{layers}.0", name="shallow"), point(f"{layers}.1", side, "deep")
    assert set(subject_of(model, deep, shallow).activations(TOKENS)) == {"shallow", "deep"}


class Broken(nn.Module):
    """Stands in for a layer's MLP and fails."""

    def forward(self, _: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("out of memory")


def test_no_hook_is_left_behind_by_a_run_or_by_an_exception(llama):
    subject = subject_of(llama, point("model.layers.2"))
    before = hooks_on(llama)
    subject.activations(TOKENS)
    subject.token_losses(TOKENS, ("here", lambda x: x))
    assert hooks_on(llama) == before
    llama.model.layers[1].mlp = Broken()
    for run in (lambda: subject.activations(TOKENS), lambda: subject.token_losses(TOKENS, ("here", lambda x: x))):
        with pytest.raises(RuntimeError, match="out of memory"):
            run()
        assert hooks_on(llama) == before


def test_the_loss_of_tokens_is_transformers_own(family):
    model, layers = family
    losses = subject_of(model, point(f"{layers}.0")).token_losses(TOKENS)
    assert losses.shape == (3, 6)
    with torch.inference_mode():
        for row in range(3):
            own = model(input_ids=IDS[row : row + 1], labels=IDS[row : row + 1]).loss
            # Batches of another size differ by rounding.
            assert losses[row].mean().item() == pytest.approx(own.item(), rel=1e-5)


@pytest.mark.parametrize("side", ["input", "output"])
def test_activations_replaced_by_themselves_change_no_loss_and_others_do(family, side):
    model, layers = family
    subject = subject_of(model, point(f"{layers}.1", side))
    clean = subject.token_losses(TOKENS)
    assert torch.equal(subject.token_losses(TOKENS, ("here", lambda x: x.clone())), clean)
    assert not torch.allclose(subject.token_losses(TOKENS, ("here", lambda x: x * 0)), clean)


def test_a_replaced_last_layer_gives_the_loss_computed_by_hand(family):
    model, layers = family
    with torch.inference_mode():
        replaced = hooked(model, f"{layers}.2", "output").roll(1, dims=-1)
        norm = model.get_submodule(
            {"model.layers": "model.norm", "gpt_neox.layers": "gpt_neox.final_layer_norm", "transformer.h": "transformer.ln_f"}[layers]
        )
        chances = model.get_output_embeddings()(norm(replaced)).softmax(-1)
    by_hand = torch.tensor([[-chances[row, place, TOKENS[row, place + 1]].log() for place in range(6)] for row in range(3)])
    found = subject_of(model, point(f"{layers}.2")).token_losses(TOKENS, ("here", lambda x: x.roll(1, dims=-1)))
    assert torch.allclose(found, by_hand, atol=1e-5)


@pytest.mark.parametrize("part", ["self_attn", "mlp"])
def test_replaced_outputs_of_parts_of_a_layer_reach_the_next_layer(llama, part):
    subject = subject_of(llama, point(f"model.layers.1.{part}"))
    before = hooked(llama, "model.layers.1", "output")
    seen = []
    handle = llama.model.layers[1].register_forward_hook(lambda _m, _a, out: seen.append(out))
    subject.token_losses(TOKENS, ("here", lambda x: torch.full_like(x, 5.0)))
    handle.remove()
    assert not torch.allclose(seen[0], before)


def test_a_wrong_hookpoint_is_answered_with_the_nearest_module_and_all_wrong_ones_are_told(llama):
    with pytest.raises(HookpointError) as caught:
        subject_of(llama, point("model.layer.1", name="a"), point("model.layers.1"), point("model.layers.3", name="b"))
    said = str(caught.value)
    assert "subject.hookpoints.a.module: 'model.layer.1' is no module of the subject; did you mean 'model.layers.1'?" in said
    assert "subject.hookpoints.b.module: 'model.layers.3'" in said
    assert caught.value.exit_code == 2


def test_a_module_whose_output_is_no_tensor_is_told(llama):
    subject = subject_of(llama, point("model"))
    with pytest.raises(
        HookpointError, match=r"subject\.hookpoints\.here: the output of 'model' is BaseModelOutputWithPast, wanted a tensor"
    ):
        subject.activations(TOKENS)
    assert hooks_on(llama) == 0


class Nested(nn.Module):
    """Stands in for an MLP whose output is a tuple in a tuple, or a matrix."""

    def __init__(self, wrap) -> None:
        super().__init__()
        self._wrap = wrap

    def forward(self, x: torch.Tensor):
        return self._wrap(x)


@pytest.mark.parametrize(
    ("wrap", "kind"),
    [
        (lambda x: ((x, x), x), r"a tuple of \(tuple, Tensor\)"),
        (lambda x: (None, x), r"a tuple of \(NoneType, Tensor\)"),
        (lambda _x: (), r"a tuple of \(\)"),
        (lambda x: [x], "list"),
        (lambda x: {"hidden_states": x}, "dict"),
        (lambda x: x[0], r"a tensor of 2 axes \(float32\)"),
        (lambda x: x.long(), r"a tensor of 3 axes \(int64\)"),
        (lambda _x: None, "NoneType"),
    ],
)
def test_nested_outputs_and_other_axes_are_told_by_what_they_are(llama, wrap, kind):
    llama.model.layers[1].mlp = Nested(wrap)
    with pytest.raises(HookpointError, match=f"the output of 'model.layers.1.mlp' is {kind}"):
        subject_of(llama, point("model.layers.1.mlp")).activations(TOKENS)


def test_a_module_without_one_vector_per_token_is_told_by_its_shape(llama):
    subject = subject_of(llama, point("model.rotary_emb"))
    for run in (subject.activations, lambda tokens: subject.token_losses(tokens, ("here", lambda x: x))):
        with pytest.raises(HookpointError, match=r"is a tensor of shape \[1, 7, 8\], wanted \[3, 7, d_in\]"):
            run(TOKENS)


def test_a_module_that_text_does_not_reach_is_told(llama):
    llama.model.spare = nn.Linear(2, 2)
    with pytest.raises(HookpointError, match=r"\['here'\] were not reached"):
        subject_of(llama, point("model.spare")).activations(TOKENS)


def test_layers_and_what_adds_to_them_write_to_the_residual_stream_and_nothing_else_does(family):
    model, layers = family
    subject = subject_of(
        model,
        point(f"{layers}.1"),
        point(f"{layers}.1.mlp", name="mlp"),
        point(f"{layers}.1.mlp", "input", "normed"),
        point(layers, name="all"),
    )
    assert subject.is_residual("here")
    assert subject.is_residual("mlp")
    assert not subject.is_residual("normed")
    assert not subject.is_residual("all")


def test_nothing_is_said_to_reach_the_logits_through_a_final_norm_of_an_unknown_name(llama):
    llama.model.last_scaling = llama.model.norm
    del llama.model.norm
    assert not subject_of(llama, point("model.layers.1")).is_residual("here")


@pytest.mark.parametrize("context", [63, 64])
def test_rows_as_long_as_a_subject_has_positions_pass(family, context):
    subject_of(family[0]).check_context(context)


def test_longer_rows_are_refused_where_positions_were_learned_and_only_logged_where_they_are_rotary(family, caplog):
    model, layers = family
    limit = model.config.max_position_embeddings
    if layers == "transformer.h":
        with pytest.raises(ParamsError, match=r"tokens\.context: is 65, the subject was trained for 64 positions .*; set it to at most 64"):
            subject_of(model).check_context(limit + 1)
    else:
        subject_of(model).check_context(limit + 1)
        assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_promoted_logits_are_the_unembedding_of_the_normed_direction(family):
    model, layers = family
    directions = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    found = subject_of(model, point(f"{layers}.0")).promoted(directions)
    unembedding = model.get_output_embeddings().weight
    if layers == "model.layers":
        normed = directions / (directions.pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps).sqrt() * model.model.norm.weight
    else:
        norm = model.gpt_neox.final_layer_norm if layers == "gpt_neox.layers" else model.transformer.ln_f
        centred = directions - directions.mean(-1, keepdim=True)
        normed = centred / (centred.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias
    assert torch.allclose(found, normed @ unembedding.T, atol=1e-5)


def test_a_folder_loads_frozen_in_the_wanted_type_and_knows_its_modules(tmp_path):
    build(Config(kind="random", purpose="language_model", d_model=16, n_layers=2)).fetch(tmp_path, tmp_path)
    assert {"model.layers.1", "model.layers.1.mlp"} <= set(module_names(tmp_path))
    subject = load_subject(tmp_path, [point("model.layers.1")], dtype="bfloat16", device=torch.device("cpu"))
    found = subject.activations(TOKENS)["here"]
    assert (found.shape, found.dtype, found.requires_grad) == ((3, 7, 16), torch.bfloat16, False)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(HookpointError, match=r"did you mean 'model\.layers\.1'"):
        load_subject(tmp_path, [point("model.layers.9")], dtype="bfloat16", device=torch.device("cpu"))
