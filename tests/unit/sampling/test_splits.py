"""Division of units, shares of deciles, and the check on the finished table."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentry.errors import ContractError
from latentry.randomness import rng_for
from latentry.sampling.deciles import drawn_by_decile, shares_of
from latentry.sampling.disjoint import verify_disjoint
from latentry.sampling.splits import side_keys, sides_of


def key(seed: int) -> np.uint64:
    return side_keys(seed, np.zeros(1, dtype=np.int64))[0]


@pytest.mark.parametrize(
    ("available", "n", "shares"),
    [
        ([9] * 10, 20, [2] * 10),
        ([0] + [9] * 9, 20, [0, 4, 2, 2, 2, 2, 2, 2, 2, 2]),
        ([9, 9, 1, 9, 9, 9, 9, 9, 9, 9], 20, [2, 3, 1, 2, 2, 2, 2, 2, 2, 2]),
        ([9, 2, 0, 2, 9, 9, 9, 9, 9, 9], 20, [4, 2, 0, 2, 2, 2, 2, 2, 2, 2]),
        ([0] * 9 + [5], 10, [0] * 9 + [5]),
    ],
)
def test_shares_are_equal_and_a_short_decile_takes_from_the_nearest_lower_first(available: list[int], n: int, shares: list[int]) -> None:
    assert shares_of(np.array(available), n, rng_for(0, "test")).tolist() == shares


@settings(max_examples=60, deadline=None)
@given(available=st.lists(st.integers(0, 12), min_size=10, max_size=10), n=st.integers(1, 60))
def test_shares_take_all_that_is_wanted_where_there_is_enough(available: list[int], n: int) -> None:
    shares = shares_of(np.array(available), n, rng_for(1, "test"))
    assert shares.sum() == min(n, sum(available))
    assert (shares <= available).all()


def test_every_prefix_of_a_draw_is_even_over_the_deciles() -> None:
    decile = np.repeat(np.arange(1, 11), 30)
    drawn = drawn_by_decile(decile, 47, rng_for(0, "test"))
    assert len(set(drawn.tolist())) == 47
    for n in range(1, 48):
        counts = np.bincount(decile[drawn[:n]], minlength=11)[1:]
        assert counts.max() - counts.min() <= 1


def test_each_window_of_a_decile_is_drawn_equally_often() -> None:
    decile = np.repeat(np.arange(1, 11), 5)
    counts = np.zeros(50)
    for seed in range(2000):
        counts[drawn_by_decile(decile, 10, rng_for(seed, "test"))] += 1
    # 2000 draws at 1/5: standard deviation 18; five of them.
    assert np.abs(counts - 400).max() < 90


def test_units_are_divided_near_the_proportion_of_the_splits() -> None:
    units, decile = np.repeat(np.arange(100), 10), np.tile(np.arange(1, 11), 100)
    sides = sides_of(units, decile, 50, 50, True, key(0))
    assert sides is not None
    # 100 units of ten windows at 1/2: standard deviation 50; three of them.
    assert 350 < sides.is_held_out(units).sum() < 650
    assert 4000 < sides.is_held_out(np.arange(1000, 11_000)).sum() < 6000


def test_units_are_divided_so_that_every_decile_fills_its_share_where_it_can() -> None:
    """The strongest decile stands in 6 of 60 units, so that a division by number alone would often leave a side without it."""
    decile = np.concatenate([np.repeat(np.arange(1, 10), 20), np.full(12, 10)])
    units = np.concatenate([np.arange(180) % 60, np.arange(12) % 6])
    for seed in range(30):
        sides = sides_of(units, decile, 40, 40, True, key(seed))
        assert sides is not None
        held = sides.is_held_out(units)
        assert np.bincount(decile[held], minlength=11)[1:].min() >= 4
        assert np.bincount(decile[~held], minlength=11)[1:].min() >= 4


@pytest.mark.parametrize("sizes", [[800, 45], [45, 800], [41, 30, 20], [45, 45, 45], [1] * 90, [500] + [1] * 40])
def test_few_units_of_unequal_size_are_divided_where_they_can_be(sizes: list[int]) -> None:
    units = np.repeat(np.arange(len(sizes)), sizes)
    for seed in range(20):
        sides = sides_of(units, np.ones(units.size, dtype=np.int64), 50, 40, True, key(seed))
        assert sides is not None
        assert sides.is_held_out(units).sum() >= 50
        assert (~sides.is_held_out(units)).sum() >= 40


@pytest.mark.parametrize("sizes", [[1000], [], [49, 39], [60, 39]])
def test_units_that_cannot_fill_both_splits_give_none(sizes: list[int]) -> None:
    units = np.repeat(np.arange(len(sizes)), sizes)
    assert sides_of(units, np.ones(units.size, dtype=np.int64), 50, 40, True, key(0)) is None


def table(**columns: list) -> pa.Table:
    whole = {
        "latent": [1, 1, 2, 2],
        "split": ["explain", "held_out"] * 2,
        "document": [0, 1, 1, 0],
        "context": [0, 2, 2, 4],
        "text": [*"abba"],
    }
    return pa.table(whole | columns)


@pytest.mark.parametrize(
    ("columns", "split_by", "message"),
    [
        ({"document": [0, 1, 3, 3]}, "document", r"a document in both of their splits, first \[2\]"),
        ({"text": [*"aabc"]}, "document", r"a text in both of their splits, first \[1\]"),
        ({"context": [0, 1, 2, 4]}, "context", r"neighbouring ones, in both of their splits, first \[1\]"),
        ({"context": [0, 2, 5, 4]}, "context", r"neighbouring ones, in both of their splits, first \[2\]"),
        ({"context": [0, 2, 4, 4]}, "context", r"neighbouring ones, in both of their splits, first \[2\]"),
    ],
)
def test_what_both_splits_share_is_named_by_its_latent(columns: dict, split_by: str, message: str) -> None:
    verify_disjoint(table(), split_by)
    with pytest.raises(ContractError, match=message):
        verify_disjoint(table(**columns), split_by)


def test_split_by_context_allows_a_shared_document() -> None:
    verify_disjoint(table(document=[0, 0, 0, 0]), "context")
    verify_disjoint(table().slice(0, 0))
