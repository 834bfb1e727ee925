"""Centred windows against a reference that cuts and drops them one by one, and the keys of their texts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentry.sampling.centred import CentredCut, strongest_apart
from latentry.sampling.grid import grid_of, texts_at
from latentry.sampling.texts import TextKeys
from latentry.sampling.windows import Firing, looked_up
from planted_corpus import PlantedStore, PlantedTokens, firing, random_texts, tokens_of


def span_around(token_set: PlantedTokens, position: int) -> tuple[int, int]:
    """First and one past the last position of the same document and row without a special token, walked step by step."""
    context = token_set.document.shape[1]
    documents, special = token_set.document.reshape(-1), token_set.special.reshape(-1)

    def same(other: int) -> bool:
        return other // context == position // context and documents[other] == documents[position] and not special[other]

    first = last = position
    while first > 0 and same(first - 1):
        first -= 1
    while last + 1 < documents.size and same(last + 1):
        last += 1
    return first, last + 1


def naive_centred(token_set: PlantedTokens, values: np.ndarray, window: int) -> list[tuple[int, float]]:
    """Start and peak of every window, strongest first, each dropped if it overlaps a stronger one."""
    candidates = []
    for start in grid_of(token_set, window).starts.tolist():
        inside = values[start : start + window]
        if inside.any():
            peak_at = start + int(np.argmax(inside))
            first, end = span_around(token_set, peak_at)
            cut = min(max(peak_at - int(0.75 * window), first), end - window)
            candidates.append((float(values[cut : cut + window].max()), float(inside.max()), cut))
    kept: list[tuple[int, float]] = []
    for peak, _, cut in sorted(candidates, key=lambda item: (-item[0], -item[1], item[2])):
        if all(abs(cut - other) >= window for other, _ in kept):
            kept.append((cut, peak))
    texts: dict[str, tuple[int, float]] = {}
    for cut, peak in sorted(kept):
        texts.setdefault(texts_at(token_set, np.array([cut]), window)[0], (cut, peak))
    return sorted(texts.values())


@pytest.mark.parametrize("probability", [0.003, 0.05, 0.3, 1.1])
@pytest.mark.parametrize("window", [4, 8])
def test_centred_windows_equal_brute_force(probability: float, window: int) -> None:
    token_set = tokens_of([*random_texts(8, 75), "sea storm " * 40, "sea storm " * 40], context=50)
    grid = grid_of(token_set, window)
    values = firing(token_set, probability, seed=3)
    fires = Firing.of(PlantedStore({0: values}, 1), 0, signed=False)
    found = CentredCut(grid, looked_up(grid, token_set.kept), token_set).activating(fires)
    expected = naive_centred(token_set, values, window)
    assert [*zip(found.starts(grid).tolist(), found.peak.tolist(), strict=True)] == [
        (start, pytest.approx(peak)) for start, peak in expected
    ]
    assert found.n_grid == sum(values[start : start + window].any() for start in grid.starts.tolist())
    assert grid.document[found.window].tolist() == [int(token_set.document.reshape(-1)[start]) for start in found.starts(grid).tolist()]


def test_the_peak_stands_at_three_quarters_where_the_document_has_room() -> None:
    token_set = tokens_of([" ".join(f"w{i}" for i in range(40))], context=64)
    grid = grid_of(token_set, 8)
    values = np.zeros(64, dtype=np.float32)
    values[[1, 20, 39]] = [1.0, 2.0, 3.0]
    fires = Firing.of(PlantedStore({0: values}, 1), 0, signed=False)
    found = CentredCut(grid, looked_up(grid, token_set.kept), token_set).activating(fires)
    assert found.starts(grid).tolist() == [0, 14, 32]
    assert fires.dense(found.starts(grid), 8)[1].tolist() == [0, 0, 0, 0, 0, 0, 2, 0]


@settings(max_examples=80, deadline=None)
@given(data=st.data(), steps=st.lists(st.integers(0, 9), min_size=0, max_size=25))
def test_of_overlapping_windows_the_strongest_stay(data: st.DataObject, steps: list[int]) -> None:
    """Windows of 4 whose second next neighbours never overlap, as they come from a grid."""
    starts, here = [], 0
    for step in steps:
        here = max(here + step, starts[-2] + 4 if len(starts) > 1 else 0, starts[-1] + 1 if starts else 0)
        starts.append(here)
    strength = data.draw(st.permutations(range(len(starts))))
    kept: list[int] = []
    for index in sorted(range(len(starts)), key=lambda index: -strength[index]):
        if all(abs(starts[index] - starts[other]) >= 4 for other in kept):
            kept.append(index)
    found = strongest_apart(np.array(starts, dtype=np.int64), np.array(strength, dtype=np.int64), 4)
    assert np.flatnonzero(found).tolist() == sorted(kept)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.lists(st.sampled_from(["a", "b", "ab", "日", "🙂", "é"]), max_size=12), min_size=1, max_size=4),
    window=st.integers(1, 4),
)
def test_windows_have_equal_keys_exactly_when_they_have_equal_text(texts: list[list[str]], window: int) -> None:
    token_set = tokens_of([" ".join(words) for words in texts], context=20)
    document, special = token_set.document.reshape(-1), token_set.special.reshape(-1)
    starts = np.array(
        [
            start
            for start in range(document.size - window + 1)
            if not special[start : start + window].any() and len(set(document[start : start + window].tolist())) == 1
        ],
        dtype=np.int64,
    )
    keys, found = TextKeys(token_set).at(starts, window).tolist(), texts_at(token_set, starts, window)
    assert len(set(keys)) == len(set(found)) == len(set(zip(keys, found, strict=True)))
