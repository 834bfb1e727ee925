"""The plots draw what the rows say, offline; how they look was judged by eye."""

import re
import struct

import pytest

from latentry import plots

SAES = [(loss, name, width) for loss in ("topk", "jumprelu") for name, width in (("1k", 1024), ("2k", 2048), ("4k", 4096))]
SCORERS = {"embedding": "auroc_random", "fuzzing": "auroc_wrong_position"}


def about(loss, name, width):
    return {"sae": f"{loss}-{name}", "loss": loss, "width": width}


def sae_rows():
    return [{**about(*sae), "l0": 32.0, "fvu": 0.3} for sae in SAES]


def score_rows(**changes):
    numbers = {"score": 0.7, "low": 0.6, "high": 0.8, "null": 0.5, "null_low": 0.45, "null_high": 0.55, "n": 12, **changes}
    return [
        {**row, **numbers, "explainer": explainer, "scorer": scorer, "metric": metric}
        for row in sae_rows()
        for explainer in ("lexical",)
        for scorer, metric in SCORERS.items()
    ]


def latent_rows(n=5):
    return [
        {
            **about(*sae),
            "explainer": "lexical",
            "scorer": "embedding",
            "metric": "auroc_random",
            "score": 0.5 + 0.4 * i / n,
            "firing_frequency": 0.001 * (i + 1),
        }
        for sae in SAES
        for i in range(n)
    ]


ALL = [
    (plots.score_by_width, score_rows),
    (plots.score_by_l0, score_rows),
    (plots.frontier, sae_rows),
    (plots.score_distribution, latent_rows),
    (plots.score_by_frequency, latent_rows),
]


def words(chart):
    return re.findall(r">([^<>]+)</t(?:ext|span)>", plots.to_svg(chart))


@pytest.mark.parametrize(("plot", "rows"), ALL)
def test_every_plot_is_the_same_twice_and_names_its_losses(plot, rows):
    assert plot(rows()).to_dict() == plot(rows()).to_dict()
    assert {"topk SAEs", "jumprelu SAEs"} <= set(words(plot(rows())))


def test_svg_is_the_same_twice():
    assert plots.to_svg(plots.frontier(sae_rows())) == plots.to_svg(plots.frontier(sae_rows()))


@pytest.mark.parametrize(("plot", "rows"), ALL)
def test_every_plot_of_nothing_says_so(plot, rows):
    assert "nothing has been scored or measured yet" in words(plot(rows()[:0]))


def test_scores_by_width_say_metric_chance_contrast_and_n():
    found = words(plots.score_by_width(score_rows()))
    assert {"1k", "2k", "4k", "AUROC (chance .5)", "embedding of lexical explanations", "wrong position contrasts, n = 12"} <= set(found)


def test_mixed_metrics_are_named_by_panel():
    rows = score_rows()
    mixed = [{**row, "metric": "balanced_accuracy_random"} if row["scorer"] == "fuzzing" else row for row in rows]
    assert {"score (chance .5)", "balanced accuracy", "AUROC"} <= set(words(plots.score_by_width(mixed)))


def test_a_cell_of_one_latent_without_interval_or_null_keeps_its_point():
    rows = [{**row, "low": None, "high": None, "null": None, "null_low": None, "null_high": None} for row in score_rows()]
    whole, bare = (plots.to_svg(plots.score_by_width(some)) for some in (score_rows(), rows))
    points = 'aria-roledescription="point"'
    assert whole.count(points) == bare.count(points) >= len(rows)
    assert bare.count('aria-roledescription="rule mark"') < whole.count('aria-roledescription="rule mark"')


def test_a_score_below_chance_is_not_cut_off():
    chart = plots.score_by_width(score_rows(low=0.12)).to_dict()
    assert '"domain": [0.1, 1.0]' in str(chart).replace("'", '"')


def test_many_latents_are_thinned_evenly_but_counted_whole():
    chart = plots.score_distribution(latent_rows(n=700)).to_dict()
    points = [row for row in chart["data"]["values"] if not row["box"]]
    assert len(points) == plots.POINTS_PER_PANEL
    assert {row["sae"] for row in points} == {row["sae"] for row in sae_rows()}
    assert "n = 700" in points[0]["panel"]


def test_png_has_the_size_of_the_chart_times_its_scale():
    sizes = [struct.unpack(">II", plots.to_png(plots.frontier(sae_rows()), scale=scale)[16:24]) for scale in (1, 2)]
    assert sizes[1] == pytest.approx([2 * side for side in sizes[0]], abs=2)
    assert 600 < sizes[0][0] < 1000


MIXED = {
    "detection": ("f1_random_1to1", None),
    "intruder": ("accuracy_random", 0.2),
    "intervention": ("nats", None),
    "simulation": ("pearson_random", 0.0),
}


def test_each_panel_has_its_own_metrics_chance_and_only_where_that_is_known():
    rows = [{**row, "scorer": scorer, "metric": metric} for scorer, (metric, _) in MIXED.items() for row in score_rows()[::2]]
    svg = plots.to_svg(plots.score_by_width(rows))
    assert svg.count("stroke-dasharray") == 2
    for words in ("F1", "1 to 1", "intruders found", "correlation (Pearson)", "(nats)"):
        assert words in svg
    alone = plots.to_svg(plots.score_by_width([row for row in rows if row["scorer"] == "intruder"]))
    assert "intruders found (chance .2)" in alone


def test_what_is_scored_without_explanations_is_not_said_to_be_of_any():
    rows = [{**row, "explainer": "none", "metric": "accuracy_random"} for row in score_rows() if row["scorer"] == "embedding"]
    svg = plots.to_svg(plots.score_by_width(rows))
    assert "explanations<" not in svg.split("Scores of explanations by width")[1]


def test_scores_below_zero_and_beyond_one_are_drawn_whole():
    rows = [
        {**row, "scorer": "intervention", "metric": "nats", "score": score} for score, row in zip((-0.7, 2.4), latent_rows(2), strict=False)
    ]
    svg = plots.to_svg(plots.score_distribution(rows))
    ticks = {float(text.replace("−", "-")) for text in re.findall(r">(−?\d+\.\d+)<", svg)}
    assert min(ticks) < 0 and max(ticks) >= 2
