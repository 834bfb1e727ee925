"""The comparison against grids with planted scores."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from latentry.comparison.grid import AskedScorer, remove_unnamed, remove_unnamed_cells
from latentry.comparison.summary import summary_of, write_metrics
from latentry.contracts import COMPARISON, EXAMPLES, SCORES
from latentry.errors import ContractError
from latentry.metric_kinds import METRIC_KINDS, chance_of, context_of, kind_of, reported_name
from latentry.plot_rows import cost_rows, latent_rows, score_rows, with_breadth
from latentry.store import work
from planted_grid import LATENTS, SAES, compare, grid_of, make_sae, put, score_row


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


@pytest.fixture
def data(tmp_path):
    for sae, shift in zip(SAES, (0.0, 0.15, 0.0), strict=True):
        make_sae(tmp_path / "data", sae, shift)
    return tmp_path / "data"


def cell(tables, **wanted):
    rows = [row for row in tables["cells.parquet"].to_pylist() if all(row[name] == value for name, value in wanted.items())]
    assert len(rows) == 1
    return rows[0]


def test_a_cell_shows_the_planted_mean_null_and_lift_over_the_latents_that_have_both(data):
    row = cell(compare(grid_of(data)), sae="topk-1k", explainer="lexical", scorer="embedding")
    scores = [0.6, 0.8] * 4 + [0.6]
    assert (row["metric"], row["headline"], row["n"], row["n_asked"]) == ("auroc_random", True, 9, 10)
    assert row["mean"] == pytest.approx(np.mean(scores))
    assert row["frequency_weighted_mean"] == pytest.approx(np.average(scores, weights=range(1, 10)))
    assert (row["null"], row["n_lift"]) == (pytest.approx(0.5), 7)
    assert row["lift"] == pytest.approx(np.mean(scores[:7]) - 0.5)
    assert row["low"] < row["mean"] < row["high"]


def test_a_latent_that_was_not_judged_is_counted_under_why(data):
    tables = compare(grid_of(data))
    assert json.loads(cell(tables, sae="topk-1k", explainer="lexical", scorer="embedding")["statuses"]) == {"ok": 9, "dead": 1}
    failed = cell(tables, sae="topk-1k", explainer="default", scorer="embedding")
    assert (failed["n"], failed["mean"], json.loads(failed["statuses"])) == (0, None, {"parse_error": 9, "dead": 1})


def test_a_scorer_that_was_asked_for_few_latents_counts_only_those(data):
    # ranks run backwards, so that the first four are latents 16 to 19, of which 19 is dead
    row = cell(compare(grid_of(data)), sae="topk-1k", explainer="lexical", scorer="fuzzing")
    assert (row["metric"], row["headline"], row["n"], row["n_asked"]) == ("balanced_accuracy_wrong_position", True, 3, 4)
    unjudged = cell(compare(grid_of(data)), sae="topk-1k", explainer="default", scorer="fuzzing")
    assert json.loads(unjudged["statuses"]) == {"single_class": 3, "dead": 1}


def test_a_scorer_that_grades_has_auroc_as_headline_and_both_metrics(data):
    graded = [score_row(latent, "lexical", "random", graded=0.7, decided=0.6) for latent in LATENTS[:-1]]
    put(data / "scores" / "topk-1k" / "detection", SCORES, {"scores.parquet": graded, "judgments.parquet": []})
    scorers = {"detection": AskedScorer(contrast="random", max_latents=None)}
    rows = compare(grid_of(data, saes=("topk-1k",), explainers=("lexical",), scorers=scorers))["cells.parquet"].to_pylist()
    assert [(row["metric"], row["headline"]) for row in rows] == [("auroc_random", True), ("balanced_accuracy_random", False)]


def put_scores(data, sae, scorer, rows):
    put(data / "scores" / sae / scorer, SCORES, {"scores.parquet": rows, "judgments.parquet": []})


def test_what_is_scored_without_explanations_stands_once_per_sae_under_none(data):
    for sae, found in (("topk-1k", 0.4), ("topk-2k", 0.8)):
        put_scores(data, sae, "intruder", [{**score_row(latent, "none", "random"), "accuracy": found} for latent in LATENTS[:-1]])
    (data / "explanations" / "topk-2k" / "manifest.json").unlink()  # no explanation is needed
    scorers = {
        "embedding": AskedScorer(contrast="random", max_latents=None),
        "intruder": AskedScorer(contrast="random", max_latents=None, reads_explanations=False),
    }
    tables = compare(grid_of(data, saes=("topk-1k", "topk-2k"), scorers=scorers))
    cells = [row for row in tables["cells.parquet"].to_pylist() if row["scorer"] == "intruder"]
    assert [(row["sae"], row["explainer"], row["metric"], row["mean"], row["n"], row["n_asked"]) for row in cells] == [
        ("topk-1k", "none", "accuracy_random", pytest.approx(0.4), 9, 10),
        ("topk-2k", "none", "accuracy_random", pytest.approx(0.8), 9, 10),
    ]
    assert (cells[0]["null"], cells[0]["lift"], json.loads(cells[0]["statuses"])) == (None, None, {"ok": 9, "single_class": 1})
    mine = [row for row in tables["latents.parquet"].to_pylist() if row["scorer"] == "intruder"]
    assert {(row["explainer"], row["explanation"]) for row in mine} == {("none", None)}
    pairs = [row for row in tables["pairs.parquet"].to_pylist() if row["scorer"] == "intruder"]
    assert [(row["explainer"], row["difference"]) for row in pairs] == [("none", pytest.approx(-0.4))]
    assert not [row for row in tables["explainer_pairs.parquet"].to_pylist() if row["scorer"] == "intruder"]
    assert not [row for row in tables["cells.parquet"].to_pylist() if row["scorer"] == "embedding" and row["explainer"] == "none"]
    summary = summary_of(tables["cells.parquet"], tables["saes.parquet"])
    assert summary["topk-1k"]["scores"]["none"] == {"intruder": {"score": 0.4}}


def test_metrics_carry_the_class_ratio_and_whether_judging_was_adaptive_in_their_names(data):
    rows = [{**score_row(latent, "lexical", "random", graded=0.7, decided=0.6), "f1": 0.5} for latent in LATENTS[:-1]]
    rows += [{**score_row(latent, "lexical", "random", null=True, graded=0.5, decided=0.5), "f1": 0.4} for latent in LATENTS[:-1]]
    put_scores(data, "topk-1k", "detection", rows)
    scorers = {"detection": AskedScorer(contrast="random", max_latents=None, class_ratio=(1, 2), is_adaptive=True)}
    tables = compare(grid_of(data, saes=("topk-1k",), explainers=("lexical",), scorers=scorers))
    cells = {row["metric"]: row for row in tables["cells.parquet"].to_pylist()}
    assert list(cells) == ["auroc_random_adaptive", "balanced_accuracy_random_adaptive", "f1_random_1to2_adaptive"]
    assert [row["lift"] for row in cells.values()] == pytest.approx([0.2, 0.1, 0.1])
    found = summary_of(tables["cells.parquet"], tables["saes.parquet"])["topk-1k"]["scores"]["lexical"]["detection"]
    assert found == {"score": 0.7, "lift": 0.2, "balanced_accuracy": 0.6}


def test_the_lift_of_nats_is_a_difference(data):
    rows = [{**score_row(latent, "lexical", ""), "nats": 1.5} for latent in LATENTS[:-1]]
    rows += [{**score_row(latent, "lexical", "", null=True), "nats": -0.5} for latent in LATENTS[:3]]
    put_scores(data, "topk-1k", "intervention", rows)
    scorers = {"intervention": AskedScorer(contrast="", max_latents=None)}
    row = cell(compare(grid_of(data, saes=("topk-1k",), explainers=("lexical",), scorers=scorers)), metric="nats")
    assert (row["mean"], row["null"], row["lift"], row["n_lift"]) == (1.5, -0.5, 2.0, 3)


def stratified(data, sae, probabilities):
    path = data / "examples" / sae / "latents.parquet"
    rows = pq.read_table(path).to_pylist()
    for row in rows:
        row["stratum"], row["inclusion_probability"] = row["latent"] % 2, probabilities[row["latent"] % 2]
    pq.write_table(pa.Table.from_pylist(rows, schema=EXAMPLES.tables["latents.parquet"]), path)


def test_latents_drawn_with_unequal_probabilities_weigh_one_over_their_own(data):
    plain = cell(compare(grid_of(data)), sae="topk-1k", explainer="lexical", scorer="embedding")
    stratified(data, "topk-1k", (0.5, 0.5))
    assert cell(compare(grid_of(data)), sae="topk-1k", explainer="lexical", scorer="embedding") == plain
    stratified(data, "topk-1k", (0.01, 0.5))
    row = cell(compare(grid_of(data)), sae="topk-1k", explainer="lexical", scorer="embedding")
    # five even latents score .6 and weigh 100, four odd ones .8 and weigh 2
    assert row["mean"] == pytest.approx((5 * 100 * 0.6 + 4 * 2 * 0.8) / 508)
    assert (row["median"], row["quartile_3"]) == (0.6, 0.6)
    assert row["low"] < row["mean"] < row["high"]
    # the head of the sample holds latents 16 to 19: two of five of either stratum
    fuzzed = compare(grid_of(data))["latents.parquet"].to_pylist()
    found = {row["latent"]: row["inclusion_probability"] for row in fuzzed if (row["sae"], row["scorer"]) == ("topk-1k", "fuzzing")}
    assert found[16] == found[18] == pytest.approx(0.01 * 2 / 5)
    assert found[17] == pytest.approx(0.5 * 2 / 5)


def test_a_missing_cell_is_shown_empty_and_the_others_are_compared(data):
    whole = compare(grid_of(data))
    (data / "scores" / "topk-2k" / "embedding" / "manifest.json").unlink()
    (data / "saes" / "jumprelu-1k" / "manifest.json").unlink()
    tables = compare(grid_of(data))
    missing = cell(tables, sae="topk-2k", explainer="lexical", scorer="embedding")
    assert (missing["metric"], missing["n"], missing["n_asked"], missing["mean"], missing["statuses"]) == ("auroc_random", 0, 0, None, "{}")
    kept = {"sae": "topk-1k", "explainer": "lexical", "scorer": "embedding"}
    assert cell(tables, **kept) == cell(whole, **kept)
    assert [row["width"] for row in tables["saes.parquet"].to_pylist()] == [1024, 2048, None]
    assert "embedding" not in summary_of(tables["cells.parquet"], tables["saes.parquet"])["topk-2k"]["scores"]["lexical"]


def test_names_of_metrics_never_collide_and_lead_back_to_their_kind():
    sources = ["", "random", "same-document", "neighbours-decoder", "semantic", "wrong-position", "mixed"]
    names = {}
    for kind in METRIC_KINDS:
        for source in sources:
            for ratio in ((1, 1), (1, 10)) if METRIC_KINDS[kind].at_class_ratio else ((1, 1),):
                for adaptive in (False, True):
                    names[kind, source, ratio, adaptive] = reported_name(kind, source, ratio, adaptive=adaptive)
    assert len(set(names.values())) == len(names)
    assert all(kind_of(name) == kind for (kind, *_), name in names.items())
    assert (names["f1", "random", (1, 1), False], names["nats", "", (1, 1), False]) == ("f1_random_1to1", "nats")
    assert context_of("f1_same_document_1to10_adaptive") == "same document contrasts, 1 to 10, adaptive"
    assert (context_of("nats"), context_of("pearson_0to9_random")) == ("", "random contrasts")
    assert (chance_of("precision_random_1to3"), chance_of("accuracy_random"), chance_of("f1_random_1to1")) == (0.25, 0.2, None)


def test_a_grid_without_any_result_gives_empty_rows(tmp_path):
    tables = compare(grid_of(tmp_path / "nothing"))
    assert len(tables["latents.parquet"]) == 0
    assert {row["metric"] for row in tables["cells.parquet"].to_pylist()} == {"auroc_random", "auroc_wrong_position"}
    assert all(row["difference"] is None for row in tables["pairs.parquet"].to_pylist())


def test_cells_on_disk_that_are_not_named_are_not_read(data):
    before = compare(grid_of(data))
    make_sae(data, "topk-1k-old")
    assert all(before[name].equals(table) for name, table in compare(grid_of(data)).items())


def test_scores_of_one_scorer_under_two_contrasts_are_refused(data):
    other = data / "scores" / "topk-2k" / "embedding" / "scores.parquet"
    rows = [{**row, "contrast_source": "neighbours"} for row in pq.read_table(other).to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCORES.tables["scores.parquet"]), other)
    with pytest.raises(ContractError, match="neighbours"):
        compare(grid_of(data))


def test_pairs_find_the_planted_difference_and_no_other(data):
    pairs = {
        (row["sae_a"], row["sae_b"], row["explainer"]): row
        for row in compare(grid_of(data))["pairs.parquet"].to_pylist()
        if row["scorer"] == "embedding"
    }
    apart, same = pairs["topk-1k", "topk-2k", "lexical"], pairs["topk-1k", "jumprelu-1k", "lexical"]
    assert (apart["difference"], same["difference"]) == (pytest.approx(-0.15), pytest.approx(0))
    assert apart["high"] < 0 < same["high"]
    # three of the six tests could be made (the default explainer scored nothing), and two share the smallest p
    assert apart["p_adjusted"] == pytest.approx(3 * apart["p_value"])
    assert (same["p_adjusted"], pairs["topk-1k", "topk-2k", "default"]["p_adjusted"]) == (1.0, None)


def test_explainers_are_compared_on_the_latents_that_both_have(data):
    tables = compare(grid_of(data))
    rows = {
        (row["sae"], row["explainer_a"], row["explainer_b"]): row
        for row in tables["explainer_pairs.parquet"].to_pylist()
        if row["scorer"] == "embedding"
    }
    scores: dict = {}
    for row in tables["latents.parquet"].to_pylist():
        if row["scorer"] == "embedding" and row["auroc"] is not None:
            scores.setdefault((row["sae"], row["explainer"]), {})[row["latent"]] = row["auroc"]
    for (sae, a, b), row in rows.items():
        one, other = scores.get((sae, a), {}), scores.get((sae, b), {})
        gaps = [one[latent] - other[latent] for latent in sorted(one.keys() & other.keys())]
        assert row["n"] == len(gaps)
        assert row["difference"] == (pytest.approx(sum(gaps) / len(gaps)) if gaps else None)
        assert row["p_value"] is None or 0 <= row["p_value"] <= row["p_adjusted"] <= 1


def test_one_cell_does_not_depend_on_the_others_of_the_grid(data):
    wanted = {"sae": "topk-2k", "explainer": "lexical", "scorer": "embedding"}
    alone = compare(grid_of(data, saes=("topk-2k",), explainers=("lexical",)))
    assert cell(alone, **wanted) == cell(compare(grid_of(data)), **wanted)


def test_metrics_in_git_hold_rounded_headlines_and_are_the_same_bytes_twice(data, tmp_path):
    for name in ("one", "two"):
        with work(tmp_path / name, COMPARISON, cell=name, params={}) as making:
            for table, rows in compare(grid_of(data)).items():
                making.write_table(table, rows)
        write_metrics(tmp_path / name, data / "saes", tmp_path / f"metrics-{name}")
    one, two = (tmp_path / f"metrics-{name}" for name in ("one", "two"))
    files = sorted(path.relative_to(one) for path in one.rglob("*.json"))
    plots = ("correlations", "deciles", "latents", "saes", "scores", "training")
    assert [path.as_posix() for path in files] == [*(f"plots/{name}.json" for name in plots), "summary.json"]
    assert all((one / path).read_bytes() == (two / path).read_bytes() for path in files)
    found = json.loads((one / "summary.json").read_text())["topk-1k"]
    assert found["quality"] == {"l0": 32.0, "fvu": 0.25, "ce_recovered": 0.9, "dead_fraction": 0.1, "width": 1024}
    assert found["scores"] == {"lexical": {"embedding": {"score": 0.6889, "lift": 0.1857}, "fuzzing": {"score": 0.5}}}


def test_the_training_curves_of_all_saes_stand_in_one_file_of_flat_rows(data, tmp_path):
    with work(tmp_path / "one", COMPARISON, cell="one", params={}) as making:
        for table, rows in compare(grid_of(data)).items():
            making.write_table(table, rows)
    curve = "step,tokens,loss,mse,sparsity,l0\n4,1024,0.75,0.5,0.25,31.5\n8,2048,0.5,0.25,0.25,32\n"
    (data / "saes" / "topk-2k" / "loss.csv").write_text(curve)  # the others come from elsewhere
    write_metrics(tmp_path / "one", data / "saes", tmp_path / "metrics")
    about = {"sae": "topk-2k", "loss": "topk", "width": 2048}
    assert json.loads((tmp_path / "metrics/plots/training.json").read_text()) == [
        about | {"tokens": 1024, "value": 0.75, "mse": 0.5, "l0": 31.5},
        about | {"tokens": 2048, "value": 0.5, "mse": 0.25, "l0": 32.0},
    ]


def test_a_long_training_curve_is_thinned_and_keeps_its_end(data, tmp_path):
    with work(tmp_path / "one", COMPARISON, cell="one", params={}) as making:
        for table, rows in compare(grid_of(data)).items():
            making.write_table(table, rows)
    points = "".join(f"{n},{n},1,1,0,32\n" for n in range(1, 251))
    (data / "saes" / "topk-1k" / "loss.csv").write_text("step,tokens,loss,mse,sparsity,l0\n" + points)
    write_metrics(tmp_path / "one", data / "saes", tmp_path / "metrics")
    tokens = [row["tokens"] for row in json.loads((tmp_path / "metrics/plots/training.json").read_text())]
    assert tokens == list(range(1, 251, 3))


def test_rows_for_plots_hold_every_scored_cell_and_latent(data):
    tables = compare(grid_of(data))
    cells = score_rows(tables["cells.parquet"], tables["saes.parquet"])
    assert len(cells) == 6 and cells[0]["width"] == 1024 and cells[0]["loss"] == "topk"
    latents = latent_rows(tables["latents.parquet"], tables["cells.parquet"], tables["saes.parquet"])
    assert len(latents) == 3 * (9 + 3)
    assert {(row["scorer"], row["metric"]) for row in latents} == {
        ("embedding", "auroc_random"),
        ("fuzzing", "balanced_accuracy_wrong_position"),
    }


def test_rows_for_plots_leave_out_a_sae_that_is_not_there_and_know_chance_and_breadth(data):
    (data / "saes" / "topk-2k" / "manifest.json").unlink()
    tables = compare(grid_of(data))
    cells, saes = tables["cells.parquet"], tables["saes.parquet"]
    assert {row["sae"] for row in latent_rows(tables["latents.parquet"], cells, saes)} == {"topk-1k", "jumprelu-1k"}
    rows = with_breadth(score_rows(cells, saes))
    assert {(row["chance"], row["unit"]) for row in rows} == {(0.5, "score")}
    assert all(row["breadth"] == pytest.approx(row["high"] - row["low"]) for row in rows)
    assert cost_rows(score_rows(cells, saes)) == rows  # no judge was asked: 0 calls
    assert with_breadth([rows[0] | {"low": None, "high": None}])[0]["breadth"] is None


def test_removing_unnamed_cells_deletes_exactly_the_others(data):
    make_sae(data, "old-8k")
    (data / "saes" / ".gitignore").write_text("/topk-1k\n")
    grid = grid_of(data, scorers={"embedding": AskedScorer(contrast="random", max_latents=None)})
    removed = {path.relative_to(data).as_posix() for path in remove_unnamed_cells(grid)}
    assert removed == {f"{room}/old-8k" for room in ("saes", "examples", "explanations", "scores")} | {
        f"scores/{sae}/fuzzing" for sae in SAES
    }
    assert sorted(path.name for path in (data / "saes").iterdir()) == sorted([".gitignore", *SAES])
    assert remove_unnamed_cells(grid) == []


def test_removing_a_linked_folder_leaves_what_it_points_to(tmp_path):
    (tmp_path / "precious" / "inner").mkdir(parents=True)
    (tmp_path / "saes").mkdir()
    (tmp_path / "saes" / "link").symlink_to(tmp_path / "precious")
    assert remove_unnamed(tmp_path / "saes", ["topk-1k"]) == [tmp_path / "saes" / "link"]
    assert (tmp_path / "precious" / "inner").is_dir() and not (tmp_path / "saes" / "link").is_symlink()


def test_an_evaluation_without_a_key_is_refused_with_the_cell_to_rerun(data):
    (data / "saes" / "topk-1k" / "evaluation.json").write_text("{}")
    with pytest.raises(ContractError, match="rerun `dvc repro sae@topk-1k`"):
        compare(grid_of(data))


def test_shares_found_by_decile_are_means_over_the_latents_that_have_them_and_never_of_the_null(data):
    shares = {11: [0.0, 0.5, None, *[1.0] * 7], 12: [1.0, None, None, *[1.0] * 7], 13: None}
    rows = [score_row(latent, "lexical", "random", decided=0.6) | {"decile_found": of} for latent, of in shares.items()]
    rows.append(score_row(11, "lexical", "random", null=True, decided=0.6) | {"decile_found": [0.3] * 10})
    rows.append(score_row(14, "lexical", "random", status="single_class") | {"decile_found": [0.3] * 10})
    put(data / "scores" / "topk-1k" / "detection", SCORES, {"scores.parquet": rows, "judgments.parquet": []})
    scorers = {"detection": AskedScorer(contrast="random", max_latents=None)}
    found = compare(grid_of(data, saes=("topk-1k", "topk-2k"), scorers=scorers))["deciles.parquet"].to_pylist()
    assert {(row["sae"], row["explainer"], row["scorer"]) for row in found} == {("topk-1k", "lexical", "detection")}
    assert [(row["decile"], row["found"], row["n"]) for row in found[:4]] == [(1, 0.5, 2), (2, 0.5, 1), (3, None, 0), (4, 1.0, 2)]
    assert (found[0]["low"], found[0]["high"]) == (0.0, 1.0) and found[1]["low"] is None


def test_a_cell_counts_each_reply_of_a_judge_once_and_none_where_no_judge_was_asked(data):
    def judgment(explainer, key, null=False):
        return {"latent": 11, "explainer": explainer, "example_id": "", "null": null, "status": "ok", "reply_key": key}

    asked = [judgment("lexical", key) for key in "aab"] + [judgment("lexical", "c", null=True), judgment("default", None)]
    scores = [score_row(11, explainer, "random", decided=0.6) for explainer in ("lexical", "default")]
    put(data / "scores" / "topk-1k" / "detection", SCORES, {"scores.parquet": scores, "judgments.parquet": asked})
    scorers = {"detection": AskedScorer(contrast="random", max_latents=None)}
    cells = compare(grid_of(data, saes=("topk-1k", "topk-2k"), scorers=scorers))["cells.parquet"].to_pylist()
    found = {(row["sae"], row["explainer"]): row["n_calls"] for row in cells}
    assert found == {("topk-1k", "lexical"): 3, ("topk-1k", "default"): 0, ("topk-2k", "lexical"): None, ("topk-2k", "default"): None}
