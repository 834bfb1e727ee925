"""Statistics of latents against numpy on the dense matrix, the SAE's figures by hand, and promoted tokens against a product by hand."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from latentry.activations.positions import Counted
from latentry.contracts import LATENTS
from latentry.latents import promoted as promoted_room
from latentry.latents import statistics as statistics_room
from latentry.latents.latent_store import LatentStore, merge_segments, write_segment
from latentry.latents.promoted import drop_parts, promoted_tokens
from latentry.latents.quality import density_histogram, quality
from latentry.latents.statistics import statistics, write_statistics
from latentry.saes.base import Sae
from latentry.store import Work
from latentry.subjects.causal_lm import Hookpoint, Subject
from planted_folders import latent_work

pytestmark = pytest.mark.usefixtures("project")
NAMES = np.array([" the", "the", "\n", "日", "🙂", " whale", "a"], dtype=object)
WIDTH = 12
N_KEPT = 150
LEFT_OUT = {"n_special": 4, "n_attention_sinks": 3, "n_dropped_contexts": 2}
POSITIONS = Counted(kept=np.arange(200).reshape(20, 10) < N_KEPT, **LEFT_OUT)
TWENTY = Counted(kept=np.ones((2, 10), dtype=bool), **LEFT_OUT)


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


def stored(dense: np.ndarray, making: Work, dtype: str) -> LatentStore:
    position, latent = np.nonzero(dense)
    write_segment(making, "segment.safetensors", position.astype(np.uint32), latent, dense[position, latent], dense.shape[1], dtype)
    merge_segments(making, ["segment.safetensors"])
    return LatentStore(making.folder)


def written(store: LatentStore, tokens: np.ndarray, promoted: dict | None = None, n_top: int = 3) -> Path:
    making = latent_work(Path("rows").absolute())
    write_statistics(making, statistics(store, tokens.astype(np.uint32), N_KEPT, NAMES, promoted, n_top))
    return making.path("statistics.parquet")


def described(store: LatentStore, tokens: np.ndarray, promoted: dict | None = None) -> pa.Table:
    return pq.read_table(written(store, tokens, promoted))


@pytest.fixture
def store(tmp_path: Path) -> LatentStore:
    return stored(planted()[1], latent_work(tmp_path / "latents"), "float32")


@pytest.fixture
def rows(store: LatentStore) -> list[dict]:
    return described(store, planted()[0]).to_pylist()


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


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("sign", [1, -1])
def test_strengths_are_numpys_to_the_last_bit_whatever_the_counts_and_signs(tmp_path, dtype, sign):
    rng = np.random.default_rng(3)
    dense = np.where(rng.random((300, 120)) < rng.random(120) ** 3, rng.lognormal(0, 2, (300, 120)) * sign, 0).astype(np.float32)
    dense[:, 0] = np.sign(rng.standard_normal(300)) * dense[:, 1:2].max()
    dense[:, 4], dense[:1, 4], dense[:, 5], dense[:2, 5] = 0, 7, 0, (3, -8)
    store = stored(dense, latent_work(tmp_path / "out"), dtype)
    rows = described(store, np.zeros((30, 10))).to_pylist()
    for latent, row in enumerate(rows):
        fired = store.read(latent)[1]
        if len(fired):
            wanted = [fired.max(), *np.quantile(fired, [0.5, 0.9, 0.99])]
            assert [row[name] for name in ("peak", "median", "quantile_90", "quantile_99")] == [np.float32(value) for value in wanted]
            # Sums in float64, of which only the order of adding differs.
            assert row["mean"] == pytest.approx(fired.mean(dtype=np.float64), rel=1e-7, abs=1e-12)


def test_the_rows_fit_their_contract(store):
    table = described(store, planted()[0])
    assert table.schema.equals(LATENTS.tables["statistics.parquet"])
    assert table["dead"].to_pylist()[5] is True
    assert table.num_rows == WIDTH


@pytest.mark.parametrize(("constant", "most"), [("BLOCK_ACTIVATIONS", 1), ("BLOCK_ACTIVATIONS", 77), ("BLOCK_LATENTS", 5)])
def test_blocks_of_latents_change_no_row(store, rows, monkeypatch, constant, most):
    monkeypatch.setattr(statistics_room, constant, most)
    assert described(store, planted()[0]).to_pylist() == rows


def test_a_sae_whose_latents_are_all_dead_has_a_row_for_each(tmp_path):
    rows = described(stored(np.zeros((20, 3), dtype=np.float32), latent_work(tmp_path / "out"), "float16"), np.zeros((2, 10))).to_pylist()
    assert [row["dead"] for row in rows] == [True] * 3
    assert [row["top_tokens"] for row in rows] == [[]] * 3


def test_promoted_tokens_are_named_and_stay_in_their_order(store, rows):
    ids = {"promoted": np.tile([4, 0], (WIDTH, 1)), "suppressed": np.tile([3, 6], (WIDTH, 1))}
    ids["promoted"][7] = [1, 2]
    found = described(store, planted()[0], ids).to_pylist()
    assert (found[0]["promoted_tokens"], found[0]["suppressed_tokens"]) == (["🙂", " the"], ["日", "a"])
    assert found[7]["promoted_tokens"] == ["the", "\n"]
    assert rows[0]["promoted_tokens"] == rows[0]["suppressed_tokens"] == []


def test_quality_is_what_the_dense_matrix_says(store):
    tokens, dense = planted()
    found = quality(written(store, tokens), POSITIONS)
    shares = [np.bincount(tokens.reshape(-1)[column != 0]).max() / np.count_nonzero(column) for column in dense.T if column.any()]
    assert found.pop("density_histogram")["n_dead"] == 1
    assert found == LEFT_OUT | {
        "n_tokens": N_KEPT,
        "l0": pytest.approx(np.count_nonzero(dense) / N_KEPT),
        "dead_fraction": pytest.approx(1 / WIDTH),
        "single_token_fraction": pytest.approx(np.mean(np.array(shares) >= 0.9)),
    }
    # Latent 6 fires at whales alone, latent 2 once.
    assert found["single_token_fraction"] == pytest.approx(2 / 11)


def test_nine_firings_of_ten_at_one_token_make_a_single_token_latent_and_eight_do_not(tmp_path):
    tokens, dense = np.zeros((2, 10), dtype=np.int64), np.zeros((20, 2), dtype=np.float32)
    tokens[0, 8:] = 1
    dense[:9, 0] = dense[10, 0] = 1  # nine at token 0, one at token 1
    dense[:8, 1] = dense[8:10, 1] = 1
    assert quality(written(stored(dense, latent_work(tmp_path / "out"), "float32"), tokens), TWENTY)["single_token_fraction"] == 0.5


def test_where_every_latent_is_dead_the_share_of_single_token_latents_is_not_defined(tmp_path):
    store = stored(np.zeros((20, 3), dtype=np.float32), latent_work(tmp_path / "out"), "float16")
    found = quality(written(store, np.zeros((2, 10))), TWENTY)
    assert (found["single_token_fraction"], found["dead_fraction"], found["l0"]) == (None, 1, 0)


@pytest.mark.parametrize("n_tokens", [10, 10**6, 4 * 10**6, 10**7, 10**9, 3 * 10**9])
def test_every_latent_is_in_the_density_histogram_however_rarely_it_fires(n_tokens):
    counts = np.array([0, 0, 1, 2, n_tokens // 5, n_tokens])
    found = density_histogram(counts, n_tokens)
    assert found["n_dead"] == 2
    bins = [0] * (len(found["log10_edges"]) - 1)
    for count in counts[2:]:
        bins[min(math.floor(math.log10(count / n_tokens)) - found["log10_edges"][0], len(bins) - 1)] += 1
    assert found["n_latents"] == bins
    assert sum(bins) == 4
    assert (min(-6, -math.ceil(math.log10(n_tokens))), 0) == (found["log10_edges"][0], found["log10_edges"][-1])


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
        writes="here",
        loss="topk",
        d_in=decoder.shape[1],
        encode_block=lambda x, block: x[:, block],
        decoder=decoder,
        decoder_bias=torch.zeros(decoder.shape[1]),
        provenance={},
    )


def test_promoted_and_suppressed_tokens_are_the_ends_of_the_product_by_hand(tmp_path, monkeypatch):
    subject, model = subject_at("model.layers.1")
    decoder = torch.randn(9, 8, generator=torch.Generator().manual_seed(1))
    scale = 1 / np.sqrt((decoder.numpy() ** 2).mean(axis=1, keepdims=True) + model.config.rms_norm_eps)
    logits = (decoder.numpy() * scale * model.model.norm.weight.numpy()) @ model.lm_head.weight.numpy().T
    order = np.argsort(logits, axis=1)
    monkeypatch.setattr(promoted_room, "PART_BLOCKS", 2)
    for block in (1, 4, 512):
        monkeypatch.setattr(promoted_room, "BLOCK_LOGITS", block * subject.vocabulary)
        found = promoted_tokens(latent_work(tmp_path / f"{block}"), subject, sae_of(decoder), 5)
        assert np.array_equal(found["promoted"], order[:, ::-1][:, :5])
        assert np.array_equal(found["suppressed"], order[:, :5])


def test_more_promoted_tokens_than_there_are_is_all_of_them(tmp_path):
    subject, _ = subject_at("model.layers.1")
    found = promoted_tokens(latent_work(tmp_path / "out"), subject, sae_of(torch.eye(8)), 1000)
    assert found["promoted"].shape == (8, subject.vocabulary)


def test_promoted_tokens_go_on_after_a_kill_and_leave_no_part_behind(tmp_path, monkeypatch):
    subject, _ = subject_at("model.layers.1")
    monkeypatch.setattr(promoted_room, "BLOCK_LOGITS", subject.vocabulary)
    monkeypatch.setattr(promoted_room, "PART_BLOCKS", 3)
    making, sae = latent_work(tmp_path / "out"), sae_of(torch.randn(8, 8, generator=torch.Generator().manual_seed(1)))
    whole = promoted_tokens(making, subject, sae, 5)
    assert len(list(making.folder.iterdir())) == 3
    marked = {end: -ids[:3] for end, ids in whole.items()}
    making.write_arrays("promoted-00000.safetensors", marked)
    making.path("promoted-00001.safetensors").unlink()
    again = promoted_tokens(making, subject, sae, 5)
    for end, ids in whole.items():
        assert np.array_equal(again[end], np.concatenate([marked[end], ids[3:]]))
    drop_parts(making)
    assert not list(making.folder.iterdir())


def test_a_sae_that_does_not_write_to_the_residual_stream_promotes_nothing(tmp_path):
    subject, _ = subject_at("model.layers.1.mlp.gate_proj")
    assert promoted_tokens(latent_work(tmp_path / "out"), subject, sae_of(torch.eye(8)), 5) is None


def test_a_transcoder_promotes_by_what_it_writes_whatever_it_reads(tmp_path):
    subject, _ = subject_at("model.layers.1.mlp")
    reads_elsewhere = replace(sae_of(torch.eye(8)), hookpoint="not a hookpoint of the residual stream", d_in=3)
    found = promoted_tokens(latent_work(tmp_path / "out"), subject, reads_elsewhere, 5)
    assert found["promoted"].shape == (8, 5)
