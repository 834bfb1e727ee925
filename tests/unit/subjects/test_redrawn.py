"""The subject with its matrices redrawn: what changes, what stays, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from latentry.errors import HookpointError, UnsupportedError
from latentry.subjects.causal_lm import by_subject, load_subject
from latentry.subjects.hooks import Hookpoint, Redrawn
from latentry.subjects.redrawn import redraw

SIZES = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
FAMILIES = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "tied": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=2, n_positions=16)),
}
TOKENS = np.random.default_rng(0).integers(60, size=(2, 7))
CPU = torch.device("cpu")


def drawn(make) -> nn.Module:
    """A model whose every number is unlike its neighbours', with means and deviations of its own in each array."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make()
        for number, weight in enumerate(model.parameters()):
            weight.data = torch.rand_like(weight) * (0.1 + 0.05 * number) + 0.01 * number
    return model


@pytest.fixture(params=FAMILIES)
def make(request):
    return FAMILIES[request.param]


def embeddings_of(model: nn.Module) -> set[str]:
    marks = ("embed_tokens", "lm_head", "wte", "wpe")
    return {name for name, _ in model.named_parameters() if name.split(".")[-2] in marks}


def test_each_matrix_is_noise_of_its_own_mean_and_deviation_and_vectors_and_embeddings_stay(make):
    before, model = drawn(make), drawn(make)
    redraw(model, Redrawn(seed=0, all=False))
    kept = embeddings_of(model)
    assert kept
    for (name, old), new in zip(before.named_parameters(), model.parameters(), strict=True):
        if old.dim() < 2 or name in kept:
            assert torch.equal(old, new), name
            continue
        n = old.numel()
        assert new.mean().item() == pytest.approx(old.mean().item(), abs=5 * old.std().item() / n**0.5)
        assert new.std().item() == pytest.approx(old.std().item(), rel=5 / (2 * n) ** 0.5)
        # noise: nothing of the old matrix is in it, and unlike the old one it has a Gaussian's tails
        assert abs(np.corrcoef(old.flatten().detach(), new.flatten().detach())[0, 1]) < 5 / n**0.5
        standard = (new - new.mean()) / new.std()
        assert (standard.abs() < 1).float().mean().item() == pytest.approx(0.683, abs=5 * (0.683 * 0.317 / n) ** 0.5)


def test_all_redraws_the_embeddings_too_and_what_is_tied_stays_tied(make):
    before, model = drawn(make), drawn(make)
    redraw(model, Redrawn(seed=0, all=True))
    changed = {name for (name, old), new in zip(before.named_parameters(), model.parameters(), strict=True) if not torch.equal(old, new)}
    assert changed == {name for name, weight in before.named_parameters() if weight.dim() >= 2}
    is_tied = before.get_input_embeddings().weight is before.get_output_embeddings().weight
    assert (model.get_input_embeddings().weight is model.get_output_embeddings().weight) == is_tied


def test_a_matrix_has_its_own_noise_by_seed_and_name_whatever_the_others_are(make):
    one, same, other = drawn(make), drawn(make), drawn(make)
    some = next(name for name, weight in same.named_parameters() if weight.dim() >= 2 and name not in embeddings_of(same))
    redraw(one, Redrawn(seed=3, all=False))
    redraw(same, Redrawn(seed=3, all=True))
    redraw(other, Redrawn(seed=4, all=False))
    assert torch.equal(one.get_parameter(some), same.get_parameter(some))
    assert not torch.equal(one.get_parameter(some), other.get_parameter(some))
    matrices = [weight for name, weight in one.named_parameters() if weight.dim() >= 2 and name not in embeddings_of(one)]
    standard = [((weight - weight.mean()) / weight.std()).flatten()[:512] for weight in matrices]
    assert not any(torch.allclose(a, b, atol=0.5) for number, a in enumerate(standard) for b in standard[:number])


def test_experts_of_one_layer_are_matrices_of_their_own():
    config = MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=2, num_experts_per_tok=1)
    model = drawn(lambda: MixtralForCausalLM(config))
    stacked = {name: weight for name, weight in model.named_parameters() if weight.dim() == 3}
    assert stacked
    for weight in stacked.values():
        weight.data[1] *= 100
    before = {name: weight.detach().clone() for name, weight in stacked.items()}
    redraw(model, Redrawn(seed=0, all=False))
    for name, weight in stacked.items():
        for new, old in zip(weight, before[name], strict=True):
            assert new.std().item() == pytest.approx(old.std().item(), rel=5 / (2 * old.numel()) ** 0.5)


@pytest.fixture(params=["llama", "tied"])
def folder(request, tmp_path) -> Path:
    drawn(FAMILIES[request.param]).save_pretrained(tmp_path)
    return tmp_path


def at(layer: int, random: Redrawn | None = None) -> Hookpoint:
    return Hookpoint(name=f"resid-{layer}{'-random' if random else ''}", module=f"model.layers.{layer}", side="output", random=random)


def test_a_subject_loads_redrawn_where_its_hookpoint_says_so_and_runs_like_the_model_redrawn_by_hand(folder):
    random = Redrawn(seed=1, all=False)
    by_hand = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    redraw(by_hand, random)
    subject = load_subject(folder, [at(1, random)], dtype="float32", device=CPU)
    with torch.inference_mode():
        wanted = by_hand(input_ids=torch.from_numpy(TOKENS), output_hidden_states=True).hidden_states[-1]
        found = by_hand.model.norm(subject.activations(TOKENS)["resid-1-random"])
    assert torch.equal(found, wanted)
    directions = torch.eye(32)[:4]
    assert torch.equal(subject.promoted(directions), by_hand.lm_head(by_hand.model.norm(directions)).detach())
    clean = load_subject(folder, [at(1)], dtype="float32", device=CPU)
    assert not torch.allclose(subject.token_losses(TOKENS), clean.token_losses(TOKENS))


def test_hookpoints_of_several_subjects_are_told_apart_and_never_read_in_one(folder):
    points = [at(0), at(0, Redrawn(seed=0, all=False)), at(1), at(1, Redrawn(seed=1, all=False)), at(1, Redrawn(seed=0, all=False))]
    assert [[point.name for point in group] for group in by_subject(points)] == [
        ["resid-0", "resid-1"],
        ["resid-0-random", "resid-1-random"],
        ["resid-1-random"],
    ]
    with pytest.raises(HookpointError, match=r"\['resid-0'\] and \['resid-1-random'\] are read in subjects of other weights"):
        load_subject(folder, [points[0], points[4]], dtype="float32", device=CPU)


def test_a_quantised_subject_is_not_redrawn_and_says_what_to_do(folder):
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedError, match=r"subject\.hookpoints\.resid-1-random\.random: .* quantised by 'gptq'.*`subject\.model`"):
        load_subject(folder, [at(1, Redrawn(seed=0, all=False))], dtype="float32", device=CPU)
