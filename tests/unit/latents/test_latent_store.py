"""The latent-major store against the dense matrix of every latent at every position."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from latentry.errors import ContractError, NumericsError
from latentry.latents import latent_store
from latentry.latents.latent_store import LatentStore, merge_segments, ranges_within, segment_name, write_segment
from latentry.store import Work
from planted_folders import latent_work

pytestmark = pytest.mark.usefixtures("project")
WIDTH, N_POSITIONS = 23, 400


def planted(seed: int = 0) -> np.ndarray:
    """Dense [position, latent] in which latents 0, 7 and the last never fire and latent 3 always does."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((N_POSITIONS, WIDTH)) < 0.1, rng.random((N_POSITIONS, WIDTH)) + 0.5, 0).astype(np.float32)
    dense[:, [0, 7, WIDTH - 1]] = 0
    dense[:, 3] = rng.random(N_POSITIONS) + 0.5
    return dense


def build(making: Work, dense: np.ndarray, *, segment: int, dtype: str = "float32", positions: type = np.uint32) -> LatentStore:
    """Write what is missing of a dense matrix, in segments of some positions, and merge."""
    names = []
    for number, first in enumerate(range(0, len(dense), segment)):
        names.append(segment_name(number))
        if making.has(names[-1]) or making.has("store.json"):
            continue
        position, latent = np.nonzero(dense[first : first + segment])
        activation = dense[first : first + segment][position, latent]
        write_segment(making, names[-1], (position + first).astype(positions), latent, activation, dense.shape[1], dtype)
    assert merge_segments(making, names) == np.count_nonzero(dense)
    return LatentStore(making.folder)


def store_of(dense: np.ndarray, folder: Path, *, segment: int = 100, dtype: str = "float32") -> LatentStore:
    return build(latent_work(folder), dense, segment=segment, dtype=dtype)


def assert_holds(store: LatentStore, dense: np.ndarray) -> None:
    assert store.width == dense.shape[1]
    for latent in range(dense.shape[1]):
        position, activation = store.read(latent)
        where = np.flatnonzero(dense[:, latent])
        assert np.array_equal(position, where)
        assert np.array_equal(activation, dense[where, latent])
        assert store.firing_count(latent) == len(where)
        assert (position.dtype, activation.dtype) == (np.uint64, np.float32)
    assert np.array_equal(store.firing_counts(), (dense != 0).sum(axis=0))


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("segment", [5, 64, 399, 400, 1000])
def test_every_latent_reads_as_its_column_of_the_dense_matrix_whatever_the_segments(tmp_path, segment):
    dense = planted()
    assert_holds(store_of(dense, tmp_path / "out", segment=segment), dense)
    store_of(dense, tmp_path / "other", segment=100)
    assert bytes_in(tmp_path / "out") == bytes_in(tmp_path / "other")


@pytest.mark.parametrize("shard_activations", [1, 50, 399, 401, 900])
def test_latents_spread_over_many_shards_read_the_same(tmp_path, monkeypatch, shard_activations):
    monkeypatch.setattr(latent_store, "SHARD_ACTIVATIONS", shard_activations)
    dense = planted()
    store = store_of(dense, tmp_path / "out")
    shards = [load_file(path) for path in sorted((tmp_path / "out").glob("shard-*"))]
    assert len(shards) > 1
    assert [int(shard["first"][0]) for shard in shards] == sorted({int(shard["first"][0]) for shard in shards})
    assert all(len(shard["position"]) <= max(shard_activations, N_POSITIONS) for shard in shards)
    assert_holds(store, dense)


@pytest.mark.parametrize("shard_activations", [1, 50, 64_000_000])
def test_a_block_is_its_latents_one_after_another_across_shards(tmp_path, monkeypatch, shard_activations):
    monkeypatch.setattr(latent_store, "SHARD_ACTIVATIONS", shard_activations)
    store = store_of(planted(), tmp_path / "out")
    for first, last in ((0, WIDTH), (0, 1), (7, 8), (2, 9), (WIDTH - 1, WIDTH)):
        offsets, position, activation = store.block(first, last)
        assert (offsets.dtype, offsets[0], len(offsets), offsets[-1]) == (np.int64, 0, last - first + 1, len(position))
        for place, latent in enumerate(range(first, last)):
            part = slice(offsets[place], offsets[place + 1])
            assert [column.tolist() for column in store.read(latent)] == [position[part].tolist(), activation[part].tolist()]


def test_an_activation_takes_six_bytes_and_a_latent_eight(tmp_path):
    dense = planted()
    store_of(dense, tmp_path / "out", dtype="float16")
    arrays = load_file(tmp_path / "out" / "shard-00000.safetensors")
    assert (arrays["position"].nbytes + arrays["activation"].nbytes) == 6 * np.count_nonzero(dense)
    assert arrays["offsets"].nbytes == 8 * (WIDTH + 1)


def test_positions_past_32_bits_are_kept(tmp_path):
    making, far = latent_work(tmp_path / "out"), 2**32 - 3
    for number, first in enumerate((far, far + 4)):
        position = np.arange(first, first + 4, dtype=np.uint64)
        write_segment(making, segment_name(number), position, np.array([1, 0, 1, 1]), np.ones(4, dtype=np.float32), 2, "float16")
    merge_segments(making, [segment_name(0), segment_name(1)])
    store = LatentStore(tmp_path / "out")
    assert store.read(0)[0].tolist() == [far + 1, far + 5]
    assert store.read(1)[0].tolist() == [far, far + 2, far + 3, far + 4, far + 6, far + 7]


def test_a_sparse_store_of_a_million_latents_reads_what_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr(latent_store, "SHARD_ACTIVATIONS", 700)
    width, rng = 1_000_000, np.random.default_rng(0)
    position, latent = np.repeat(np.arange(500, dtype=np.uint32), 4), rng.integers(width, size=2000)
    latent[-4:] = [999_999, 0, 1, 2]
    activation = rng.random(2000).astype(np.float32) + 1
    making = latent_work(tmp_path / "out")
    for number in range(2):
        half = slice(1000 * number, 1000 * (number + 1))
        write_segment(making, segment_name(number), position[half], latent[half], activation[half], width, "float32")
    assert merge_segments(making, [segment_name(0), segment_name(1)]) == 2000
    store = LatentStore(tmp_path / "out")
    assert store.width == width
    assert np.array_equal(store.firing_counts(), np.bincount(latent, minlength=width))
    for one in [*latent[:200], *latent[-4:], 3]:
        assert np.array_equal(store.read(one)[0], position[latent == one])
        assert np.array_equal(store.read(one)[1], activation[latent == one])


def test_many_segments_take_no_more_open_files_than_a_few(tmp_path):
    resource = pytest.importorskip("resource")
    dense, limits = planted(), resource.getrlimit(resource.RLIMIT_NOFILE)
    n_open = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (n_open + 10, limits[1]))
    try:
        assert_holds(store_of(dense, tmp_path / "out", segment=7), dense)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_float16_keeps_what_float16_keeps(tmp_path):
    dense = planted()
    assert_holds(store_of(dense, tmp_path / "out", dtype="float16"), dense.astype(np.float16).astype(np.float32))


def test_an_activation_that_does_not_fit_float16_stops_with_its_latent_and_what_to_set(tmp_path):
    dense = planted()
    dense[250, 5], dense[251, 6] = 70_000, 60_000
    with pytest.raises(NumericsError, match=r"latent 5: activation 7e\+04 does not fit float16; set `latents\.dtype` to float32"):
        store_of(dense, tmp_path / "out", dtype="float16")
    assert not list((tmp_path / "out").glob("shard-*"))
    assert_holds(store_of(dense, tmp_path / "wide"), dense)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_an_activation_that_is_no_number_stops_with_its_latent_and_position(tmp_path, wrong):
    dense = planted()
    dense[250, 5] = wrong
    with pytest.raises(NumericsError, match=rf"latent 5: activation {wrong} at position 250, .* dtypes of subject and SAE"):
        store_of(dense, tmp_path / "out")


def test_an_activation_too_small_for_the_dtype_still_fires(tmp_path):
    dense = planted()
    dense[2, 0] = 1e-9
    position, activation = store_of(dense, tmp_path / "out", dtype="float16").read(0)
    assert position.tolist() == [2]
    assert activation[0] > 0


def test_negative_activations_are_firings_too(tmp_path):
    dense = -planted()
    assert_holds(store_of(dense, tmp_path / "out", segment=64), dense)


def test_a_sae_that_never_fires_has_a_store_of_silent_latents(tmp_path):
    assert_holds(store_of(np.zeros((10, 4), dtype=np.float32), tmp_path / "out", segment=5), np.zeros((10, 4), dtype=np.float32))


@pytest.mark.parametrize("read", [lambda store, latent: store.read(latent), lambda store, latent: store.firing_count(latent)])
@pytest.mark.parametrize("latent", [-1, WIDTH, 10**9])
def test_a_latent_that_does_not_exist_is_told_with_those_that_do(tmp_path, latent, read):
    with pytest.raises(ContractError, match=rf"latent {latent}: the SAE has latents 0 to {WIDTH - 1}"):
        read(store_of(planted(), tmp_path / "out"), latent)


def test_a_block_beyond_the_last_latent_is_told(tmp_path):
    with pytest.raises(ContractError, match=rf"latent {WIDTH}: the SAE has latents 0 to {WIDTH - 1}"):
        store_of(planted(), tmp_path / "out").block(3, WIDTH + 1)


def test_an_incomplete_folder_is_refused(tmp_path):
    store_of(planted(), tmp_path / "out")
    with pytest.raises(ContractError, match="rerun `dvc repro latents`"):
        LatentStore.of(tmp_path / "out")


class KilledError(Exception):
    """What stands for SIGKILL: nothing catches it."""


class Interrupted(Work):
    """A folder whose process dies at its n-th write from now: before the file is committed, or right after it."""

    def __init__(self, work: Work, n_writes: int, *, after: bool) -> None:
        super().__init__(work.folder, work.out, latent_store.LATENTS)
        self.n_left, self.after, self.committed = n_writes, after, []

    def write_file(self, name: str, write: Callable[[Path], object], n_bytes: int | None = None) -> None:
        self.n_left -= 1
        if self.n_left == 0 and not self.after:
            raise KilledError
        super().write_file(name, write, n_bytes)
        self.committed.append(name)
        if self.n_left == 0:
            raise KilledError


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_write_the_next_run_makes_the_rest_and_the_same_bytes(tmp_path, monkeypatch, after):
    monkeypatch.setattr(latent_store, "SHARD_ACTIVATIONS", 300)
    dense = planted()
    store_of(dense, tmp_path / "whole")
    whole = bytes_in(tmp_path / "whole")
    n_writes = 4 + len(whole)
    for killed_at in range(1, n_writes + 1):
        first = Interrupted(latent_work(tmp_path / f"{killed_at}"), killed_at, after=after)
        with pytest.raises(KilledError):
            build(first, dense, segment=100)
        second = Interrupted(first, n_writes + 1, after=after)
        assert_holds(build(second, dense, segment=100), dense)
        assert bytes_in(first.folder) == whole
        assert len(first.committed) + len(second.committed) == n_writes
        assert not set(first.committed) & set(second.committed)


def test_killed_while_segments_are_deleted_nothing_is_made_again(tmp_path):
    dense = planted()
    store_of(dense, tmp_path / "whole")
    dying = Interrupted(latent_work(tmp_path / "out"), 6, after=True)
    with pytest.raises(KilledError):
        build(dying, dense, segment=100)
    assert dying.committed[-1] == "store.json"
    dying.path(segment_name(1)).unlink()
    again = Interrupted(dying, 1, after=False)
    assert_holds(build(again, dense, segment=100), dense)
    assert bytes_in(dying.folder) == bytes_in(tmp_path / "whole")


@pytest.mark.parametrize("counts", [[0, 0, 0], [5], [9, 1, 1], [1, 1, 9], [3, 3, 3, 3], [0, 12, 0, 0, 4, 4, 4, 0]])
@pytest.mark.parametrize("most_latents", [None, 1, 2])
def test_ranges_cover_every_latent_once_within_their_bounds(counts, most_latents):
    ranges = list(ranges_within(np.array(counts), 8, most_latents))
    assert [first for first, _ in ranges] == [0, *(last for _, last in ranges[:-1])]
    assert ranges[-1][1] == len(counts)
    for first, last in ranges:
        assert last > first
        assert sum(counts[first:last]) <= 8 or last == first + 1
        assert most_latents is None or last - first <= most_latents
