"""Steering against whole passes made by hand: one prompt at a time, no keys and values kept, a plain hook."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import rel_entr
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM

from latentry.subjects.causal_lm import Subject
from latentry.subjects.hooks import Hookpoint
from latentry.subjects.steering import SteeredPrompts, added, mean_kl, strength_for

SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
FAMILIES = {
    "llama": (lambda: LlamaForCausalLM(LlamaConfig(**SIZES)), "model.layers.1"),
    "gpt_neox": (lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES, max_position_embeddings=64)), "gpt_neox.layers.1"),
    "gpt2": (lambda: GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=3, n_head=2, n_positions=64)), "transformer.h.1"),
}
PROMPTS = [np.random.default_rng(length).integers(1, 50, size=length).tolist() for length in (5, 1, 12, 3, 7, 2, 9, 9, 4, 11)]
DIRECTION = torch.from_numpy(np.random.default_rng(0).normal(size=16)).float()


@pytest.fixture(params=FAMILIES)
def family(request) -> tuple[Subject, str]:
    make, module = FAMILIES[request.param]
    return subject_of(make(), module), module


def subject_of(model, module: str, side: str = "output") -> Subject:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for weight in model.parameters():
            weight.requires_grad_(False).copy_(torch.randn_like(weight) * 0.3)
    return Subject(model.eval(), [Hookpoint(name="here", module=module, side=side)], torch.device("cpu"))


@pytest.fixture
def llama() -> Subject:
    return subject_of(LlamaForCausalLM(LlamaConfig(**SIZES)), "model.layers.1")


def noise_of(step: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(step).gumbel(size=(len(PROMPTS), 50))).float()


@torch.inference_mode()
def by_hand(subject: Subject, module: str, tokens: list[int], first: int, strength: float) -> torch.Tensor:
    """Log-probabilities after one row, with the direction added at every place from `first` on."""

    def add(_module, _inputs, output):
        hidden = output[0] if isinstance(output, tuple) else output
        steered = torch.cat([hidden[:, :first], hidden[:, first:] + strength * DIRECTION], dim=1)
        return (steered, *output[1:]) if isinstance(output, tuple) else steered

    handle = subject.model.get_submodule(module).register_forward_hook(add)
    logits = subject.model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
    handle.remove()
    return logits.float().log_softmax(-1)


def hooks_on(subject: Subject) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in subject.model.modules())


@pytest.mark.parametrize("strength", [0.0, 3.0])
def test_a_batch_of_prompts_of_any_length_gives_what_each_gives_alone(family, strength):
    subject, module = family
    run = SteeredPrompts(subject, "here", PROMPTS)
    found = run.next_logprobs(added(DIRECTION, strength))
    alone = torch.stack([by_hand(subject, module, prompt, len(prompt) - 1, strength) for prompt in PROMPTS])
    assert torch.allclose(found, alone, atol=1e-4)  # float32: padding and kept keys change the order of sums
    assert hooks_on(subject) == 0


def test_continuations_are_steered_at_the_last_prompt_token_and_at_all_after(family):
    subject, module = family
    found = SteeredPrompts(subject, "here", PROMPTS).continuations(added(DIRECTION, 2.0), noise_of, 4).tolist()
    for number, prompt in enumerate(PROMPTS):
        tokens = list(prompt)
        for step in range(4):
            logprobs = by_hand(subject, module, tokens, len(prompt) - 1, 2.0)
            tokens.append(int((logprobs + noise_of(step)[number]).argmax()))
        assert found[number] == tokens[len(prompt) :]


def test_one_run_serves_many_changes_and_none_leaves_a_trace(llama):
    run = SteeredPrompts(llama, "here", PROMPTS)
    clean = run.next_logprobs(None)
    run.continuations(added(DIRECTION, 50.0), noise_of, 3)
    assert torch.equal(run.next_logprobs(None), clean)
    assert not torch.allclose(run.next_logprobs(added(DIRECTION, 50.0)), clean)


def test_of_no_strength_the_steered_continuations_are_the_clean_ones(llama):
    run = SteeredPrompts(llama, "here", PROMPTS)
    clean = run.continuations(None, noise_of, 6)
    assert torch.equal(run.continuations(added(DIRECTION, 0.0), noise_of, 6), clean)
    assert not torch.equal(run.continuations(added(DIRECTION, 50.0), noise_of, 6), clean)


def test_continuations_are_drawn_as_often_as_the_model_says(llama):
    n = 1000
    run = SteeredPrompts(llama, "here", [PROMPTS[0]] * n)
    drawn = run.continuations(None, lambda _step: torch.from_numpy(np.random.default_rng(0).gumbel(size=(n, 50))).float(), 1)
    expected = run.next_logprobs(None)[0].exp()
    shares = torch.bincount(drawn.flatten(), minlength=50) / n
    # four standard errors of the commonest share
    assert torch.allclose(shares, expected, atol=4 * math.sqrt(0.25 / n))


def test_the_input_of_a_module_is_steered_too():
    sides = [
        subject_of(LlamaForCausalLM(LlamaConfig(**SIZES)), module, side)
        for module, side in (("model.layers.2", "input"), ("model.layers.1", "output"))
    ]
    before, after = (SteeredPrompts(subject, "here", PROMPTS).next_logprobs(added(DIRECTION, 3.0)) for subject in sides)
    assert torch.allclose(before, after, atol=1e-5)


def test_an_exception_leaves_no_hook(llama):
    run = SteeredPrompts(llama, "here", PROMPTS)

    def fails(_x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        run.next_logprobs(fails)
    assert hooks_on(llama) == 0


def test_the_kl_is_that_of_scipy(llama):
    run = SteeredPrompts(llama, "here", PROMPTS)
    clean, steered = run.next_logprobs(None), run.next_logprobs(added(DIRECTION, 5.0))
    by_scipy = rel_entr(clean.double().exp().numpy(), steered.double().exp().numpy()).sum(axis=-1).mean()
    assert mean_kl(clean, steered) == pytest.approx(by_scipy, rel=1e-4)
    assert mean_kl(clean, clean) == 0


@pytest.mark.parametrize("target", [0.1, 0.33, 1.0])
def test_the_search_reaches_the_kl_asked_for(llama, target):
    llama.model.lm_head.weight.mul_(8)  # a model that is sure of something, which can be changed by a nat
    run = SteeredPrompts(llama, "here", PROMPTS)
    clean = run.next_logprobs(None)

    def kl_at(strength: float) -> float:
        return mean_kl(clean, run.next_logprobs(added(DIRECTION, strength)))

    found = strength_for(kl_at, target)
    assert found.reached and abs(found.kl - target) <= 0.1 * target
    assert kl_at(found.strength) == pytest.approx(found.kl)


@pytest.mark.parametrize(
    ("kl_at", "kl"),
    [(lambda _s: 0.0, 0.0), (lambda s: min(s, 0.5), 0.5), (lambda s: 0.2 if s < 7 else 30.0, 0.2)],
    ids=["nothing", "too little", "a jump"],
)
def test_a_kl_that_no_strength_gives_is_not_reached_and_the_nearest_is_told(kl_at: Callable[[float], float], kl: float):
    tried = []
    found = strength_for(lambda strength: tried.append(strength) or kl_at(strength), 1.0)
    assert not found.reached and found.kl == pytest.approx(kl, abs=0.01)
    assert len(tried) == 10 and min(tried) > 10**-3 and max(tried) < 10**4


def test_the_search_ends_where_a_known_curve_says_and_overflow_counts_as_too_much():
    assert strength_for(lambda s: (s / 20) ** 2, 1.0).strength == pytest.approx(20, rel=0.1)
    assert strength_for(lambda s: s / 20 if s < 100 else math.nan, 1.0).strength == pytest.approx(20, rel=0.1)
