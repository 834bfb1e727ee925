"""Statistics of latents against numpy on the dense matrix, and promoted tokens against a product by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from latentry.contracts import LATENTS
from latentry.corpora.token_set import TokenSet
from latentry.latents import promoted as promoted_room
from latentry.latents import statistics as statistics_room
from latentry.latents.latent_store import LatentStore, merge_segments, write_segment
from latentry.latents.promoted import promoted_tokens
from latentry.latents.statistics import statistics_rows
from latentry.rows import table_of
from latentry.saes.base import Sae
from latentry.subjects.causal_lm import Hookpoint, Subject
from planted_folders import latent_work, token_folder

pytestmark = pytest.mark.usefixtures("project")
NAMES = np.array([" the", "the", "\n", "日", "🙂", " whale", "a"], dtype=object)
WIDTH = 12
N_KEPT = 150


def planted() -> tuple[np.ndarray, np.ndarray]:
    """Tokens [context, position] and latents [position, latent]; latent 5 is dead, latent 6 fires at whales alone, latent 2 once."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(len(NAMES), size=(20, 10))
    dense = np.where(rng.random((200, WIDTH)) < 0.3, rng.random((200, WIDTH)) * 9, 0).astype(np.float32)
    dense[:, 5] = 0
    dense[:, 6] = (tokens.reshape(-1) == 5) * 2.5
    dense[:, 2] = 0
    dense[17, 2] = 3
    return tokens, dense


@pytest.fixture
def rows(tmp_path) -> list[dict]:
    tokens, dense = planted()
    making = latent_work(tmp_path / "latents")
    position, latent = np.nonzero(dense)
    write_segment(making, "segment.safetensors", position.astype(np.uint32), latent, dense[position, latent], WIDTH, "float32")
    merge_segments(making, ["segment.safetensors"])
    return described(tmp_path / "latents", token_folder(tmp_path / "tokens", tokens), None)


def described(latents: Path, tokens: Path, promoted: dict | None, n_top: int = 3) -> list[dict]:
    return list(statistics_rows(LatentStore(latents), TokenSet(tokens), N_KEPT, NAMES, promoted, n_top))


def test_counts_and_strengths_are_numpys_over_the_firings(rows):
    _, dense = planted()
    assert [row["latent"] for row in rows] == list(range(WIDTH))
    for latent, row in enumerate(rows):
        fired = dense[:, latent][dense[:, latent] != 0].astype(np.float64)
        assert row["firing_count"] == len(fired)
        assert row["firing_frequency"] == pytest.approx(len(fired) / N_KEPT)
        assert row["dead"] == (len(fired) == 0)
        if len(fired):
            found = [row[name] for name in ("peak", "mean", "median", "quantile_90", "quantile_99")]
            # Strengths are stored in float32.
            assert found == pytest.approx([fired.max(), fired.mean(), *np.quantile(fired, [0.5, 0.9, 0.99])], rel=1e-6)


def test_a_dead_latent_has_a_row_of_zeros_and_no_tokens(rows):
    assert rows[5]["dead"]
    assert (rows[5]["firing_count"], rows[5]["peak"], rows[5]["mean"]) == (0, 0, 0)
    assert rows[5]["top_tokens"] == rows[5]["top_token_fractions"] == []
    assert [row["latent"] for row in rows if row["dead"]] == [5]


def test_top_tokens_are_the_commonest_with_their_share_of_the_firings(rows):
    tokens, dense = planted()
    for latent, row in enumerate(rows):
        counts = np.bincount(tokens.reshape(-1)[dense[:, latent] != 0], minlength=len(NAMES))
        best = sorted(range(len(NAMES)), key=lambda token: (-counts[token], token))[:3]
        best = [token for token in best if counts[token]]
        assert row["top_tokens"] == [NAMES[token] for token in best]
        assert row["top_token_fractions"] == pytest.approx([counts[token] / counts.sum() for token in best])
    assert (rows[6]["top_tokens"], rows[6]["top_token_fractions"]) == ([" whale"], [1.0])


def test_the_rows_fit_their_contract(rows):
    table = table_of(rows, LATENTS.tables["statistics.parquet"])
    assert table["dead"].to_pylist()[5] is True
    assert table.num_rows == WIDTH


def test_blocks_of_latents_change_no_row(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(statistics_room, "BLOCK", 5)
    assert described(tmp_path / "latents", tmp_path / "tokens", None) == rows


def test_promoted_tokens_are_named_and_stay_in_their_order(rows, tmp_path):
    ids = {"promoted": np.tile([4, 0], (WIDTH, 1)), "suppressed": np.tile([3, 6], (WIDTH, 1))}
    ids["promoted"][7] = [1, 2]
    found = described(tmp_path / "latents", tmp_path / "tokens", ids)
    assert (found[0]["promoted_tokens"], found[0]["suppressed_tokens"]) == (["🙂", " the"], ["日", "a"])
    assert found[7]["promoted_tokens"] == ["the", "\n"]
    assert rows[0]["promoted_tokens"] == rows[0]["suppressed_tokens"] == []


def subject_at(module: str) -> tuple[Subject, LlamaForCausalLM]:
    sizes = {"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    model = LlamaForCausalLM(LlamaConfig(**sizes)).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for weight in (model.lm_head.weight, model.model.norm.weight):
        weight.copy_(torch.randn(weight.shape, generator=generator))
    return Subject(model, [Hookpoint(name="here", module=module, side="output")], torch.device("cpu")), model


def sae_of(decoder: torch.Tensor) -> Sae:
    return Sae(
        name="s",
        hookpoint="here",
        loss="topk",
        encoder=lambda x: x,
        decoder=decoder,
        decoder_bias=torch.zeros(decoder.shape[1]),
        provenance={},
    )


def test_promoted_and_suppressed_tokens_are_the_ends_of_the_product_by_hand(monkeypatch):
    subject, model = subject_at("model.layers.1")
    decoder = torch.randn(9, 8, generator=torch.Generator().manual_seed(1))
    scale = 1 / np.sqrt((decoder.numpy() ** 2).mean(axis=1, keepdims=True) + model.config.rms_norm_eps)
    logits = (decoder.numpy() * scale * model.model.norm.weight.numpy()) @ model.lm_head.weight.numpy().T
    order = np.argsort(logits, axis=1)
    for block in (512, 4):
        monkeypatch.setattr(promoted_room, "BLOCK", block)
        found = promoted_tokens(subject, sae_of(decoder), 5)
        assert np.array_equal(found["promoted"], order[:, ::-1][:, :5])
        assert np.array_equal(found["suppressed"], order[:, :5])


def test_a_sae_that_does_not_write_to_the_residual_stream_promotes_nothing():
    subject, _ = subject_at("model.layers.1.mlp")
    assert promoted_tokens(subject, sae_of(torch.eye(8)), 5) is None
