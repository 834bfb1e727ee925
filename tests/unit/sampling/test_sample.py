"""Which latents are looked at, in which order, and how likely each was."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from latentry.errors import ParamsError
from latentry.sampling.sample import asked_latents, sample_of_latents, strata_of


def test_all_a_list_and_a_range_name_their_latents_whatever_their_order() -> None:
    assert asked_latents("all", 5).tolist() == [0, 1, 2, 3, 4]
    assert asked_latents((4, 1, 4), 5).tolist() == [1, 4]
    assert asked_latents(SimpleNamespace(first=2, last=4), 5).tolist() == [2, 3, 4]
    assert sample_of_latents(0, (4, 1), 5).latents.tolist() == sample_of_latents(0, (1, 4), 5).latents.tolist()


@pytest.mark.parametrize("latents", [(0, 5), SimpleNamespace(first=3, last=6)])
def test_latents_that_the_sae_does_not_have_are_refused_by_number(latents: object) -> None:
    with pytest.raises(ParamsError, match=r"\[5.*: the SAE has latents 0 to 4"):
        asked_latents(latents, 5)


def test_the_order_is_a_permutation_by_the_seed() -> None:
    orders = [sample_of_latents(seed, "all", 50).latents.tolist() for seed in (0, 1)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(50))


def test_strata_are_equal_steps_of_the_logarithm_and_the_dead_are_their_own() -> None:
    counts = np.array([0, 1, 9, 10, 99, 100, 1000, 0])
    assert strata_of(counts, 3).tolist() == [0, 1, 1, 2, 2, 3, 3, 0]
    assert strata_of(np.array([7, 7]), 3).tolist() == [1, 1]
    assert strata_of(np.zeros(2, dtype=int), 3).tolist() == [0, 0]


def test_strata_take_turns_until_they_are_empty() -> None:
    counts = np.array([1] * 90 + [1000] * 10)
    sample = sample_of_latents(0, "all", 100, 2, counts)
    assert sorted(sample.latents.tolist()) == list(range(100))
    assert Counter((counts[sample.latents[:20]] > 1).tolist()) == {True: 10, False: 10}
    assert (counts[sample.latents[20:]] == 1).all()


def test_weights_by_one_over_the_inclusion_probability_give_the_mean_of_all() -> None:
    """The value of a latent is its count, which differs much between strata: the plain mean of the sample is far off."""
    counts = np.round(np.exp(np.random.default_rng(0).uniform(0, 8, size=4000))).astype(int)
    means = []
    for seed in range(40):
        sample = sample_of_latents(seed, "all", 4000, 5, counts)
        weight = 1 / sample.inclusion_probability(300)
        means.append(np.average(np.log(counts[sample.latents[:300]]), weights=weight))
    assert np.mean(means) == pytest.approx(np.log(counts).mean(), abs=0.05)


def test_without_strata_every_latent_is_as_likely_as_the_share_looked_at() -> None:
    assert sample_of_latents(0, "all", 40).inclusion_probability(10).tolist() == [0.25] * 10
