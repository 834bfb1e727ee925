"""The plots draw what the rows say, offline; how they look was judged by eye."""

import json
import re
import struct
from pathlib import Path

import pytest
import vl_convert
import yaml

from latentry import plots
from latentry.contracts import COMPARISON
from latentry.plot_rows import evenly

ROOT = Path(__file__).parents[2]
SAES = [(loss, name, width) for loss in ("topk", "jumprelu") for name, width in (("1k", 1024), ("2k", 2048), ("4k", 4096))]
SCORERS = {"embedding": "auroc_random", "fuzzing": "auroc_wrong_position"}
NOTHING = "nothing has been scored or measured yet"
COUNTED = {"low": 0.6, "high": 0.8, "n": 12}


def about(loss, name, width):
    return {"sae": f"{loss}-{name}", "loss": loss, "width": width}


def sae_rows():
    return [{**about(*sae), "l0": 32.0, "fvu": 0.3} for sae in SAES]


def score_rows(scorers=SCORERS, saes=None, **changes):
    numbers = {"score": 0.7, **COUNTED, "null": 0.5, "null_low": 0.45, "null_high": 0.55, "n_calls": 40, "breadth": 0.2, **changes}
    return [
        {**row, **numbers, "explainer": "lexical", "scorer": scorer, "metric": metric}
        for row in saes or sae_rows()
        for scorer, metric in scorers.items()
    ]


def latent_rows(n=5):
    rows = [row for row in score_rows({"embedding": "auroc_random"}) for _ in range(n)]
    kept = ("sae", "loss", "width", "explainer", "scorer", "metric")
    numbers = [{"latent": i, "score": 0.5 + 0.4 * (i % n) / n, "firing_frequency": 0.001 * (i % n + 1)} for i in range(len(rows))]
    return [{name: row[name] for name in kept} | of for row, of in zip(rows, numbers, strict=True)]


def decile_rows():
    return [
        {**about(*sae), **COUNTED, "explainer": "lexical", "scorer": "fuzzing", "decile": d, "found": 0.07 * d}
        for sae in SAES
        for d in range(1, 11)
    ]


def correlation_rows():
    pairs = (("embedding", "fuzzing"), ("embedding", "détection"), ("fuzzing", "détection"))
    return [{"sae": None, "explainer": "lexical", "scorer_a": a, "scorer_b": b, "spearman": 0.7, **COUNTED} for a, b in pairs]


ALL = [
    (plots.score_by_width, score_rows),
    (plots.score_by_l0, score_rows),
    (plots.score_by_fvu, score_rows),
    (plots.frontier, sae_rows),
    (plots.score_distribution, latent_rows),
    (plots.score_by_frequency, latent_rows),
    (plots.found_by_decile, decile_rows),
    (plots.interval_by_calls, score_rows),
    (plots.correlations, correlation_rows),
]
DRAWN = [ALL[place] for place in (3, 4, 6)]


def words(chart):
    return re.findall(r">([^<>]+)</t(?:ext|span)>", plots.to_svg(chart))


def marks(svg, kind):
    return svg.count(f'aria-roledescription="{kind}"')


@pytest.mark.parametrize(("plot", "rows"), ALL)
def test_every_plot_is_the_same_twice(plot, rows):
    assert plot(rows()).to_dict() == plot(rows()).to_dict()


@pytest.mark.parametrize(("plot", "rows"), DRAWN)
def test_plots_of_saes_name_their_losses(plot, rows):
    assert {"topk SAEs", "jumprelu SAEs"} <= set(words(plot(rows())))


@pytest.mark.parametrize(("plot", "rows"), ALL)
def test_every_plot_tells_who_hovers_the_sae_or_scorers_and_the_number(plot, rows):
    spec = str(plot(rows()).to_dict())
    told = set(re.findall(r"'field': '(\w+)'", "".join(re.findall(r"'tooltip': \[.*?\]", spec))))
    assert {"sae"} <= told or {"scorer_a", "scorer_b", "interval", "n"} <= told
    assert told & {"score", "found", "spearman", "fvu"}


def test_svg_is_the_same_twice():
    assert plots.to_svg(plots.frontier(sae_rows())) == plots.to_svg(plots.frontier(sae_rows()))


@pytest.mark.parametrize(("plot", "rows"), ALL)
def test_every_plot_of_nothing_says_so(plot, rows):
    found = json.dumps(plot(rows()[:0]).to_dict())
    assert NOTHING in found or " yet" in found or "needs two scorers" in found


def test_a_comparison_of_nothing_that_could_be_scored_has_all_its_plots_of_nothing():
    figures = plots.figures_of({name: schema.empty_table() for name, schema in COMPARISON.tables.items()})
    assert len(figures) == len({figure.name for figure in figures}) == 9
    assert all(set(figure.chart.to_dict()["encoding"]) == {"text"} for figure in figures)


def test_an_explainers_scorers_stand_in_one_row():
    rows = [{**row, "explainer": explainer} for explainer in ("lexical", "default") for row in score_rows()]
    alone = [{**row, "explainer": "none", "scorer": "example-embedding"} for row in score_rows({"embedding": "auroc_random"})]
    assert plots.score_by_width([*rows, *alone]).to_dict()["columns"] == 2


def test_scores_by_width_say_metric_chance_contrast_and_n():
    found = words(plots.score_by_width(score_rows()))
    assert {"1k", "2k", "4k", "AUROC (chance 0.5)", "embedding of lexical explanations", "wrong position contrasts, n = 12"} <= set(found)


def test_mixed_metrics_of_one_chance_share_a_scale_and_are_named_by_panel():
    found = words(plots.score_by_width(score_rows({"embedding": "auroc_random", "fuzzing": "balanced_accuracy_random"})))
    assert {"score (chance 0.5)", "balanced accuracy", "AUROC"} <= set(found)


def test_metrics_of_other_chance_or_unit_stand_apart_each_with_its_own():
    scorers = {"intervention": "nats", "simulation": "pearson_random", "intruder": "accuracy", "embedding": "auroc_random"}
    chart = plots.score_by_width(score_rows(scorers)).to_dict()
    parts = chart["vconcat"]
    axes = {
        json.dumps(layer["encoding"]["y"]["title"])
        for part in parts
        for layer in part["spec"]["layer"]
        if layer["encoding"]["y"].get("title")
    }
    assert axes == {
        '["correlation (Pearson) (chance 0)"]',
        '["intruders found (chance 0.2)"]',
        '["AUROC (chance 0.5)"]',
        '["gain in log p(explanation) (nats)"]',
    }
    chances = [{row["chance"] for row in part["data"]["values"]} for part in parts]
    assert sorted(chances[:-1], key=min) == [{0.0}, {0.2}, {0.5}]
    assert chances[-1] == {None}  # the nats, for which only the measured null tells


def test_a_scorer_that_reads_no_explanation_is_named_as_such():
    rows = [{**row, "explainer": "none"} for row in score_rows({"intruder": "accuracy"})]
    assert "intruder, no explanation read" in words(plots.score_by_width(rows))


def test_a_cell_of_one_latent_without_interval_or_null_keeps_its_point():
    bare_rows = score_rows(low=None, high=None, null=None, null_low=None, null_high=None)
    whole, bare = (plots.to_svg(plots.score_by_width(some)) for some in (score_rows(), bare_rows))
    assert marks(whole, "point") == marks(bare, "point") >= len(bare_rows)
    assert marks(bare, "rule mark") < marks(whole, "rule mark")


@pytest.mark.parametrize("n", [1, 12])
def test_one_sae_and_twelve_saes_of_any_name_are_all_drawn(n):
    saes = [{"sae": f"SAE-{i}-中文", "loss": f"é{i % 5}", "width": 1000 * (1 + i // 5), "l0": 32.0, "fvu": 0.3} for i in range(n)]
    svg = plots.to_svg(plots.score_by_fvu(score_rows({"embedding": "auroc_random"}, saes)))
    assert marks(svg, "point") == n
    assert "é0 SAEs" in svg


def test_beyond_seven_no_two_names_share_colour_and_shape():
    spec = plots.interval_by_calls(score_rows({f"scorer-{i}": "auroc_random" for i in range(14)})).to_dict()["spec"]["encoding"]
    assert len(set(zip(spec["color"]["scale"]["range"], spec["shape"]["scale"]["range"], strict=True))) == 14


def test_a_score_below_chance_is_not_cut_off():
    chart = plots.score_by_width(score_rows(low=0.12)).to_dict()
    assert '"domain": [0.1, 1.0]' in str(chart).replace("'", '"')


def test_many_latents_are_thinned_evenly_but_counted_whole():
    chart = plots.score_distribution(latent_rows(n=700)).to_dict()
    points = [row for row in chart["data"]["values"] if not row["box"]]
    assert len(points) == plots.POINTS_PER_PANEL
    assert {row["sae"] for row in points} == {row["sae"] for row in sae_rows()}
    assert "n = 700" in points[0]["panel"]
    assert "at most 1500 points a panel" in chart["title"]["subtitle"]
    assert "at most" not in plots.score_distribution(latent_rows()).to_dict()["title"]["subtitle"]


def test_all_panels_together_draw_a_bounded_number_of_latents():
    rows = [
        {**row, "scorer": f"scorer-{i}", "metric": metric}
        for i, metric in enumerate(["nats", "accuracy", "auroc"] * 2)
        for row in latent_rows(n=200)
    ]
    parts = plots.score_by_frequency(rows).to_dict()["vconcat"]
    assert sum(len(part["data"]["values"]) for part in parts) == 3000


def test_rows_in_git_are_thinned_evenly():
    rows = [{"latent": place} for place in range(10)]
    assert evenly(rows, 10) == rows
    assert [row["latent"] for row in evenly(rows, 4)] == [0, 2, 5, 7]


def test_png_has_the_size_of_the_chart_times_its_scale():
    sizes = [struct.unpack(">II", plots.to_png(plots.frontier(sae_rows()), scale=scale)[16:24]) for scale in (1, 2)]
    assert sizes[1] == pytest.approx([2 * side for side in sizes[0]], abs=2)
    assert 600 < sizes[0][0] < 1000


ROWS = {"scores": score_rows, "saes": sae_rows, "latents": latent_rows, "deciles": decile_rows, "correlations": correlation_rows}
DVC_PLOTS = {name: plot for entry in yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"] for name, plot in entry.items()}


@pytest.mark.parametrize("name", [name for name in DVC_PLOTS if name != "training"])
def test_the_template_of_every_dvc_plot_draws_its_rows_of_two_revisions(name):
    plot = DVC_PLOTS[name]
    [(path, y)] = plot["y"].items()
    rows = [
        row | {"rev": rev, "chance": 0.5, "unit": "score", "median": 0.7, "quartile_1": 0.6, "quartile_3": 0.8}
        for rev in ("HEAD", "workspace")
        for row in ROWS[Path(path).stem]()
    ]
    assert plot["x"] in rows[0] and y in rows[0]
    filled = {"TITLE": plot["title"], "X": plot["x"], "Y": y, "X_LABEL": plot["x_label"], "Y_LABEL": plot["y_label"]}
    text = (ROOT / ".dvc" / "plots" / f"{plot['template']}.json").read_text(encoding="utf-8")
    for anchor, value in filled.items():
        text = text.replace(f"<DVC_METRIC_{anchor}>", value)
    assert text.count("<DVC_METRIC_") == 1
    svg = vl_convert.vegalite_to_svg(text.replace('"<DVC_METRIC_DATA>"', json.dumps(rows)))
    assert plot["title"] in svg and plot["y_label"] in svg
    drawn = "bar" if name == "score_distribution" else "rect mark" if name == "correlations" else "point"
    assert marks(svg, drawn) >= len(rows)
