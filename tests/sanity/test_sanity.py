"""Which faults of an explanation each metric sees, where the judge does what it is told (Oikarinen et al. 2025).

Shuffled and empty explanations are compared with the measured null, paired over latents: what chance gives under hard
contrasts is not .5.
"""

import pytest

from latentry.registry import kinds, variant
from sanity.planted_concepts import HARD, RANDOM
from sanity.sanity_runs import NULL, gain, loss
from sanity.scripted import CONTRASTS, SETTINGS, scripted_scores

HEADLINE = ("auroc", "balanced_accuracy", "pearson", "nats", "fired_share")


def headline(kind: str, contrast: str):
    """The scores of the metrics that the scorer is read by."""
    found = scripted_scores(kind, contrast)
    return {metric: found[metric] for metric in HEADLINE if metric in found}


def test_every_scorer_that_reads_explanations_is_in_the_suite():
    reading = {kind for kind in kinds("scorers") if variant("scorers", kind).Config.model_construct().reads_explanations}
    assert set(CONTRASTS) == reading


@pytest.mark.parametrize(("kind", "contrast"), SETTINGS)
def test_a_true_explanation_stands_above_the_null_a_shuffled_and_an_empty_one(kind: str, contrast: str):
    for metric, of_metric in headline(kind, contrast).items():
        for other in (NULL, "shuffled", "empty"):
            found = gain(of_metric, "true", other)
            assert found.n == 12 and found.low is not None and found.low > 0, (metric, other)


@pytest.mark.parametrize(("kind", "contrast"), SETTINGS)
def test_a_shuffled_and_an_empty_explanation_are_no_better_than_the_null(kind: str, contrast: str):
    for metric, of_metric in headline(kind, contrast).items():
        whole = gain(of_metric, "true", NULL).mean
        for other in ("shuffled", "empty"):
            found = gain(of_metric, other, NULL)
            assert whole is not None and found.mean is not None and abs(found.mean) < 0.05 * whole, (metric, other)


@pytest.mark.parametrize(("kind", "contrast"), SETTINGS)
def test_a_too_narrow_explanation_loses_where_the_windows_are_of_every_decile(kind: str, contrast: str):
    for metric, of_metric in headline(kind, contrast).items():
        found = loss(of_metric, "narrow")
        assert found is not None and found.is_seen, metric


@pytest.mark.parametrize(("kind", "contrast"), SETTINGS)
def test_windows_of_the_top_decile_alone_hide_that_an_explanation_is_too_narrow(kind: str, contrast: str):
    for metric in headline(kind, contrast):
        found = loss(scripted_scores(kind, contrast, only_top=True)[metric], "narrow")
        assert found is not None and not found.is_seen, metric


@pytest.mark.parametrize("kind", [kind for kind, contrasts in CONTRASTS.items() if HARD in contrasts])
def test_a_too_broad_explanation_loses_under_hard_contrasts_and_hardly_under_random_ones(kind: str):
    for metric in headline(kind, HARD):
        hard, random = (loss(scripted_scores(kind, contrast)[metric], "broad") for contrast in (HARD, RANDOM))
        assert hard is not None and hard.is_seen, metric
        assert random is not None and not random.is_seen, metric
