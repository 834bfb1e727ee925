"""Draws for many latents at once: what is promised of a draw from all candidates holds of them too."""

from collections import Counter

import numpy as np
import pytest

from latentry.sampling.deciles import drawn_early
from latentry.sampling.draws import keys_of, uniform
from latentry.sampling.grid import Grid, grid_of
from latentry.sampling.splits import Sides, side_keys, units_of
from latentry.sampling.windows import ActivatingWindows, by_strength
from planted_corpus import WINDOW, random_texts, tokens_of

SIZES = (23, 14)
N_LATENTS = 400


@pytest.fixture(scope="module")
def grid() -> Grid:
    return grid_of(tokens_of(random_texts(240, 64), context=64), WINDOW)


def found_in(n: int) -> ActivatingWindows:
    """A latent that fires in the first windows of the corpus, in no order of strength."""
    peak = np.random.default_rng(0).permutation(np.arange(1, n + 1)).astype(np.float32)
    nothing = np.zeros(0, dtype=np.int64)
    return ActivatingWindows(n_grid=n, window=np.arange(n), cut=None, peak=peak, by_strength=by_strength(peak), texts=nothing)


@pytest.mark.parametrize("split_by", ["document", "context"])
def test_an_early_draw_is_of_distinct_windows_on_their_side_and_even_over_the_deciles(grid: Grid, split_by: str) -> None:
    latents, found = np.arange(N_LATENTS), found_in(grid.n_windows)
    draws = drawn_early([found] * N_LATENTS, SIZES, grid, split_by, 0, latents)
    keys = side_keys(0, latents)
    assert draws[0].is_filled.mean() > 0.9
    for draw, n, side in zip(draws, SIZES, (True, False), strict=True):
        for latent in np.flatnonzero(draw.is_filled).tolist():
            index = draw.index[latent]
            units = units_of(grid, found.window[index], split_by)
            assert len(set(index.tolist())) == n
            assert units.min() >= 0
            assert (Sides.by_key(keys[latent], *SIZES).is_held_out(units) == side).all()
            assert (draw.decile[latent] == found.decile[index]).all()
            for first in range(1, n + 1):
                counts = np.bincount(draw.decile[latent, :first], minlength=11)[1:]
                assert counts.max() - counts.min() <= 1


def test_each_window_of_a_decile_is_drawn_early_equally_often(grid: Grid) -> None:
    n_latents, n = 6000, 200
    found = found_in(n)
    held_out, _ = drawn_early([found] * n_latents, (20, 10), grid, "document", 0, np.arange(n_latents))
    counts = np.bincount(held_out.index[held_out.is_filled].reshape(-1), minlength=n)
    expected = 20 * held_out.is_filled.sum() / n
    assert held_out.is_filled.mean() > 0.9
    # Each latent draws a window or not: five standard deviations of how many do.
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


def test_a_decile_without_windows_enough_is_not_filled(grid: Grid) -> None:
    few, many = found_in(30), found_in(grid.n_windows)
    held_out, explain = drawn_early([few, many], (40, 40), grid, "document", 0, np.array([3, 4]))
    assert (held_out.is_filled & explain.is_filled).tolist() == [False, True]


def test_what_is_drawn_of_a_latent_depends_on_no_other(grid: Grid) -> None:
    found = [found_in(n) for n in (100, 300, 500)]
    together = drawn_early(found, SIZES, grid, "document", 0, np.array([5, 6, 7]))
    for row in range(3):
        alone = drawn_early(found[row : row + 1], SIZES, grid, "document", 0, np.array([5 + row]))
        for one, all_of_them in zip(alone, together, strict=True):
            assert one.index[0].tolist() == all_of_them.index[row].tolist()


def test_numbers_of_different_keys_and_counters_are_even_and_have_nothing_in_common() -> None:
    numbers = uniform(keys_of(0, "test", np.arange(300))[:, None], np.arange(300))
    assert Counter((10 * numbers).astype(int).reshape(-1).tolist()).keys() == set(range(10))
    # 90,000 numbers in 10 parts: standard deviation 90; five of them.
    assert np.abs(np.bincount((10 * numbers).astype(int).reshape(-1)) - 9000).max() < 450
    across, along = np.corrcoef(numbers), np.corrcoef(numbers.T)
    # A correlation of 300 pairs has standard deviation .058; the largest of 45,000 is below five of them.
    assert max(np.abs(table - np.eye(300)).max() for table in (across, along)) < 0.29
