"""Encoding into the store, against the latents of a planted SAE by hand, at any sizes and through kills."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from latentry.activations.cache import Caching, finish
from latentry.contracts import ACTIVATIONS
from latentry.corpora.token_set import TokenSet
from latentry.engines.run import run_job
from latentry.latents.encode import EncodeJob, aligned_batches, encoded, kept_by_segment, positions_of
from latentry.latents.latent_store import LatentStore, merge_segments
from latentry.models.random import Config as RandomModel
from latentry.models.random import build
from latentry.saes.sae_lens import Config as SaeLens
from latentry.store import Work, work
from latentry.subjects.hooks import Hookpoint
from planted_folders import activation_folder, latent_work, token_folder
from planted_saes import StoredActivations, identity_sae

pytestmark = pytest.mark.usefixtures("project")
N_CONTEXTS, CONTEXT, D_IN = 13, 6, 4
X = torch.randn(N_CONTEXTS, CONTEXT, D_IN, generator=torch.Generator().manual_seed(0))
KEPT = np.random.default_rng(0).random((N_CONTEXTS, CONTEXT)) < 0.7
KEPT[4:8] = False
SIZES = {"shard_contexts": 4, "batch_contexts": 2, "batch_tokens": 7, "block_latents": 3}


def by_hand() -> np.ndarray:
    """Dense [position, latent]: each coordinate's positive part, then its negative part; 0 where left out."""
    flat = X.flatten(0, 1).numpy() * KEPT.reshape(-1, 1)
    return np.concatenate([np.maximum(flat, 0), np.maximum(-flat, 0)], axis=1)


def sae_folder(folder: Path, decoder: np.ndarray) -> Path:
    """A SAE in the SAELens layout: rectified products with the rows of its decoder."""
    width, d_in = decoder.shape
    folder.mkdir()
    weights = {"W_enc": decoder.T.copy(), "W_dec": decoder, "b_enc": np.zeros(width), "b_dec": np.zeros(d_in)}
    save_file({key: array.astype(np.float32) for key, array in weights.items()}, folder / "sae_weights.safetensors")
    (folder / "cfg.json").write_text(json.dumps({"architecture": "standard", "d_in": d_in, "d_sae": width}))
    return folder


def job_of(making: Work, sae: Path, activations: Path, kept: np.ndarray, width: int, **changed: Any) -> EncodeJob:
    """Over folders that are there; the subject is needed only by a stream."""
    plain: dict[str, Any] = {
        "name": "planted",
        "config": SaeLens(kind="sae_lens", hookpoint="here", width=width, loss="standard", folder=sae),
    }
    plain |= {"tokens": Path("tokens").absolute(), "model": Path("model").absolute(), "subject_dtype": "float32", "dtype": "float32"}
    plain |= {"device": "cpu", "threads": 1, **SIZES, **changed}
    return EncodeJob(making=making, sae=sae, activations=activations, sizes=kept_by_segment(kept, plain["shard_contexts"]), **plain)


@pytest.fixture
def planted(project) -> Callable[..., EncodeJob]:
    sae, activations = sae_folder(project / "sae", identity_sae(D_IN).decoder.numpy()), project / "activations"
    activation_folder(activations, X, KEPT, shard_contexts=5)
    return lambda making, **changed: job_of(making, sae, activations, KEPT, 2 * D_IN, **changed)


def store_of(job: EncodeJob) -> dict[str, bytes]:
    """Make what is missing and merge: the files by name."""
    run_job(job, engine="local", workers=None, address=None)
    merge_segments(job.making, job.segments)
    return {path.name: path.read_bytes() for path in job.making.folder.iterdir()}


def test_the_store_holds_what_the_sae_gives_at_kept_positions_and_nothing_else(planted, tmp_path):
    files = store_of(planted(latent_work(tmp_path / "out")))
    store, dense = LatentStore(tmp_path / "out"), by_hand()
    for latent in range(2 * D_IN):
        position, activation = store.read(latent)
        assert np.array_equal(position, np.flatnonzero(dense[:, latent]))
        assert np.array_equal(activation, dense[position.astype(int), latent])
    assert set(files) == {"shard-00000.safetensors", "store.json"}
    assert json.loads(files["store.json"]) == {"width": 2 * D_IN, "signed": False, "n_activations": np.count_nonzero(dense), "n_shards": 1}


@pytest.mark.parametrize("changed", [{"block_latents": 1}, {"block_latents": 100}, {"batch_tokens": 1}, {"batch_tokens": 4096}])
@pytest.mark.parametrize("sizes", [{}, {"shard_contexts": 1, "batch_contexts": 1}, {"shard_contexts": 12, "batch_contexts": 3}])
def test_segments_blocks_and_batches_of_any_size_give_the_same_store(planted, tmp_path, changed, sizes):
    assert store_of(planted(latent_work(tmp_path / "a"))) == store_of(planted(latent_work(tmp_path / "b"), **changed, **sizes))


def test_the_job_travels_to_another_process(planted, tmp_path):
    job = pickle.loads(pickle.dumps(planted(latent_work(tmp_path / "a"))))  # noqa: S301 (bytes of our own)
    assert store_of(job) == store_of(planted(latent_work(tmp_path / "b")))


def test_segments_in_any_order_give_the_same_store_and_tick_their_tokens(planted, tmp_path):
    job = planted(latent_work(tmp_path / "a"))
    assert job.missing() == [0, 1, 2, 3]
    make = job.open()
    for segment in (2, 0, 3, 1):
        ticks = []
        make(segment, ticks.append)
        assert sum(ticks) == job.size(segment) == KEPT[4 * segment : 4 * segment + 4].sum()
    assert job.missing() == []
    assert store_of(job) == store_of(planted(latent_work(tmp_path / "b")))


class KilledError(Exception):
    """What stands for SIGKILL: nothing catches it."""


class Interrupted(Work):
    """A folder whose process dies at its n-th write from now, right before the file is committed; it tells what was committed."""

    def __init__(self, work: Work, n_writes: int) -> None:
        super().__init__(work.folder, work.out, ACTIVATIONS)
        self.n_left, self.committed = n_writes, []

    def write_file(self, name: str, write: Callable[[Path], object], n_bytes: int | None = None) -> None:
        self.n_left -= 1
        if self.n_left == 0:
            raise KilledError
        super().write_file(name, write, n_bytes)
        self.committed.append(name)


def test_killed_at_any_write_the_next_run_encodes_only_what_is_missing_and_gives_the_same_bytes(planted, tmp_path):
    whole = Interrupted(latent_work(tmp_path / "whole"), 1000)
    files = store_of(planted(whole))
    assert len(whole.committed) == 6
    for killed_at in range(1, 7):
        first = Interrupted(latent_work(tmp_path / f"{killed_at}"), killed_at)
        with pytest.raises(KilledError):
            store_of(planted(first))
        second = Interrupted(first, 1000)
        assert store_of(planted(second)) == files
        assert first.committed + second.committed == whole.committed


def test_once_merged_no_segment_is_missing(planted, tmp_path):
    job = planted(latent_work(tmp_path / "out"))
    files = store_of(job)
    assert job.missing() == []
    assert store_of(planted(Interrupted(job.making, 1))) == files


class Recording(StoredActivations):
    """Activations that keep in mind which contexts were read together."""

    reads: list[list[int]]

    def rows(self, contexts: np.ndarray) -> torch.Tensor:
        self.reads.append(contexts.tolist())
        return super().rows(contexts)


@pytest.mark.parametrize("batch_tokens", [1, 7, 100])
def test_activations_are_read_in_whole_forward_batches_and_encoded_in_full_ones(batch_tokens):
    activations = Recording(X, KEPT)
    activations.reads = []
    batches = list(aligned_batches(activations, range(8, 13), 4, batch_tokens))
    assert activations.reads == [[8, 9, 10, 11], [12]]
    assert torch.equal(torch.cat(batches), X[8:13][torch.from_numpy(KEPT[8:13])])
    assert all(len(batch) == batch_tokens for batch in batches[:-1])
    assert 0 < len(batches[-1]) <= batch_tokens


def test_contexts_of_which_nothing_is_kept_make_no_batch():
    batches = list(aligned_batches(StoredActivations(X, KEPT), range(4, 8), 2, 7))
    assert batches == []
    assert [len(column) for column in encoded(identity_sae(D_IN), batches, 3, lambda _: None)] == [0, 0, 0]


def test_positions_count_on_through_the_contexts_and_are_64_bit_only_where_32_do_not_reach():
    kept = np.zeros((4, 3), dtype=bool)
    kept[2, 1] = kept[3, 0] = True
    found = positions_of(kept, range(2, 4))
    assert (found.tolist(), found.dtype) == ([7, 9], np.uint32)
    wide = np.lib.stride_tricks.as_strided(np.ones(1, dtype=bool), (2**17, 2**16), (0, 0))  # no memory behind it
    far = positions_of(wide, range(2**17 - 1, 2**17))
    assert (int(far[-1]), far.dtype) == (2**33 - 1, np.uint64)


@pytest.fixture
def recorded(project) -> Callable[..., tuple[Path, np.ndarray]]:
    """Activations of a random Llama over 11 contexts of 8 tokens, kept or only counted."""
    model = project / "model"
    model.mkdir()
    build(RandomModel(kind="random", purpose="language_model", d_model=16, n_layers=3)).fetch(model, model)
    token_set = TokenSet(token_folder(project / "tokens", np.random.default_rng(0).integers(1, 200, size=(11, 8))))
    point = Hookpoint(name="here", module="model.layers.1", side="output")

    def make(name: str, **store: Any) -> tuple[Path, np.ndarray]:
        out = project / name / "here"
        with work(out, ACTIVATIONS, cell=name, params={}) as making:
            shape = {"n_contexts": 11, "context": 8, "shard_contexts": 6, "batch_contexts": 2}
            dtypes = {"subject_dtype": "float32", "non_finite": "stop", "device": "cpu", "threads": 1}
            folders: dict[str, Any] = {"making": {"here": making}, "model": model, "tokens": token_set.folder, "hookpoints": (point,)}
            job = Caching(**folders, **shape, **dtypes, **store)
            run_job(job, engine="local", workers=None, address=None)
            finish(job, [], token_set.special, 10.0)
        return out, np.ones((11, 8), dtype=bool)

    return make


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_running_subject_gives_the_bytes_that_stored_activations_give(recorded, project, tmp_path, dtype):
    sae = sae_folder(project / "sae", np.random.default_rng(1).standard_normal((40, 16)))
    stores = []
    for store in (True, False):
        activations, kept = recorded(f"store-{store}", store=store, dtype=dtype)
        stores.append(store_of(job_of(latent_work(tmp_path / f"{store}"), sae, activations, kept, 40, dtype="float16")))
    assert stores[0] == stores[1]
