"""The grid, text identity, peaks and deciles, against a reference that walks token by token."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentry.errors import CorpusError
from latentry.sampling.fixed import FixedCut
from latentry.sampling.grid import Grid, grid_of, texts_at
from latentry.sampling.windows import ActivatingWindows, Firing, are_silent, by_strength, decile_of, looked_up
from planted_corpus import PlantedStore, PlantedTokens, firing, random_texts, tokens_of


def naive_windows(token_set: PlantedTokens, window: int) -> tuple[list[int], int]:
    """Starts of full windows and number of dropped pieces, one token after another."""
    starts, dropped, context = [], 0, token_set.document.shape[1]
    for row, (documents, special) in enumerate(zip(token_set.document.tolist(), token_set.special.tolist(), strict=True)):
        run: list[int] = []
        for place in range(context + 1):
            here = documents[place] if place < context and not special[place] else None
            if run and (here is None or here != documents[run[0] % context]):
                full = len(run) // window
                starts += [run[i * window] for i in range(full)]
                dropped += len(run) % window > 0
                run = []
            if here is not None:
                run.append(row * context + place)
    return starts, dropped


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=8), context=st.sampled_from([8, 13, 32]), window=st.sampled_from([1, 3, 8])
)
def test_grid_equals_a_walk_over_the_tokens(lengths: list[int], context: int, window: int) -> None:
    token_set = tokens_of([" ".join(f"w{i}" for i in range(n)) for n in lengths], context)
    starts, dropped = naive_windows(token_set, window)
    if not starts:
        with pytest.raises(CorpusError, match=r"lower `examples\.window`"):
            grid_of(token_set, window)
        return
    grid = grid_of(token_set, window)
    assert grid.starts.tolist() == starts
    assert grid.n_dropped_pieces == dropped
    assert grid.n_dropped_tokens == sum(lengths) - window * len(starts)
    covered = {start + place: index for index, start in enumerate(starts) for place in range(window)}
    assert grid.window_of.tolist() == [covered.get(position, -1) for position in range(token_set.tokens.size)]


def test_a_document_of_the_next_row_and_two_documents_without_separator_start_their_own_windows() -> None:
    token_set = tokens_of(["a b c d e f g h i j k l m n o"], context=8)
    token_set.document[1, 3:] = np.where(token_set.document[1, 3:] == 0, 1, -1)
    token_set.texts.append(token_set.texts[0])
    assert grid_of(token_set, 3).starts.tolist() == [0, 3, 8, 11]


def test_a_special_token_inside_a_document_is_in_no_window() -> None:
    token_set = tokens_of(["a b c d e f g h i j k"], context=12)
    token_set.special[0, 4] = True
    assert grid_of(token_set, 3).starts.tolist() == [0, 5, 8]


def test_equal_text_has_the_id_of_its_first_window_and_other_text_another() -> None:
    token_set = tokens_of(["a b c d a b", "c d a  b e f", "a b x y"], context=20)
    grid = grid_of(token_set, 2)
    texts = texts_at(token_set, grid.starts, 2)
    assert texts == ["a b", "c d", "a b", "c d", "a  b", "e f", "a b", "x y"]
    assert grid.text_id.tolist() == [texts.index(text) for text in texts]


def naive_latent(values: np.ndarray, grid: Grid, token_set: PlantedTokens) -> dict[str, tuple[int, float]]:
    """Window and peak of the first activating window of each text."""
    found: dict[str, tuple[int, float]] = {}
    for index, text in enumerate(texts_at(token_set, grid.starts, grid.window)):
        inside = values[grid.starts[index] : grid.starts[index] + grid.window]
        if inside.any():
            found.setdefault(text, (index, inside.max()))
    return found


def fixed(values: np.ndarray, grid: Grid) -> tuple[Firing, ActivatingWindows]:
    firing = Firing.of(PlantedStore({0: values}, 1), 0, signed=False)
    return firing, FixedCut(grid, looked_up(grid, np.ones(values.size))).activating(firing)


@pytest.mark.parametrize("probability", [0.002, 0.05, 0.5])
def test_activating_windows_peaks_and_deciles_equal_brute_force(probability: float) -> None:
    token_set = tokens_of([*random_texts(6, 90), "sea storm " * 60], context=50)
    grid = grid_of(token_set, 4)
    values = firing(token_set, probability, seed=3)
    fires, found = fixed(values, grid)
    naive = naive_latent(values, grid, token_set)
    assert [*zip(found.starts(grid).tolist(), found.peak.tolist(), strict=True)] == [
        (int(grid.starts[i]), p) for i, p in sorted(naive.values())
    ]
    assert found.n_grid == sum(values[s : s + 4].any() for s in grid.starts)
    by_strength = sorted(naive.values(), key=lambda item: (item[1], item[0]))
    deciles = {int(grid.starts[window]): 10 * rank // len(naive) + 1 for rank, (window, _) in enumerate(by_strength)}
    assert dict(zip(found.starts(grid).tolist(), found.decile.tolist(), strict=True)) == deciles
    dense = fires.dense(grid.starts, 4)
    assert np.array_equal(dense, np.array([values[s : s + 4] for s in grid.starts]).reshape(-1, 4))
    assert are_silent([fires], grid.starts[None], 4)[0].tolist() == (~dense.any(axis=1)).tolist()


def test_a_latent_that_fires_only_in_dropped_pieces_has_no_window() -> None:
    token_set = tokens_of(["a b c d e"], context=6)
    _, found = fixed(np.array([0, 0, 0, 0, 1, 0], dtype=np.float32), grid_of(token_set, 4))
    assert found.n_grid == found.window.size == found.decile.size == 0


def test_equal_peaks_go_to_deciles_in_corpus_order_and_groups_are_equal() -> None:
    assert decile_of(by_strength(np.tile(np.float32([1, 2]), 500))).tolist() == [5 * (i % 2) + i // 200 + 1 for i in range(1000)]
    assert set(Counter(decile_of(by_strength(np.random.default_rng(0).random(1000).astype(np.float32))).tolist()).values()) == {100}
