"""A draw depends on seed, purpose and latent, and on nothing else."""

import subprocess
import sys

import numpy as np
import pytest

from latentry.randomness import rng_for


def draw(*place) -> list[int]:
    return rng_for(*place).integers(2**62, size=4).tolist()


def test_the_same_place_draws_the_same_whatever_was_drawn_elsewhere():
    alone = draw(0, "contrast", 7)
    for latent in range(20):
        draw(0, "contrast", latent)
    np.random.default_rng(0).random(5)
    assert draw(0, "contrast", 7) == alone


def test_another_process_draws_the_same():
    script = "from latentry.randomness import rng_for; print(rng_for(3, 'split', 5).integers(2**62, size=4).tolist())"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.strip() == str(draw(3, "split", 5))


@pytest.mark.parametrize(
    "other",
    [(1, "contrast", 7), (0, "contrasts", 7), (0, "contrast", 8), (0, "contrast"), (0, "contrast", 0), (0, "contrast7"), (-0, "", 7)],
)
def test_any_other_place_draws_otherwise(other):
    assert draw(*other) != draw(0, "contrast", 7)


def test_neighbouring_latents_are_not_correlated():
    first, second = (np.array([rng_for(0, "x", latent + shift).random() for latent in range(2000)]) for shift in (0, 1))
    # The standard error of a correlation of 2,000 independent pairs is 0.022.
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1
    assert first.mean() == pytest.approx(0.5, abs=0.03)


def test_latent_0_is_a_latent_and_not_the_absence_of_one():
    assert draw(0, "contrast", 0) != draw(0, "contrast")
