"""What an item's design adds to its judgments: class ratio, real frequency, deciles."""

from dataclasses import replace

import pytest

from latentry.randomness import rng_for
from latentry.records import Judgment, Status
from latentry.registry import variant
from latentry.scorers.told_apart import told_apart
from planted_windows import item, window


def judged(one, found):
    """All contrasts rejected but one, and activating windows found where `found` says so of their number."""
    return [
        Judgment(
            latent=1,
            explainer="told",
            example_id=example.example_id,
            null=False,
            is_activating=any(example.activations),
            says_activating=found(example.rank) if any(example.activations) else example.rank == 100,
            confidence=None,
            status=Status.OK,
            detail="",
            reply_key=None,
        )
        for example in one.examples
    ]


def score(one, contrast="random", found=lambda _: True):
    return told_apart(one, judged(one, found), rng_for(0, "test"), contrast=contrast)


def test_precision_at_the_real_frequency_comes_of_uniformly_drawn_contrasts_alone():
    one = replace(item("tax", n=20), window_fraction=0.01)
    # TPR 1, FPR 1 of 20
    assert score(one).values["precision_at_frequency"].value == pytest.approx(0.01 / (0.01 + 0.05 * 0.99))
    assert "precision_at_frequency" not in score(replace(one, window_fraction=None)).values
    neighbours = [replace(example, source="neighbours") if not any(example.activations) else example for example in one.examples]
    assert "precision_at_frequency" not in score(replace(one, examples=tuple(neighbours))).values
    mixed = (*one.examples, window(1, 500, None, contrast="random"))
    half = tuple(replace(example, source="semantic") if example.rank == 500 else example for example in mixed)
    assert "precision_at_frequency" not in score(replace(one, examples=half)).values


def test_precision_and_f1_are_at_the_designed_class_ratio_whatever_was_there():
    one = replace(item("tax", n=20), class_ratio=(1, 4))
    values = score(one).values
    assert values["precision"].value == pytest.approx(1 / (1 + 4 * 0.05))
    assert values["f1"].value == pytest.approx(2 / (2 + 4 * 0.05))


def test_shares_found_stand_by_decile():
    found = score(item("tax", n=20), found=lambda number: number % 10 >= 5).decile_found
    assert found == (0.0,) * 5 + (1.0,) * 5


@pytest.mark.parametrize(
    ("kind", "settings", "ratio"),
    [
        ("detection", {}, (1, 2)),
        ("detection", {"max_examples": 30}, (5, 6)),
        ("detection", {"max_examples": 5}, (1, 1)),
        ("fuzzing", {}, (1, 1)),
        ("fuzzing", {"contrast": "random"}, (1, 2)),
    ],
)
def test_the_designed_class_ratio_is_that_of_the_windows_used(kind, settings, ratio):
    assert variant("scorers", kind).Config(kind=kind, client="judge", **settings).class_ratio(25, 50) == ratio
