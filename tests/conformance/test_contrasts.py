"""Every contrast source found in the room keeps the promises of `Wanted`."""

import numpy as np
import pytest

from latentry.randomness import rng_for
from latentry.registry import kinds, variant
from latentry.sampling.base import Wanted
from latentry.sampling.grid import Grid, grid_of
from latentry.sampling.windows import activating_windows
from planted_corpus import WINDOW, firing, random_texts, tokens_of


def built(kind: str):
    found = variant("sampling", kind)
    return found.build(found.Config(kind=kind))


def wanted(grid: Grid, values: np.ndarray, n: int, seed: int = 0) -> Wanted:
    found = activating_windows(np.flatnonzero(values), values[values != 0], grid)
    return Wanted(
        latent=0,
        n=n,
        grid=grid,
        activating=found.windows,
        refused_texts=found.texts,
        allowed=lambda windows: grid.document[windows] % 2 == 0,
        rng=rng_for(seed, "contrast", 0),
    )


TOKENS = tokens_of([*random_texts(20, 200), *["again and again it says the same thing " * 20] * 4], context=64)
GRID = grid_of(TOKENS, WINDOW)


@pytest.mark.parametrize("kind", kinds("sampling"))
@pytest.mark.parametrize("probability", [0.01, 0.1, 0.4])
def test_contrasts_are_silent_allowed_distinct_and_drawn_again_the_same(kind: str, probability: float) -> None:
    asked = wanted(GRID, firing(TOKENS, probability, seed=1), n=8)
    drawn = built(kind).draw(asked)
    assert 0 < drawn.size <= 8
    assert not np.isin(drawn, asked.activating).any()
    assert not np.isin(GRID.text_id[drawn], asked.refused_texts).any()
    assert asked.allowed(drawn).all()
    assert len(set(GRID.text_id[drawn].tolist())) == drawn.size
    again = built(kind).draw(wanted(GRID, firing(TOKENS, probability, seed=1), n=8))
    assert drawn.tolist() == again.tolist()


@pytest.mark.parametrize("kind", kinds("sampling"))
def test_a_latent_without_silent_windows_gets_none(kind: str) -> None:
    assert built(kind).draw(wanted(GRID, firing(TOKENS, 1.1, seed=1), n=8)).size == 0


def test_random_finds_every_silent_window_when_more_are_wanted_than_there_are() -> None:
    values = firing(TOKENS, 1.1, seed=1)
    silent = [GRID.n_windows // 3, 5, 60]
    for window in silent:
        values[GRID.starts[window] : GRID.starts[window] + WINDOW] = 0
    asked = wanted(GRID, values, n=50)
    assert sorted(built("random").draw(asked)) == sorted(window for window in silent if GRID.document[window] % 2 == 0)


def test_random_draws_each_silent_window_equally_often() -> None:
    values = firing(TOKENS, 0.3, seed=2)
    counts = np.zeros(GRID.n_windows)
    n_rounds = 1500
    for seed in range(n_rounds):
        counts[built("random").draw(wanted(GRID, values, n=5, seed=seed))] += 1
    asked = wanted(GRID, values, n=5)
    silent = np.setdiff1d(np.flatnonzero(GRID.document % 2 == 0), asked.activating)
    silent = silent[~np.isin(GRID.text_id[silent], asked.refused_texts)]
    assert counts.sum() == 5 * n_rounds
    assert counts[silent].sum() == counts.sum()
    expected = 5 * n_rounds / silent.size
    # Windows that repeat a text count once per drawn text; these random texts are all distinct. Five standard deviations.
    assert np.abs(counts[silent] - expected).max() < 5 * np.sqrt(expected)
