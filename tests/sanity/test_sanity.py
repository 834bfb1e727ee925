"""Which faults of an explanation each metric sees, where the judge does what it is told (Oikarinen et al. 2025).

Shuffled and empty explanations are compared with the measured null, paired over latents: what chance gives under hard
contrasts is not .5.
"""

from functools import partial

import pytest

from latentry.registry import kinds, variant
from sanity.planted_concepts import FEW, HARD, RANDOM
from sanity.sanity_runs import NULL, Summary, gain, loss
from sanity.scripted import CONTRASTS, NONE, SETTINGS, scripted_scores

HEADLINE = ("auroc", "balanced_accuracy", "pearson", "nats", "fired_share")
"""What scorers are read by; every one gives at least one of them."""
SETTING = pytest.mark.parametrize(("kind", "contrast"), SETTINGS)


SOME = FEW[:4]
few = partial(scripted_scores, latents=SOME)


def headline(kind: str, contrast: str, *, only_top: bool = False):
    """The scores of the metrics that the scorer is read by."""
    found = few(kind, contrast, only_top=only_top)
    kept = {metric: found[metric] for metric in HEADLINE if metric in found}
    assert kept
    return kept


def above(found: Summary) -> bool:
    """Whether the whole interval of a paired difference lies above 0."""
    return found.low is not None and found.low > 0


def test_every_scorer_that_reads_explanations_is_in_the_suite():
    reading = {kind for kind in kinds("scorers") if variant("scorers", kind).Config.model_construct().reads_explanations}
    assert set(CONTRASTS) == reading


@SETTING
def test_a_true_explanation_stands_above_the_null_and_a_shuffled_one(kind: str, contrast: str):
    for metric, of_metric in headline(kind, contrast).items():
        for other in (NULL, "shuffled"):
            found = gain(of_metric, "true", other)
            assert found.n == len(SOME) and above(found), (metric, other)


@SETTING
def test_a_shuffled_explanation_is_as_good_as_the_null(kind: str, contrast: str):
    for metric, of_metric in headline(kind, contrast).items():
        found = loss(of_metric, "shuffled")
        assert found is not None and found.share == pytest.approx(1, abs=0.01), metric


@SETTING
def test_an_empty_explanation_is_as_good_as_the_null_or_has_no_score_at_all(kind: str, contrast: str):
    for metric, of_metric in headline(kind, contrast).items():
        if kind == "intervention":
            assert "empty" not in of_metric  # it has no tokens, so that none grows more probable
        else:
            found = loss(of_metric, "empty")
            assert found is not None and found.share == pytest.approx(1, abs=0.05), metric


@SETTING
def test_a_too_narrow_explanation_loses_but_where_texts_are_written_from_it(kind: str, contrast: str):
    for metric, of_metric in headline(kind, contrast).items():
        found = loss(of_metric, "narrow")
        assert found is not None and found.is_seen == (kind != "sensitivity"), metric


@pytest.mark.parametrize(("kind", "contrast"), [(kind, contrasts[0]) for kind, contrasts in CONTRASTS.items() if contrasts[0] != NONE])
def test_windows_of_the_top_decile_alone_hide_that_an_explanation_is_too_narrow(kind: str, contrast: str):
    for metric, of_metric in headline(kind, contrast, only_top=True).items():
        found = loss(of_metric, "narrow")
        assert found is not None and found.share == pytest.approx(0, abs=0.01), metric


@pytest.mark.parametrize("kind", [kind for kind, contrasts in CONTRASTS.items() if HARD in contrasts])
def test_a_too_broad_explanation_loses_under_hard_contrasts_and_hardly_under_random_ones(kind: str):
    for metric, of_metric in headline(kind, HARD).items():
        random = loss(few(kind, RANDOM)[metric], "broad")
        assert above(gain(of_metric, "true", "broad")), metric
        assert random is not None and not random.is_seen, metric


def test_precision_at_the_real_frequency_sees_a_too_broad_explanation_under_random_contrasts():
    found = few("detection", RANDOM)
    assert above(gain(found["precision_at_frequency"], "true", "broad"))
    assert not above(gain(found["precision_at_frequency"], "true", "narrow"))
    assert "precision_at_frequency" not in few("detection", HARD)


def test_texts_written_from_a_too_broad_explanation_fire_less():
    found = loss(few("sensitivity", NONE)["fired_share"], "broad")
    assert found is not None and found.is_seen
