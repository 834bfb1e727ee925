"""Random models load as real ones do, without a network, and follow their seed alone."""

import hashlib
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForCausalLM, AutoTokenizer

from latentry.models.random import Config, build


@pytest.fixture(scope="module")
def language_model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return build(Config(kind="random", purpose="language_model", d_model=16, n_layers=2)).fetch(folder, folder)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_a_language_model_loads_and_runs_on_its_own_tokens(language_model):
    model = AutoModelForCausalLM.from_pretrained(language_model, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(language_model, local_files_only=True)
    ids = tokenizer("日本 🙂\n  two", return_tensors="pt")["input_ids"]
    assert tokenizer.decode(ids[0]) == "日本 🙂\n  two"
    with torch.no_grad():
        logits = model(ids).logits
    assert logits.shape == (1, ids.shape[1], len(tokenizer))
    assert len(model.model.layers) == 2
    assert torch.isfinite(logits).all()


def test_its_chat_template_holds_each_turn_between_its_own_tokens(language_model):
    tokenizer = AutoTokenizer.from_pretrained(language_model, local_files_only=True)
    said = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True)
    assert said == "<|start|>user\nhi<|end|>\n<|start|>assistant\n"


def test_the_same_seed_gives_the_same_weights_whatever_was_drawn_before(tmp_path, language_model):
    torch.rand(3)
    state = torch.get_rng_state()
    same, other = tmp_path / "same", tmp_path / "other"
    for folder, seed in ((same, 0), (other, 1)):
        folder.mkdir()
        build(Config(kind="random", purpose="language_model", d_model=16, n_layers=2, seed=seed)).fetch(folder, folder)
    assert digest(same) == digest(language_model) != digest(other)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("d_model", [4, 10, 12])
def test_a_width_that_no_model_of_four_heads_can_have_is_refused_in_params(d_model):
    with pytest.raises(ValidationError, match="d_model"):
        Config(kind="random", purpose="language_model", d_model=d_model)
