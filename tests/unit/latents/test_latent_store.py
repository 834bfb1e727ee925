"""The latent-major store against the dense matrix of every latent at every position."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from latentry.activations.activation_store import ActivationStore
from latentry.errors import ContractError, NumericsError
from latentry.latents import latent_store
from latentry.latents.encode import encode_latents
from latentry.latents.latent_store import LatentStore, merge_segments, token_counts, write_segment
from planted_folders import activation_folder, latent_work
from planted_saes import identity_sae

pytestmark = pytest.mark.usefixtures("project")
WIDTH, N_POSITIONS = 23, 400


def planted(seed: int = 0) -> np.ndarray:
    """Dense [position, latent] in which latents 0, 7 and the last never fire and latent 3 always does."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((N_POSITIONS, WIDTH)) < 0.1, rng.random((N_POSITIONS, WIDTH)) + 0.5, 0).astype(np.float32)
    dense[:, [0, 7, WIDTH - 1]] = 0
    dense[:, 3] = rng.random(N_POSITIONS) + 0.5
    return dense


def store_of(dense: np.ndarray, folder: Path, *, segment: int, dtype: str = "float32") -> LatentStore:
    """Write a dense matrix in segments of some positions, and merge."""
    making = latent_work(folder)
    names = []
    for number, first in enumerate(range(0, len(dense), segment)):
        position, latent = np.nonzero(dense[first : first + segment])
        names.append(f"segment-{number:05d}.safetensors")
        activation = dense[first : first + segment][position, latent]
        write_segment(making, names[-1], (position + first).astype(np.uint32), latent, activation, dense.shape[1], dtype)
    assert merge_segments(making, names) == np.count_nonzero(dense)
    return LatentStore(folder)


def assert_holds(store: LatentStore, dense: np.ndarray) -> None:
    assert store.width == dense.shape[1]
    for latent in range(dense.shape[1]):
        position, activation = store.read(latent)
        where = np.flatnonzero(dense[:, latent])
        assert np.array_equal(position, where)
        assert np.array_equal(activation, dense[where, latent])
        assert store.firing_count(latent) == len(where)
        assert (position.dtype, activation.dtype) == (np.uint64, np.float32)


@pytest.mark.parametrize("segment", [5, 64, 399, 400, 1000])
def test_every_latent_reads_as_its_column_of_the_dense_matrix_whatever_the_segments(tmp_path, segment):
    dense = planted()
    assert_holds(store_of(dense, tmp_path / "out", segment=segment), dense)


@pytest.mark.parametrize("shard_activations", [1, 50, 399, 401, 900])
def test_latents_spread_over_many_shards_read_the_same(tmp_path, monkeypatch, shard_activations):
    monkeypatch.setattr(latent_store, "SHARD_ACTIVATIONS", shard_activations)
    dense = planted()
    store = store_of(dense, tmp_path / "out", segment=100)
    shards = [load_file(path) for path in sorted((tmp_path / "out").glob("shard-*"))]
    assert len(shards) > 1
    assert [int(shard["first"][0]) for shard in shards] == sorted({int(shard["first"][0]) for shard in shards})
    assert all(len(shard["position"]) <= max(shard_activations, N_POSITIONS) for shard in shards)
    assert_holds(store, dense)


def test_float16_keeps_what_float16_keeps(tmp_path):
    dense = planted()
    assert_holds(store_of(dense, tmp_path / "out", segment=100, dtype="float16"), dense.astype(np.float16).astype(np.float32))


def test_an_activation_that_does_not_fit_float16_stops_with_its_latent_and_what_to_set(tmp_path):
    dense = planted()
    dense[250, 5] = 70_000
    with pytest.raises(NumericsError, match=r"latent 5: activation 7e\+04 does not fit float16; set `latents\.dtype` to float32"):
        store_of(dense, tmp_path / "out", segment=100, dtype="float16")
    assert not list((tmp_path / "out").glob("shard-*"))
    assert_holds(store_of(dense, tmp_path / "wide", segment=100), dense)


def test_negative_activations_are_firings_too(tmp_path):
    dense = -planted()
    assert_holds(store_of(dense, tmp_path / "out", segment=64), dense)


def test_a_sae_that_never_fires_has_a_store_of_silent_latents(tmp_path):
    assert_holds(store_of(np.zeros((10, 4), dtype=np.float32), tmp_path / "out", segment=5), np.zeros((10, 4), dtype=np.float32))


@pytest.mark.parametrize("latent", [-1, WIDTH, 10**9])
def test_a_latent_that_does_not_exist_is_told_with_those_that_do(tmp_path, latent):
    with pytest.raises(ContractError, match=rf"latent {latent}: the SAE has latents 0 to {WIDTH - 1}"):
        store_of(planted(), tmp_path / "out", segment=100).read(latent)


def test_merging_again_after_a_kill_makes_only_the_shards_that_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(latent_store, "SHARD_ACTIVATIONS", 200)
    dense, folder = planted(), tmp_path / "out"
    store_of(dense, folder, segment=100)
    inodes = {path.name: path.stat().st_ino for path in folder.glob("shard-*")}
    (folder / "shard-00001.safetensors").unlink()
    assert_holds(store_of(dense, folder, segment=100), dense)
    kept = {path.name for path in folder.glob("shard-*") if path.stat().st_ino == inodes[path.name]}
    assert kept >= set(inodes) - {"shard-00001.safetensors"}


def test_an_incomplete_folder_is_refused(tmp_path):
    store_of(planted(), tmp_path / "out", segment=100)
    with pytest.raises(ContractError, match="rerun `dvc repro latents`"):
        LatentStore.of(tmp_path / "out")


def test_token_counts_are_those_counted_one_by_one(tmp_path):
    dense = planted()
    tokens = np.random.default_rng(1).integers(9, size=N_POSITIONS)
    found = token_counts(store_of(dense, tmp_path / "out", segment=100), range(2, 9), tokens, 9).toarray()
    by_hand = [[int(((dense[:, latent] != 0) & (tokens == token)).sum()) for token in range(9)] for latent in range(2, 9)]
    assert found.tolist() == by_hand


def encoded(folder: Path, x: torch.Tensor, kept: np.ndarray, batch_tokens: int, dtype: str = "float32") -> LatentStore:
    activations = ActivationStore(activation_folder(folder / "x", x, kept, shard_contexts=500))
    making = latent_work(folder / "latents")
    n = encode_latents(identity_sae(x.shape[-1]), activations, making, dtype=dtype, batch_tokens=batch_tokens)
    store = LatentStore(folder / "latents")
    assert n == sum(store.firing_count(latent) for latent in range(store.width))
    assert not list((folder / "latents").glob("segment-*"))
    return store


def signed_parts(x: torch.Tensor, kept: np.ndarray) -> np.ndarray:
    """The latents of the planted SAE by hand: each coordinate's positive part, then its negative part; 0 where left out."""
    flat = x.reshape(-1, x.shape[-1]).numpy() * kept.reshape(-1, 1)
    return np.concatenate([np.maximum(flat, 0), np.maximum(-flat, 0)], axis=1)


@pytest.mark.parametrize("batch_tokens", [1, 7, 4096])
def test_encoding_gives_the_dense_latents_whatever_the_batch_and_none_at_positions_left_out(tmp_path, batch_tokens):
    x = torch.randn(12, 6, 4, generator=torch.Generator().manual_seed(0))
    kept = np.random.default_rng(0).random((12, 6)) < 0.7
    assert_holds(encoded(tmp_path, x, kept, batch_tokens), signed_parts(x, kept))


def test_more_contexts_than_one_segment_give_the_same(tmp_path):
    x = torch.randn(2060, 3, 2, generator=torch.Generator().manual_seed(0))
    kept = np.random.default_rng(0).random((2060, 3)) < 0.7
    assert_holds(encoded(tmp_path, x, kept, batch_tokens=1000), signed_parts(x, kept))


def test_contexts_of_which_nothing_is_kept_are_passed_over(tmp_path):
    x = torch.ones(1030, 2, 2)
    kept = np.zeros((1030, 2), dtype=bool)
    kept[1024:, 1] = True
    assert_holds(encoded(tmp_path, x, kept, batch_tokens=64), signed_parts(x, kept))


def test_encoding_again_after_a_kill_continues_with_the_segments_that_are_there(tmp_path):
    x = torch.randn(1030, 2, 2, generator=torch.Generator().manual_seed(0))
    kept = np.ones((1030, 2), dtype=bool)
    dense = signed_parts(x, kept)
    making = latent_work(tmp_path / "latents")
    position, latent = np.nonzero(dense[: 1024 * 2])
    twice = 2 * dense[: 1024 * 2][position, latent]
    write_segment(making, "segment-00000.safetensors", position.astype(np.uint32), latent, twice, 4, "float32")
    store = encoded(tmp_path, x, kept, batch_tokens=64)
    assert_holds(store, np.concatenate([2 * dense[:2048], dense[2048:]]))


def test_an_activation_too_small_for_the_dtype_still_fires(tmp_path):
    dense = planted()
    dense[2, 0] = 1e-9
    store = store_of(dense, tmp_path / "out", segment=64, dtype="float16")
    position, activation = store.read(0)
    assert position.tolist() == [2]
    assert activation[0] > 0
