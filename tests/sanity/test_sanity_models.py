"""The sanity suite with real small models: what they can tell on planted concepts, they must."""

import pytest

from sanity.planted_concepts import HARD
from sanity.sanity_runs import NULL, Scores, Setting, gain, loss
from sanity.with_models import SETTINGS, missing, model_scores

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
LABELS = [f"{setting.kind}-{setting.contrast}" for setting in SETTINGS]


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    return tmp_path_factory.mktemp("sanity")


@pytest.fixture(params=SETTINGS, ids=LABELS, scope="module")
def run(request, caches) -> tuple[Setting, Scores]:
    why = missing(request.param.kind)
    if why:
        pytest.skip(why)
    return request.param, model_scores(request.param, caches)


def test_a_true_explanation_stands_above_the_null_a_shuffled_and_an_empty_one(run):
    for other in (NULL, "shuffled", "empty"):
        found = gain(run[1]["auroc"], "true", other)
        assert found.low is not None and found.low > 0, other


def test_a_shuffled_explanation_is_no_better_than_the_null(run):
    found = gain(run[1]["auroc"], "shuffled", NULL)
    assert found.low is not None and found.low <= 0


def test_a_too_narrow_explanation_is_worse_and_the_judge_sees_it(run):
    lost, found = gain(run[1]["auroc"], "true", "narrow"), loss(run[1]["auroc"], "narrow")
    assert lost.mean is not None and lost.mean > 0
    # to a model that embeds or reads on, one bird's name is near to all the others
    assert run[0].kind != "detection" or (found is not None and found.is_seen)


def test_a_too_broad_explanation_loses_under_hard_contrasts(run):
    if run[0].contrast != HARD:
        pytest.skip("random contrasts cannot see a too broad explanation")
    found = loss(run[1]["auroc"], "broad")
    assert found is not None and found.is_seen
