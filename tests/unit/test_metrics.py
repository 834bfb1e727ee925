"""Scores and intervals against scikit-learn, scipy, brute force and simulation."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import average_precision_score, balanced_accuracy_score, f1_score, precision_score, roc_auc_score

from latentry import metrics
from latentry.contracts import SCORES
from latentry.errors import NumericsError
from latentry.metrics import Design
from latentry.metrics.intervals import corrected_wilson_interval
from latentry.randomness import rng_for
from latentry.records import Judgment, Status


def rng():
    return rng_for(0, "test")


def judgment(is_activating, says=None, confidence=None, status=Status.OK, place=0):
    return Judgment(
        latent=3,
        explainer="lexical",
        example_id=f"e{place}",
        null=False,
        is_activating=is_activating,
        says_activating=says,
        confidence=confidence,
        status=status,
        detail="" if status is Status.OK else "why",
        reply_key=None,
    )


def value_of(score, metric):
    one = score.values.get(metric)
    return None if one is None else one.value


def graded(positive, negative, decide=True):
    rows = [(True, c) for c in positive] + [(False, c) for c in negative]
    return [judgment(truth, c > 0.5 if decide else None, c, place=i) for i, (truth, c) in enumerate(rows)]


# few distinct values, so that ties are common
grades = st.lists(st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=12)


@given(grades, grades)
def test_auroc_equals_scikit_learn_and_the_share_of_pairs_won(positive, negative):
    confidence = np.array(positive + negative)
    truth = np.array([True] * len(positive) + [False] * len(negative))
    pairs = [1.0 if p > n else 0.5 if p == n else 0.0 for p, n in itertools.product(positive, negative)]
    found = metrics.auroc(confidence, truth)
    assert found == pytest.approx(roc_auc_score(truth, confidence), abs=1e-12)
    assert found == pytest.approx(np.mean(pairs), abs=1e-12)


def test_auroc_of_one_class_or_of_nan_is_refused():
    with pytest.raises(ValueError, match="both must be there"):
        metrics.auroc(np.array([0.1, 0.2]), np.array([True, True]))
    with pytest.raises(NumericsError, match="1 of 2"):
        metrics.auroc(np.array([0.1, np.nan]), np.array([True, False]))


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_equals_scipy(counts):
    successes, n = counts
    expected = stats.binomtest(successes, n).proportion_ci(method="wilson")
    assert metrics.wilson_interval(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=40))
def test_balanced_accuracy_equals_scikit_learn_and_lies_in_its_interval(rows):
    truth, says = zip(*rows, strict=True)
    found = metrics.latent_score([judgment(t, s) for t, s in rows], rng())
    if len(set(truth)) == 1:
        assert (found.status, value_of(found, "balanced_accuracy")) == (Status.SINGLE_CLASS, None)
        return
    assert value_of(found, "balanced_accuracy") == pytest.approx(balanced_accuracy_score(truth, says))
    assert 0 <= found.values["balanced_accuracy"].low <= value_of(found, "balanced_accuracy") <= found.values["balanced_accuracy"].high <= 1


def test_balanced_accuracy_interval_of_a_case_worked_by_hand():
    # Wilson of 40/50 is (.66963, .88758) and of 30/50 is (.46180, .72392)
    low, high = metrics.balanced_accuracy_interval(40, 50, 30, 50)
    assert low == pytest.approx(0.7 - np.hypot(0.8 - 0.66963, 0.6 - 0.46180) / 2, abs=1e-4)
    assert high == pytest.approx(0.7 + np.hypot(0.88758 - 0.8, 0.72392 - 0.6) / 2, abs=1e-4)


def test_balanced_accuracy_interval_covers_the_truth_about_95_percent_of_the_time():
    chance = rng()
    hits, rejections = chance.binomial(50, 0.85, 2000), chance.binomial(50, 0.7, 2000)
    inside = [
        low <= 0.775 <= high
        for low, high in (metrics.balanced_accuracy_interval(a, 50, b, 50) for a, b in zip(hits, rejections, strict=True))
    ]
    assert 0.93 <= np.mean(inside) <= 0.975


def test_auroc_interval_covers_the_truth_about_95_percent_of_the_time():
    chance = rng()
    true = stats.norm.cdf(1 / np.sqrt(2))  # P(N(1,1) > N(0,1))
    truth = np.arange(80) < 40
    inside = 0
    for _ in range(200):
        low, high = metrics.auroc_interval(chance.normal(size=80) + truth, truth, chance)
        inside += low <= true <= high
    assert 180 <= inside <= 199  # 95 % of 200 within three standard errors, less the known optimism of percentiles


def test_auroc_interval_equals_scipys_bootstrap_within_class():
    chance = np.random.default_rng(5)
    positive, negative = chance.normal(0.8, 1, 30), chance.normal(0, 1, 20)
    wins = (positive[:, None] > negative[None, :]).astype(float)
    expected = stats.bootstrap(
        (np.arange(30), np.arange(20)),
        lambda a, c: wins[a][:, c].mean(),
        n_resamples=2000,
        method="percentile",
        vectorized=False,
        rng=np.random.default_rng(1),
    ).confidence_interval
    found = metrics.auroc_interval(np.concatenate([positive, negative]), np.arange(50) < 30, rng())
    assert found == pytest.approx((expected.low, expected.high), abs=0.015)  # Monte Carlo error of a 2.5 % quantile


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_corrected_wilson_interval_equals_scipy(counts):
    successes, n = counts
    expected = stats.binomtest(successes, n).proportion_ci(method="wilsoncc")
    assert corrected_wilson_interval(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(grades, grades, st.sampled_from([0.5, 1.0, 2.0]))
def test_average_precision_equals_scikit_learn_with_contrasts_weighted_to_the_class_ratio(positive, negative, ratio):
    truth = np.array([True] * len(positive) + [False] * len(negative))
    confidence = np.array(positive + negative)
    weights = np.where(truth, 1 / len(positive), ratio / len(negative))
    expected = average_precision_score(truth, confidence, sample_weight=weights)
    assert metrics.average_precision(confidence, truth, ratio) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=40), st.sampled_from([0.5, 1.0, 3.0]), st.floats(0.001, 0.4))
def test_f1_and_precisions_equal_scikit_learn_with_weights_and_lie_in_their_intervals(rows, ratio, pi):
    truth, says = (np.array(side) for side in zip(*rows, strict=True))
    found = metrics.latent_score([judgment(t, s) for t, s in rows], rng(), Design(ratio=ratio, window_fraction=pi)).values
    if truth.all() or not truth.any():
        assert not found
        return
    at_ratio, at_pi = (np.where(truth, 1 / truth.sum(), k / (~truth).sum()) for k in (ratio, (1 - pi) / pi))
    assert found["f1"].value == pytest.approx(f1_score(truth, says, sample_weight=at_ratio, zero_division=0))
    if not says.any():
        assert "precision" not in found and "precision_at_frequency" not in found
        return
    assert found["precision"].value == pytest.approx(precision_score(truth, says, sample_weight=at_ratio))
    assert found["precision_at_frequency"].value == pytest.approx(precision_score(truth, says, sample_weight=at_pi))
    for one in found.values():
        assert 0 <= one.low <= one.value <= one.high <= 1


def test_precision_at_the_real_frequency_of_a_case_worked_by_hand():
    # TPR .9, FPR .02, pi .01: .009 / (.009 + .0198)
    judged = [judgment(True, i < 45) for i in range(50)] + [judgment(False, i < 1) for i in range(50)]
    found = metrics.latent_score(judged, rng(), Design(window_fraction=0.01)).values["precision_at_frequency"]
    assert found.value == pytest.approx(0.009 / 0.0288)
    # no false alarm among 50 proves little of a latent that fires in 1 % of windows
    none = [judgment(True, True)] * 50 + [judgment(False, False)] * 50
    found = metrics.latent_score(none, rng(), Design(window_fraction=0.01)).values["precision_at_frequency"]
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low < 0.15
    assert "precision_at_frequency" not in metrics.latent_score(none, rng()).values


@pytest.mark.parametrize("rates", [(0.8, 0.2), (0.95, 0.05), (0.6, 0.5)])
def test_precision_interval_covers_the_truth_about_95_percent_of_the_time(rates):
    chance, pi = rng(), 0.05
    true = rates[0] * pi / (rates[0] * pi + rates[1] * (1 - pi))
    drawn = [chance.binomial(50, rate, 1500).tolist() for rate in rates]
    intervals = [metrics.precision_interval(hits, 50, alarms, 50, pi) for hits, alarms in zip(*drawn, strict=True)]
    assert 0.93 <= np.mean([low <= true <= high for low, high in intervals]) <= 0.985


def test_an_order_that_is_perfect_is_worth_exactly_1_and_none_is_worth_more():
    rng = np.random.default_rng(0)
    for n_activating in range(1, 60):
        for n_contrast in (1, 3, 7, 40):
            truth = np.arange(n_activating + n_contrast) < n_activating
            for confidence in (truth * 1.0, truth + rng.random(len(truth)) / 2, truth + rng.integers(3, size=len(truth)) / 4):
                for ratio in (0.1, 1, 3.7):
                    assert metrics.average_precision(confidence, truth, ratio) == 1
                assert metrics.auroc(confidence, truth) == 1


@pytest.mark.parametrize("metric", ["f1", "average_precision"])
def test_bootstrap_intervals_at_the_class_ratio_equal_scipys(metric):
    chance = np.random.default_rng(5)
    positive, negative = chance.normal(0.8, 1, 30).round(1), chance.normal(0, 1, 20).round(1)
    of = {
        "average_precision": lambda a, c: average_precision_score(np.arange(len(a) + len(c)) < len(a), np.concatenate([a, c])),
        "f1": lambda a, c: 2 * (a > 0.5).sum() / ((a > 0.5).sum() + (c > 0.5).sum() + len(a)),
    }
    options = {"n_resamples": 700, "method": "percentile", "vectorized": False, "rng": np.random.default_rng(1)}
    expected = stats.bootstrap((positive, negative), of[metric], **options).confidence_interval
    found = metrics.latent_score(graded(positive.tolist(), negative.tolist()), rng(), Design(ratio=20 / 30)).values[metric]
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.03)  # Monte Carlo error of 2.5 % quantiles


def test_a_bootstrap_of_whole_prompts_knows_that_windows_of_one_prompt_go_together():
    # five prompts of ten windows, each answered all right or all wrong: five answers, not fifty
    judged = []
    for place in range(50):
        right = place // 10 in (0, 1, 2)
        one = judgment(place % 2 == 0, (place % 2 == 0) == right, 0.9 if (place % 2 == 0) == right else 0.1, place=place)
        judged.append(dataclasses.replace(one, reply_key=f"prompt {place // 10}"))
    apart, together = (metrics.latent_score(judged, rng(), Design(by_prompt=by_prompt)).values for by_prompt in (False, True))
    for metric in ("auroc", "f1", "average_precision"):
        assert apart[metric].value == together[metric].value
        widths = [one[metric].high - one[metric].low for one in (apart, together)]
        assert widths[1] > 1.5 * widths[0]
    # by brute force: draws of the number of right prompts among five
    drawn = np.quantile(np.random.default_rng(0).binomial(5, 0.6, 100_000) / 5, [0.025, 0.975])
    assert (together["auroc"].low, together["auroc"].high) == pytest.approx(tuple(drawn), abs=0.05)


def test_shares_found_are_given_by_decile_and_only_where_there_are_decisions():
    judged = [judgment(True, i % 3 == 0, place=i) for i in range(6)] + [judgment(False, False, place=9)]
    deciles = {f"e{i}": 1 + i // 2 for i in range(6)}
    found = metrics.latent_score(judged, rng(), Design(deciles=deciles)).decile_found
    assert found == (0.5, 0.5, 0.0, None, None, None, None, None, None, None)
    assert metrics.latent_score(graded([0.9], [0.1], decide=False), rng(), Design(deciles=deciles)).row()["decile_found"] is None


def measured(*values):
    return [dataclasses.replace(judgment(True, True, place=i), says_activating=None, value=value) for i, value in enumerate(values)]


def test_a_mean_of_zeros_and_ones_has_wilsons_interval():
    score = metrics.mean_score("accuracy", [*measured(1, 1, 0, 1), judgment(True, status=Status.PARSE_ERROR)], rng())
    found, expected = score.values["accuracy"], stats.binomtest(3, 4).proportion_ci(method="wilson")
    assert (found.value, score.n_activating, score.n_failed) == (0.75, 4, 1)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_a_mean_of_nats_has_scipys_bootstrap_interval_and_none_where_nothing_varies():
    values = np.random.default_rng(0).normal(0.4, 1, 30)
    found = metrics.mean_score("nats", measured(*values), rng()).values["nats"]
    expected = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=5000, rng=np.random.default_rng(1)).confidence_interval
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.05)
    assert metrics.mean_score("nats", measured(0.5, 0.5), rng()).values["nats"] == metrics.Estimate(value=0.5)


def test_nothing_measured_is_a_status_and_no_number():
    failed = metrics.mean_score("nats", [judgment(True, status=Status.KL_UNREACHED)], rng())
    assert (failed.status, failed.values, failed.n_failed) == (Status.KL_UNREACHED, {}, 1)
    assert metrics.mean_score("nats", [], rng()).status is Status.UNDERSAMPLED


def simulated(levels_of, truth_of, n=8, tokens=6, seed=0):
    chance = np.random.default_rng(seed)
    actual = {f"e{i}": tuple(float(a) for a in (chance.gamma(2, 1, tokens) * (i % 2 == 0)) * truth_of) for i in range(n)}
    made = []
    for i in range(n):
        levels = tuple(levels_of(np.array(actual[f"e{i}"]), chance).tolist())
        made.append(dataclasses.replace(judgment(i % 2 == 0, True, place=i), says_activating=None, levels=levels))
    return made, actual


def test_simulation_scores_scipys_pearson_over_all_tokens_with_a_bootstrap_of_examples():
    made, actual = simulated(lambda a, chance: a + chance.normal(0, 1, len(a)), 1.0, n=40)
    found = metrics.simulation_score(made, actual, rng()).values["pearson"]
    pairs = [(np.array(one.levels), np.array(actual[one.example_id])) for one in made]
    assert found.value == pytest.approx(stats.pearsonr(*(np.concatenate(side) for side in zip(*pairs, strict=True))).statistic)
    chance, draws = np.random.default_rng(1), []
    for _ in range(1000):
        drawn = [2 * i for i in chance.integers(0, 20, 20)] + [1 + 2 * i for i in chance.integers(0, 20, 20)]
        draws.append(np.corrcoef(*(np.concatenate(side) for side in zip(*(pairs[i] for i in drawn), strict=True)))[0, 1])
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])), abs=0.02)


@pytest.mark.parametrize(("levels", "scale", "said"), [(0.0, 1.0, "simulated levels"), (1.0, 0.0, "activations")])
def test_a_constant_side_of_a_simulation_is_a_status_and_no_number(levels, scale, said):
    made, actual = simulated(lambda a, chance: levels * chance.normal(0, 1, len(a)), scale)
    score = metrics.simulation_score(made, actual, rng())
    assert (score.status, score.values) == (Status.CONSTANT, {})
    assert said in score.detail
    with pytest.raises(ValueError, match="one level per token"):
        metrics.simulation_score(*simulated(lambda a, chance: a[:-1] + chance.normal(0, 1, len(a) - 1), 1.0), rng())


def test_perfect_separation_gets_wilsons_interval_of_the_smaller_class():
    score = metrics.latent_score(graded([0.9] * 8, [0.1] * 5), rng())
    assert (value_of(score, "auroc"), score.values["auroc"].high) == (1.0, 1.0)
    assert score.values["auroc"].low == pytest.approx(stats.binomtest(5, 5).proportion_ci(method="wilson").low)


def test_equal_confidences_score_one_half_and_stay_ok():
    score = metrics.latent_score(graded([0.7] * 4, [0.7] * 4), rng())
    assert score.values["average_precision"].low < 0.4 < 0.6 < score.values["average_precision"].high
    assert (score.status, value_of(score, "auroc")) == (Status.OK, 0.5)
    assert score.values["auroc"].low < 0.5 < score.values["auroc"].high
    assert (value_of(score, "recall"), value_of(score, "balanced_accuracy")) == (1.0, 0.5)


@settings(max_examples=20)
@given(st.randoms(use_true_random=False))
def test_order_of_judgments_changes_nothing(random):
    judgments = graded([0.9, 0.4, 0.6, 0.8], [0.1, 0.5, 0.6])
    shuffled = list(judgments)
    random.shuffle(shuffled)
    assert metrics.latent_score(shuffled, rng()) == metrics.latent_score(judgments, rng())


def test_failed_judgments_are_counted_and_change_no_number():
    judgments = graded([0.9, 0.4], [0.1, 0.6])
    failed = [judgment(True, status=Status.PARSE_ERROR), judgment(False, status=Status.REFUSED), judgment(False, status=Status.PARSE_ERROR)]
    clean, mixed = metrics.latent_score(judgments, rng()), metrics.latent_score(judgments + failed, rng())
    assert (value_of(mixed, "auroc"), value_of(mixed, "balanced_accuracy"), mixed.n_contrast) == (
        value_of(clean, "auroc"),
        value_of(clean, "balanced_accuracy"),
        2,
    )
    assert (mixed.status, mixed.n_failed) == (Status.OK, 3)
    assert mixed.detail == "failed: 2 parse_error, 1 refused"


def test_a_latent_without_any_answer_takes_the_status_of_most_failures():
    statuses = [Status.REFUSED, Status.PARSE_ERROR, Status.PARSE_ERROR]
    score = metrics.latent_score([judgment(True, status=status) for status in statuses], rng())
    assert (score.status, value_of(score, "auroc"), value_of(score, "balanced_accuracy"), score.n_failed) == (
        Status.PARSE_ERROR,
        None,
        None,
        3,
    )


def test_a_class_lost_to_failures_is_single_class_and_never_zero_or_one():
    score = metrics.latent_score([*graded([0.9, 0.8], []), judgment(False, status=Status.TRUNCATED)], rng())
    assert (score.status, value_of(score, "auroc"), value_of(score, "balanced_accuracy")) == (Status.SINGLE_CLASS, None, None)
    assert "0 contrast" in score.detail
    assert metrics.latent_score([], rng()).status is Status.SINGLE_CLASS


def test_answers_that_are_not_graded_have_no_auroc_and_grades_alone_no_accuracy():
    decided = metrics.latent_score([judgment(True, True), judgment(False, False)], rng())
    assert (value_of(decided, "auroc"), value_of(decided, "recall"), value_of(decided, "balanced_accuracy")) == (None, 1.0, 1.0)
    only_graded = metrics.latent_score(graded([0.9], [0.1], decide=False), rng())
    assert (value_of(only_graded, "auroc"), value_of(only_graded, "balanced_accuracy"), value_of(only_graded, "recall")) == (
        1.0,
        None,
        None,
    )


def test_latent_score_is_a_row_of_the_contract():
    others = {"latent", "explainer", "null", "contrast_source", "partner"}
    score = metrics.latent_score(graded([0.9, 0.4], [0.1, 0.6]), rng())
    assert set(score.row()) <= set(SCORES.tables["scores.parquet"].names) - others
    assert score.row()["auroc"] == 0.75


def test_summary_equals_numpy_and_scipys_bootstrap():
    values = np.random.default_rng(3).beta(4, 2, 60)
    frequencies = np.random.default_rng(4).uniform(0.001, 0.1, 60)
    found = metrics.summary(values, rng(), frequencies)
    expected = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=5000, rng=np.random.default_rng(1)).confidence_interval
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.006)
    assert (found.quartile_1, found.median, found.quartile_3) == pytest.approx(tuple(np.percentile(values, [25, 50, 75])))
    assert found.frequency_weighted_mean == pytest.approx(np.average(values, weights=frequencies))


def test_equal_weights_change_no_digit():
    chance = np.random.default_rng(3)
    a, b, frequencies, same = chance.beta(4, 2, 60), chance.beta(3, 2, 60), chance.uniform(0.001, 0.1, 60), np.full(60, 7.5)
    assert metrics.summary(a, rng(), frequencies, same) == metrics.summary(a, rng(), frequencies)
    assert metrics.lift(a, b, rng(), same) == metrics.lift(a, b, rng())
    assert metrics.difference(a, b, rng(), same, same) == metrics.difference(a, b, rng())
    assert metrics.smallest_detectable(a, b, same, same) == metrics.smallest_detectable(a, b)
    assert metrics.paired_p_value(a, b, same) == metrics.paired_p_value(a, b) == stats.ttest_rel(a, b).pvalue


def test_latents_drawn_unevenly_are_weighted_back_to_all_of_them():
    # 900 common latents near .6, 100 rare near .9; 50 of each are drawn
    chance = np.random.default_rng(0)
    population = np.concatenate([chance.normal(0.6, 0.05, 900), chance.normal(0.9, 0.05, 100)])
    means, covered, p_values = [], [], []
    for _ in range(150):
        drawn = np.concatenate([chance.choice(900, 50, replace=False), 900 + chance.choice(100, 50, replace=False)])
        weights = np.where(drawn < 900, 18.0, 2.0)
        found = metrics.summary(population[drawn], chance, weights=weights)
        means.append(found.mean)
        covered.append(found.low <= population.mean() <= found.high)
        whole = chance.choice(population, 80)
        p_values.append(metrics.difference(population[drawn], whole, chance, weights).p_value)
    assert np.mean(means) == pytest.approx(population.mean(), abs=0.005)
    assert np.mean(covered) >= 0.9
    assert np.mean(np.array(p_values) < 0.05) <= 0.12


def test_weighted_mean_median_and_spread_equal_those_of_repeated_latents():
    values, weights = np.array([0.2, 0.5, 0.9, 0.7, 0.4]), np.array([1.0, 4.0, 2.0, 1.0, 3.0])
    repeated = np.repeat(values, weights.astype(int))
    found = metrics.summary(values, rng(), np.array([1.0, 2.0, 3.0, 4.0, 5.0]), weights)
    assert found.mean == pytest.approx(repeated.mean())
    assert found.median == np.median(repeated)
    assert found.frequency_weighted_mean == pytest.approx(np.average(values, weights=weights * np.arange(1, 6)))


def test_summary_of_one_latent_has_no_interval_and_of_none_no_number():
    one, none = metrics.summary(np.array([0.7]), rng()), metrics.summary(np.array([]), rng())
    assert (one.mean, one.low, one.high, one.n) == (0.7, None, None, 1)
    assert (none.mean, none.median, none.n) == (None, None, 0)


def test_bootstrap_of_many_latents_is_done_in_parts_and_keeps_its_width():
    values = np.random.default_rng(0).normal(size=5000)
    found = metrics.summary(values, rng())
    assert found.high - found.low == pytest.approx(2 * 1.96 / np.sqrt(5000), rel=0.1)


def test_lift_takes_exactly_the_latents_that_have_both():
    scores, nulls = np.array([0.9, 0.8, 0.7, np.nan]), np.array([0.5, 0.6, np.nan, 0.4])
    found = metrics.lift(scores, nulls, rng())
    assert (found.mean, found.n) == (pytest.approx(0.3), 2)
    assert found.low == pytest.approx(0.2) and found.high == pytest.approx(0.4)
    assert metrics.lift(scores, np.full(4, np.nan), rng()) == metrics.Summary(n=0)


def test_difference_equals_scipys_welch_test_and_interval():
    chance = np.random.default_rng(2)
    a, b = chance.normal(0.75, 0.1, 40), chance.normal(0.65, 0.2, 25)
    found = metrics.difference(a, b, rng())
    welch = stats.ttest_ind(a, b, equal_var=False)
    assert found.p_value == pytest.approx(welch.pvalue)
    interval = welch.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=0.02)
    assert found.difference == pytest.approx(a.mean() - b.mean())


def test_difference_that_cannot_be_tested_says_so_by_none():
    lone = metrics.difference(np.array([0.7]), np.array([0.6, 0.5]), rng())
    assert (lone.difference, lone.low, lone.p_value) == (pytest.approx(0.15), None, None)
    assert metrics.difference(np.array([]), np.array([0.6]), rng()).difference is None
    constant = metrics.difference(np.full(3, 0.1 + 0.2), np.full(4, 0.5), rng())
    assert (constant.low, constant.p_value) == (pytest.approx(-0.2), None)


def test_holm_of_a_case_worked_by_hand():
    # sorted .005 .01 .03 .04 times 4 3 2 1 is .02 .03 .06 .04, and made to rise
    assert metrics.holm([0.01, 0.04, None, 0.03, 0.005]) == pytest.approx([0.03, 0.06, None, 0.06, 0.02])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_holm_rejects_exactly_what_stepping_down_rejects(p_values):
    adjusted = metrics.holm(p_values)
    order, rejected = sorted(p_values), 0
    while rejected < len(order) and order[rejected] * (len(order) - rejected) <= 0.05:
        rejected += 1
    assert sum(p <= 0.05 for p in adjusted) == rejected


def test_smallest_detectable_difference_is_detected_80_percent_of_the_time():
    chance = rng()
    shape = chance.normal(size=(2, 60))
    a, b = (shape - shape.mean(axis=1, keepdims=True)) / shape.std(axis=1, ddof=1, keepdims=True) * np.array([[0.1], [0.2]])
    smallest = metrics.smallest_detectable(a, b)
    p_values = stats.ttest_ind(chance.normal(smallest, 0.1, (60, 1500)), chance.normal(0, 0.2, (60, 1500)), equal_var=False).pvalue
    assert np.mean(p_values < 0.05) == pytest.approx(0.8, abs=0.04)  # 1,500 trials have a standard error of .01
    assert metrics.smallest_detectable(a, b[:1]) is None
