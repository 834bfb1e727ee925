"""Figures of a Jacobian against scipy, counts by hand, and samples whose truth is known."""

import numpy as np
import pytest
from scipy import stats

from latentry.edges.figures import context_row, differences, figures, sums_by_context
from latentry.edges.pairs import ActivePairs
from latentry.metric_kinds import JACOBIAN_FIGURES


def pairs(token, value) -> ActivePairs:
    zeros = np.zeros(len(value), np.int64)
    return ActivePairs(token=np.asarray(token, np.int64), out=zeros, input=zeros, value=np.asarray(value, np.float32))


def sampled(seed: int, n_contexts: int = 40, scale: float = 0.02):
    rng = np.random.default_rng(seed)
    values = [(rng.laplace(size=60) * scale).astype(np.float32) for _ in range(n_contexts)]
    rows = [context_row(number, 10, pairs(np.repeat(np.arange(10), 6), value)) for number, value in enumerate(values)]
    return sums_by_context(rows), np.concatenate(values).astype(np.float64)


def test_figures_are_those_of_numpy_and_scipy_over_all_pairs():
    sums, values = sampled(0)
    found = figures(sums, np.random.default_rng(0))
    assert found["mean_abs"].value == pytest.approx(np.abs(values).mean())  # equally many pairs at each token
    for name, threshold in {"above_0_005": 0.005, "above_0_01": 0.01, "above_0_02": 0.02, "above_0_04": 0.04}.items():
        assert found[name].value == pytest.approx((np.abs(values) > threshold).mean())
    assert found["kurtosis"].value == pytest.approx(stats.kurtosis(values, fisher=True, bias=True))
    assert set(found) == set(JACOBIAN_FIGURES)


def test_mean_divides_by_the_pairs_of_a_token_then_by_the_tokens_that_have_one():
    row = context_row(3, 4, pairs([0, 0, 0, 2], [1.0, -1.0, 1.0, 5.0]))
    assert (row["n_tokens"], row["n_paired_tokens"], row["n_pairs"]) == (4, 2, 4)
    assert figures(sums_by_context([row]), np.random.default_rng(0))["mean_abs"].value == (1.0 + 5.0) / 2


def test_intervals_are_those_of_contexts_and_cover_the_truth():
    covered = 0
    for seed in range(30):
        one = figures(sampled(seed, scale=0.02)[0], np.random.default_rng(seed))["mean_abs"]
        covered += one.low <= 0.02 <= one.high  # the mean size of a Laplace number is its scale
    assert covered >= 25


def test_a_difference_is_paired_where_the_contexts_are_the_same():
    a, _ = sampled(0)
    assert all(one.value == one.low == one.high == 0 for one in differences(a, a, np.random.default_rng(0), paired=True).values())
    b, _ = sampled(1, scale=0.03)
    apart = differences(a, b, np.random.default_rng(0), paired=False)["mean_abs"]
    assert apart.low < apart.value < apart.high < 0


def test_what_is_not_defined_is_none():
    empty = sums_by_context([context_row(0, 5, pairs([], []))])
    assert all(one.value is None and one.low is None for one in figures(empty, np.random.default_rng(0)).values())
    constant = sums_by_context([context_row(0, 2, pairs([0, 1], [0.5, 0.5]))] * 3)
    found = figures(constant, np.random.default_rng(0))
    assert found["kurtosis"].value is None
    assert found["mean_abs"].value == 0.5
    assert figures(sums_by_context([]), np.random.default_rng(0))["mean_abs"].value is None
