"""Which positions count, by norms that the test knows, spread over shards."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from latentry.activations.positions import MEDIAN_TOKENS, counted_positions, median_norm


def norm_folder(folder: Path, norm: np.ndarray, shard_contexts: int = 7) -> Path:
    folder.mkdir()
    for number, first in enumerate(range(0, len(norm), shard_contexts)):
        save_file({"norm": norm[first : first + shard_contexts].astype(np.float32).ravel()}, folder / f"shard-{number:05d}.safetensors")
    return folder


def test_attention_sinks_are_left_out_at_every_hookpoint_when_they_are_one_at_any(tmp_path):
    special = np.zeros((20, 8), dtype=bool)
    special[:, 3] = True
    norms = {"a": np.full((20, 8), 2.0, dtype=np.float32), "b": np.full((20, 8), 5.0, dtype=np.float32)}
    norms["a"][2, 0], norms["b"][7, 6] = 20.1, 50.1
    norms["a"][1, 0], norms["b"][8, 6] = 20.0, 50.0
    norms["a"][4, 3] = 1000.0
    folders = [norm_folder(tmp_path / name, norm) for name, norm in norms.items()]
    medians = {folder: median_norm(folder, special) for folder in folders}
    counted = counted_positions(medians, special, 10.0)
    left_out = {(int(row), int(place)) for row, place in np.argwhere(~counted.kept & ~special)}
    assert left_out == {(2, 0), (7, 6)}
    assert list(medians.values()) == [2.0, 5.0]
    assert not counted.kept[special].any()
    assert (counted.n_special, counted.n_attention_sinks, counted.n_dropped_contexts) == (20, 2, 0)


def test_the_first_position_is_kept_unless_its_norm_is_a_sinks(tmp_path):
    folder = norm_folder(tmp_path / "a", np.ones((4, 3)))
    assert counted_positions({folder: 1.0}, np.zeros((4, 3), dtype=bool), 10.0).kept.all()


def test_an_infinite_norm_is_a_sinks(tmp_path):
    norm = np.ones((4, 3))
    norm[1, 1] = np.inf
    counted = counted_positions({norm_folder(tmp_path / "a", norm): 1.0}, np.zeros((4, 3), dtype=bool), 10.0)
    assert (counted.kept.sum(), counted.n_attention_sinks) == (11, 1)


def test_a_context_that_the_pass_of_one_subject_dropped_counts_in_none(tmp_path):
    norms = np.ones((2, 4, 3))
    norms[0, 1], norms[1, 3], norms[1, 0, 0] = np.nan, np.nan, 11.0
    folders = [norm_folder(tmp_path / str(number), norm) for number, norm in enumerate(norms)]
    counted = counted_positions(dict.fromkeys(folders, 1.0), np.zeros((4, 3), dtype=bool), 10.0)
    assert counted.kept.tolist() == [[False, True, True], [False] * 3, [True] * 3, [False] * 3]
    assert (counted.n_attention_sinks, counted.n_dropped_contexts) == (1, 2)


def test_special_tokens_of_huge_norm_do_not_move_the_median(tmp_path):
    special = np.zeros((10, 4), dtype=bool)
    special[:, :3] = True
    norm = np.full((10, 4), 1e4)
    norm[:, 3] = 1.0
    norm[0, 3] = 11.0
    folder = norm_folder(tmp_path / "a", norm)
    assert median_norm(folder, special) == 1.0
    assert counted_positions({folder: 1.0}, special, 10.0).kept.sum() == 9


@pytest.mark.parametrize("shard_contexts", [30, 100, 1000])
def test_the_median_is_that_of_the_first_100_000_tokens_that_are_not_special_nor_dropped(tmp_path, shard_contexts):
    norm = np.ones(250_000)
    norm[101_001:] = 100.0
    norm[500:51_000] = 3.0
    norm = norm.reshape(250, 1000)
    special = np.zeros((250, 1000), dtype=bool)
    special[0, 0] = True
    norm[20] = np.nan
    folder = norm_folder(tmp_path / "a", norm, shard_contexts)
    first = np.concatenate([norm.ravel()[1:20_000], norm.ravel()[21_000:]])[:MEDIAN_TOKENS]
    assert median_norm(folder, special) == np.median(first) == 1.0
    counted = counted_positions({folder: 1.0}, special, 10.0)
    assert (counted.kept.sum(), counted.n_dropped_contexts) == (first.size, 1)
    assert counted.n_attention_sinks == norm.size - 1 - 1000 - first.size


def test_no_more_shards_are_read_for_the_median_than_it_takes(tmp_path):
    folder = norm_folder(tmp_path / "a", np.ones((110, 1000)), 10)
    (folder / "shard-00010.safetensors").write_bytes(b"damaged")
    assert median_norm(folder, np.zeros((110, 1000), dtype=bool)) == 1.0
