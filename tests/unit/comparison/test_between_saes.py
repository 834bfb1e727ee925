"""What is said between SAEs, scorers and judges, on planted scores, decoders and answers."""

import json

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from latentry.comparison.correlations import correlations_table
from latentry.comparison.grid import AskedScorer
from latentry.comparison.judges import corrected_rate
from latentry.contracts import SCORES
from latentry.metrics import standardised_difference
from planted_grid import DEAD, LATENTS, compare, evaluation, grid_of, make_sae, put, score_row


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


@pytest.fixture
def data(tmp_path):
    for sae, shift in {"topk-1k": 0.0, "topk-2k": 0.1}.items():
        make_sae(tmp_path / "data", sae, shift)
    return tmp_path / "data"


def rng():
    return np.random.default_rng(0)


def rewrite(folder, **changes):
    """Change what a folder's manifest says of how it was made."""
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))


def pair(tables, scorer="embedding", explainer="lexical", name="pairs.parquet"):
    (row,) = [row for row in tables[name].to_pylist() if (row["scorer"], row["explainer"]) == (scorer, explainer)]
    return row


SAES = ("topk-1k", "topk-2k")


def test_saes_scored_under_unlike_settings_are_refused_with_all_that_differs(data):
    examples = {"examples": {"window": 32, "n_latents": 5, "contrasts": {"random": {"kind": "random"}}}}
    rewrite(data / "examples" / "topk-1k", params=examples, inputs={"data/tokens": "a" * 64})
    other = {"examples": {"window": 64, "n_latents": 9, "contrasts": {"random": {"kind": "random"}}}}
    rewrite(data / "examples" / "topk-2k", params=other, inputs={"data/tokens": "b" * 64})
    row = pair(compare(grid_of(data, saes=SAES)))
    assert row["difference"] is None and row["p_adjusted"] is None and not row["forced"]
    assert [one.split(":")[0] for one in row["unlike"]] == ["digest of data/tokens", "examples.window"]
    assert "32 against 64" in row["unlike"][1]
    forced = pair(compare(grid_of(data, saes=SAES, force=True)))
    assert forced["forced"] and forced["unlike"] == row["unlike"]
    assert forced["difference"] == pytest.approx(-0.1)


def test_another_judge_is_unlike_and_another_number_of_latents_is_not(data):
    for sae, model, n in (("topk-1k", "small", 5), ("topk-2k", "large", 50)):
        scorer = {
            "scorers.embedding": {"client": "judge", "max_latents": n},
            "clients": {"judge": {"model": model}, "unused": {"model": sae}},
        }
        rewrite(data / "scores" / sae / "embedding", params=scorer)
    row = pair(compare(grid_of(data, saes=SAES)))
    assert row["unlike"] == ["judge.model: 'small' against 'large'"]
    assert pair(compare(grid_of(data, saes=SAES)), "fuzzing")["unlike"] == []


def test_the_share_of_eligible_latents_stands_beside_a_difference(data):
    row = pair(compare(grid_of(data, saes=SAES)))
    assert (row["eligible_a"], row["eligible_b"], row["unlike"], row["forced"]) == (1.0, 1.0, [], False)


def test_a_difference_that_is_but_frequency_vanishes_at_like_frequency():
    chance = rng()
    often, seldom = np.full(200, 0.1), np.full(200, 0.001)
    # both SAEs score .8 on what fires often and .6 on the rest, and have them in unlike shares
    a_frequency, b_frequency = np.concatenate([often[:160], seldom[:40]]), np.concatenate([often[:40], seldom[:160]])
    a, b = (np.where(frequency > 0.01, 0.8, 0.6) + chance.normal(0, 0.02, 200) for frequency in (a_frequency, b_frequency))
    found = standardised_difference(a, b, a_frequency, b_frequency, chance)
    assert a.mean() - b.mean() > 0.1
    assert abs(found.difference) < 0.01 and found.low < 0 < found.high and found.n == 400


def test_a_difference_within_every_bin_is_kept_and_bins_of_one_sae_count_for_nothing():
    chance = rng()
    frequency = 10 ** chance.uniform(-4, -1, 300)
    a, b = 0.7 + chance.normal(0, 0.05, 300), 0.6 + chance.normal(0, 0.05, 300)
    found = standardised_difference(a, b, frequency, frequency, chance)
    assert found.low < 0.1 < found.high and found.low > 0.08
    apart = standardised_difference(a, b, np.full(300, 0.5), np.full(300, 0.005), chance)
    assert (apart.difference, apart.low, apart.n) == (None, None, 0)
    unknown = standardised_difference(a, b, np.full(300, np.nan), np.zeros(300), chance)
    assert unknown.difference is None


def test_the_standardised_difference_by_hand():
    frequency_a, frequency_b = np.array([0.2, 0.2, 0.02, 0.02]), np.array([0.2, 0.2, 0.2, 0.2, 0.02, 0.02])
    a, b = np.array([1.0, 0.8, 0.5, 0.5]), np.array([0.6, 0.6, 0.6, 0.6, 0.5, 0.3])
    expected = (6 * (0.9 - 0.6) + 4 * (0.5 - 0.4)) / 10
    assert standardised_difference(a, b, frequency_a, frequency_b, rng()).difference == pytest.approx(expected)


def test_latents_that_two_saes_share_are_counted_and_their_scores_paired(data):
    chance = np.random.default_rng(1)
    rows_a = chance.normal(size=(24, 100)).astype(np.float32)
    rows_b = chance.normal(size=(30, 100)).astype(np.float32)
    rows_b[[12, 11, 15]] = rows_a[[11, 12, 20]]
    tables = compare(grid_of(data, saes=SAES), topk_1k=rows_a, topk_2k=rows_b)
    (overlap,) = tables["overlaps.parquet"].to_pylist()
    assert (overlap["n_shared"], overlap["n_only_a"], overlap["n_only_b"], overlap["hookpoint"]) == (3, 21, 27, "h")
    assert [(row["latent_a"], row["latent_b"]) for row in tables["matches.parquet"].to_pylist()] == [(11, 12), (12, 11), (20, 15)]
    # 11 scores .8 and 12 scores .6 in the first SAE, with .1 more in the second; 20 has no score
    row = pair(tables, name="shared_pairs.parquet")
    assert (row["n"], row["difference"]) == (2, pytest.approx((0.8 - 0.7 + 0.6 - 0.9) / 2))
    assert pair(tables, "fuzzing", name="shared_pairs.parquet")["n"] == 0


def test_saes_of_other_hookpoints_or_not_there_yet_have_nothing_in_common(data):
    path = data / "saes" / "topk-2k" / "evaluation.json"
    path.write_text(json.dumps(evaluation("topk-2k") | {"hookpoint": "elsewhere"}))
    tables = compare(grid_of(data, saes=(*SAES, "absent")))
    assert (len(tables["overlaps.parquet"]), len(tables["matches.parquet"]), len(tables["shared_pairs.parquet"])) == (0, 0, 0)


def test_one_sae_alone_makes_every_table(data):
    tables = compare(grid_of(data, saes=("topk-1k",)))
    assert (len(tables["pairs.parquet"]), len(tables["overlaps.parquet"])) == (0, 0) and len(tables["cells.parquet"])


def test_correlations_equal_scipys_and_lie_in_their_interval():
    chance = rng()
    a = chance.normal(size=60)
    b = a + chance.normal(size=60)
    rows = [
        {"sae": f"s{place % 2}", "explainer": "lexical", "scorer": scorer, "latent": place, "status": "ok", "auroc": value}
        for scorer, values in (("one", a), ("two", b), ("flat", np.full(60, 0.5)))
        for place, value in enumerate(values.tolist())
    ]
    found = correlations_table(pa.Table.from_pylist(rows), ["s0", "s1"], ["lexical"], dict.fromkeys(("one", "two", "flat"), "auroc"), 0)
    (whole,) = [row for row in found.to_pylist() if row["sae"] is None and (row["scorer_a"], row["scorer_b"]) == ("one", "two")]
    # latents are told apart by SAE, so "over all" puts both SAEs' latents in one list
    assert whole["spearman"] == pytest.approx(stats.spearmanr(np.r_[a[::2], a[1::2]], np.r_[b[::2], b[1::2]]).statistic)
    assert whole["low"] < whole["spearman"] < whole["high"] and whole["n"] == 60
    assert {row["spearman"] for row in found.to_pylist() if "flat" in (row["scorer_a"], row["scorer_b"])} == {None}


def judged(latent, number, says, activating):
    row = dict.fromkeys(SCORES.tables["judgments.parquet"].names)
    about = {"latent": latent, "explainer": "lexical", "example_id": f"{latent}-{number}", "null": False, "status": "ok"}
    return row | about | {"is_activating": activating, "says_activating": says}


def test_two_judges_agreement_and_the_cheap_ones_rates_put_right(data):
    chance = rng()
    cheap, dear = [], []
    for latent in LATENTS:
        for number in range(60):
            activating = number < 30
            true = chance.random() < (0.9 if activating else 0.2)  # what the dear judge says
            says = true if chance.random() < 0.8 else not true
            cheap.append(judged(latent, number, bool(says), activating))
            if latent < 15:
                dear.append(judged(latent, number, bool(true), activating))
    grid = grid_of(
        data,
        saes=("topk-1k",),
        scorers={name: AskedScorer(contrast="random", max_latents=None, question="q") for name in ("cheap", "dear")},
    )
    for name, rows in (("cheap", cheap), ("dear", dear)):
        put(
            data / "scores" / "topk-1k" / name,
            SCORES,
            {"scores.parquet": [score_row(LATENTS[0], "lexical", "random", graded=0.5)], "judgments.parquet": rows},
        )
    (row,) = compare(grid)["judges.parquet"].to_pylist()
    keys = {(one["latent"], one["example_id"]): one["says_activating"] for one in dear}
    both = [(one["says_activating"], keys[key]) for one in cheap if (key := (one["latent"], one["example_id"])) in keys]
    assert row["n"] == len(both) == 300 and row["reference"] == "dear"
    assert row["agreement"] == pytest.approx(np.mean([x == y for x, y in both])) and row["low"] < row["agreement"] < row["high"]
    assert row["kappa"] == pytest.approx(cohen_kappa_score(*zip(*both, strict=True)))
    assert row["true_positive_rate_low"] < 0.9 < row["true_positive_rate_high"]
    assert row["false_positive_rate_low"] < 0.2 < row["false_positive_rate_high"]


def test_a_judge_no_better_than_chance_corrects_nothing():
    chance = rng()
    says, cheap = chance.random(500) < 0.5, chance.random(400) < 0.3
    reference = ~cheap
    assert corrected_rate(says, cheap, reference, chance).rate is None
    assert corrected_rate(says, cheap, np.ones(400, bool), chance).rate is None
    assert corrected_rate(says[:0], cheap, reference, chance).rate is None


def test_a_corrected_rate_covers_the_truth():
    chance, inside = rng(), 0
    for _ in range(60):
        truth = chance.random(300) < 0.35
        says = np.where(truth, chance.random(300) < 0.85, chance.random(300) < 0.1)
        shared = chance.random(400) < 0.4
        cheap = np.where(shared, chance.random(400) < 0.85, chance.random(400) < 0.1)
        found = corrected_rate(says, cheap, shared, chance)
        inside += found.low <= 0.35 <= found.high
    assert inside >= 52  # 95 % of 60, three standard errors below


def test_dead_latents_are_in_no_correlation(data):
    found = compare(grid_of(data, saes=SAES))["correlations.parquet"].to_pylist()
    assert all(row["n"] < len(LATENTS) * 2 for row in found) and DEAD in LATENTS
