"""How the explain split is drawn, each way by what it promises."""

from collections import Counter

import numpy as np
import pytest

from latentry.randomness import rng_for
from latentry.sampling.explain_split import chosen_to_explain
from latentry.sampling.windows import ActivatingWindows

PEAK = np.random.default_rng(0).permutation(np.arange(1, 101)).astype(np.float32)


def windows(peak: np.ndarray) -> ActivatingWindows:
    nothing = np.arange(peak.size)
    return ActivatingWindows(n_grid=peak.size, window=nothing, cut=None, peak=peak, by_strength=np.argsort(peak), texts=nothing)


def drawn(how: str, n: int = 20, seed: int = 0) -> np.ndarray:
    return chosen_to_explain(windows(PEAK), np.arange(PEAK.size), how, n, rng_for(seed, "explain", 0))


@pytest.mark.parametrize("how", ["deciles", "top", "random", "importance", "mix"])
def test_every_way_draws_distinct_windows_and_all_where_there_are_fewer(how: str) -> None:
    assert len(set(drawn(how).tolist())) == 20
    assert sorted(drawn(how, n=300).tolist()) == list(range(100))


def test_importance_draws_first_in_proportion_to_the_squared_peak() -> None:
    counts = np.bincount([drawn("importance", n=1, seed=seed)[0] for seed in range(20_000)], minlength=100)
    expected = 20_000 * PEAK.astype(float) ** 2 / (PEAK.astype(float) ** 2).sum()
    # Five standard deviations of a count, and a little for those expected less than once.
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected) + 2).all()


def test_importance_keeps_the_proportion_among_what_is_left_after_the_first() -> None:
    found = windows(np.array([1, 2, 3], dtype=np.float32))
    pairs = Counter(tuple(chosen_to_explain(found, np.arange(3), "importance", 2, rng_for(seed, "x")).tolist()) for seed in range(20_000))
    # First the third of three (9 in 14), then the second rather than the first (4 in 5).
    assert pairs[(2, 1)] / 20_000 == pytest.approx(9 / 14 * 4 / 5, abs=0.02)


def test_a_mix_has_the_strongest_at_every_fifth_place_and_the_deciles_evenly_between() -> None:
    peaks = PEAK[drawn("mix")]
    assert peaks[::5].tolist() == [100, 99, 98, 97]
    others = [peak for place, peak in enumerate(peaks.tolist()) if place % 5]
    counts = Counter(int((peak - 1) // 10) for peak in others)
    assert set(counts.values()) <= {1, 2}
    assert len(counts) == 10
