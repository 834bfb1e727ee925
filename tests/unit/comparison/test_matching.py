"""Matching of decoder rows against planted permutations and the dense Hungarian method."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from latentry.comparison import matching
from latentry.comparison.matching import SHARED, matched


def rows(n, d, seed):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def test_a_planted_permutation_is_found_whatever_the_rows_lengths():
    a, chance = rows(300, 24, 0), np.random.default_rng(1)
    order = chance.permutation(300)
    b = (a[order] + 0.05 * rows(300, 24, 2)) * chance.uniform(0.2, 5, (300, 1)).astype(np.float32)
    found = matched(a, b)
    assert len(found.latent_a) == 300
    assert (order[found.latent_b] == found.latent_a).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_sum_of_cosines_is_that_of_the_dense_hungarian_method(seed, monkeypatch):
    monkeypatch.setattr(matching, "_PRODUCT", 500)  # several blocks
    centres = rows(12, 6, seed)
    chance = np.random.default_rng(seed)
    a, b = (centres[chance.integers(0, 12, n)] + 0.3 * rows(n, 6, seed + 100 * n) for n in (40, 55))
    unit_a, unit_b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    cosines = unit_a @ unit_b.T
    worth = np.where(cosines >= SHARED, cosines, 0)
    best = worth[linear_sum_assignment(-worth)].sum()
    found = matched(a, b)
    assert found.cosine.sum() == pytest.approx(best, rel=1e-4)
    assert len(set(found.latent_a)) == len(found.latent_a) and len(set(found.latent_b)) == len(found.latent_b)
    assert found.cosine == pytest.approx(cosines[found.latent_a, found.latent_b], abs=1e-5) and (found.cosine >= SHARED).all()


def test_unrelated_rows_and_rows_of_length_zero_match_nothing():
    assert len(matched(rows(50, 200, 0), rows(60, 200, 1)).latent_a) == 0
    assert len(matched(np.zeros((3, 4), np.float32), rows(5, 4, 0)).latent_a) == 0


def test_a_wider_sae_keeps_what_the_other_lacks_to_itself():
    b = rows(80, 32, 0)
    found = matched(b[10:30], b)
    assert found.latent_a.tolist() == list(range(20)) and found.latent_b.tolist() == list(range(10, 30))


def test_rows_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match="length 4 and 5"):
        matched(rows(2, 4, 0), rows(2, 5, 0))
