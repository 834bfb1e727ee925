"""Every plot's one definition, from flat rows to an Altair chart, and charts to SVG and PNG without a network.

Colours are Okabe and Ito's, told apart by the colour-blind, and each loss has a shape of its own as well. Rows are made
by `comparison/summary.py`: `score_rows`, `sae_rows` and `latent_rows`. Every axis names its unit, every panel its n.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import vl_convert

Rows = Sequence[Mapping[str, Any]]

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
GREY = "#8C8C8C"
"""Of what is no SAE's: the shuffled null, and chance."""

POINTS_PER_PANEL = 1500
"""Latents drawn in one panel, taken evenly from all of them; boxes and n are of all."""

_FONT = "DejaVu Sans, Arial, Helvetica, sans-serif"
_PANEL_WIDTH, _PANEL_HEIGHT = 250, 190  # three panels and their axis stand side by side in 1,000 pixels
_DODGE = 0.07
"""Octaves between the marks at one width, so that error bars of losses and of their nulls stand side by side."""
_NAMES = {"auroc": "AUROC", "balanced_accuracy": "balanced accuracy"}


def score_by_width(rows: Rows) -> alt.TopLevelMixin:
    """Headline score against width, one panel per explainer and scorer, with the shuffled null beside each."""
    return _scores_against(rows, "width", "width (number of latents, log scale)", "Scores of explanations by width")


def score_by_l0(rows: Rows) -> alt.TopLevelMixin:
    """Headline score against the mean number of latents that fire at a token."""
    return _scores_against(rows, "l0", "L0 (latents firing per token, log scale)", "Scores of explanations by L0")


def frontier(rows: Rows) -> alt.TopLevelMixin:
    """Reconstruction against sparsity: FVU by L0, one line per loss, each point labelled with its width."""
    if not rows:
        return _nothing("Reconstruction against sparsity")
    losses = _distinct(rows, "loss")
    values = [{**row, "label": _short(row["width"])} for row in rows]
    x = alt.X("l0:Q", title="L0 (latents firing per token, log scale)", scale=_log_scale(rows, "l0"), axis=_log_axis(rows, "l0"))
    y = alt.Y("fvu:Q", title="FVU (unexplained share of variance, 0 is perfect)", scale=alt.Scale(zero=False, padding=25))
    base = alt.Chart(alt.Data(values=values)).encode(x=x, y=y)
    line = base.mark_line(opacity=0.5).encode(color=_colour(losses), order="width:Q")
    point = base.mark_point(filled=True, size=90, opacity=1).encode(
        color=_colour(losses), shape=_shape(losses), tooltip=["sae:N", "l0:Q", "fvu:Q"]
    )
    label = base.mark_text(dx=10, align="left", fontSize=12).encode(text="label:N")
    title = _title("Reconstruction against sparsity", f"{len(rows)} SAEs, each labelled with its width; lower left is better")
    return _styled(alt.layer(line, point, label).properties(width=560, height=320, title=title))


def score_distribution(rows: Rows) -> alt.TopLevelMixin:
    """Every latent's score by SAE: points are latents, the box holds the middle half, its line is the median."""
    title = "Scores of single latents"
    if not rows:
        return _nothing(title)
    panels, saes, losses = _panels(rows), _distinct(rows, "sae"), _distinct(rows, "loss")
    points = [{**row, "jitter": place % 7 - 3} for place, row in enumerate(_thinned(panels))]
    y, scale = alt.Y("sae:N", title=None, sort=saes), _score_scale([row["score"] for row in rows])
    x = alt.X("score:Q", title=_score_title(rows), scale=scale, axis=alt.Axis(labelFlush=False, tickCount=5))
    boxes = alt.Chart().transform_filter("datum.box")
    chart = alt.layer(
        _chance().encode(x=alt.X("chance:Q", scale=scale)),
        boxes.mark_bar(height=16, opacity=0.25).encode(y=y, x=alt.X("quartile_1:Q", scale=scale), x2="quartile_3:Q", color=_colour(losses)),
        alt.Chart()
        .transform_filter("!datum.box")
        .mark_circle(size=14, opacity=0.5)
        .encode(x=x, y=y, yOffset=alt.YOffset("jitter:Q", scale=alt.Scale(domain=[-6, 6])), color=_colour(losses)),
        boxes.mark_tick(thickness=3, height=18, color="black").encode(y=y, x=alt.X("median:Q", scale=scale)),
    ).properties(width=_PANEL_WIDTH - 20, height=26 * len(saes) + 10)
    note = "Each point is a latent, n a SAE; the box is the middle half, its line the median; dashed: chance"
    return _styled(_faceted(chart, [*points, *_boxes(panels)], list(panels), title, note))


def score_by_frequency(rows: Rows) -> alt.TopLevelMixin:
    """Every latent's score against how often it fires: whether a SAE's score is but its latents' frequency."""
    title = "Scores of single latents by firing frequency"
    fired = [row for row in rows if row["firing_frequency"]]
    if not fired:
        return _nothing(title)
    panels, losses, scale = _panels(fired), _distinct(fired, "loss"), _score_scale([row["score"] for row in fired])
    x = alt.X(
        "firing_frequency:Q",
        title="firing frequency (per token, log scale)",
        scale=_log_scale(fired, "firing_frequency"),
        axis=alt.Axis(values=_decades([row["firing_frequency"] for row in fired]), format="~g", grid=False),
    )
    points = alt.Chart().mark_point(filled=True, size=24, opacity=0.55)
    points = points.encode(x=x, y=alt.Y("score:Q", title=_score_title(fired), scale=scale), color=_colour(losses), shape=_shape(losses))
    chart = alt.layer(_chance().encode(y=alt.Y("chance:Q", scale=scale)), points).properties(width=_PANEL_WIDTH, height=_PANEL_HEIGHT)
    return _styled(_faceted(chart, _thinned(panels), list(panels), title, "Each point is a latent, n of each SAE; dashed: chance"))


def to_svg(chart: alt.TopLevelMixin) -> str:
    """The chart as SVG, drawn in process."""
    return vl_convert.vegalite_to_svg(chart.to_dict())


def to_png(chart: alt.TopLevelMixin, *, scale: float = 2) -> bytes:
    """The chart as PNG, `scale` pixels for each of its own, drawn in process."""
    return vl_convert.vegalite_to_png(chart.to_dict(), scale=scale)


def _scores_against(rows: Rows, column: str, x_title: str, title: str) -> alt.TopLevelMixin:
    if not rows:
        return _nothing(title)
    panels, losses = _panels(rows), _distinct(rows, "loss")
    values = [_placed(row, panel, column, losses) for panel, cells in panels.items() for row in cells]
    scale = _score_scale([row.get(end) for row in rows for end in ("score", "low", "high", "null", "null_low", "null_high")])
    x_scale = _log_scale(rows, column)
    x = alt.X("x:Q", title=x_title, scale=x_scale, axis=_log_axis(rows, column))
    y = alt.Y("score:Q", title=_score_title(rows), scale=scale)
    null_x, base, colour = alt.X("x_null:Q", scale=x_scale), alt.Chart(), _colour(losses)
    layers = [
        _chance().encode(y=alt.Y("chance:Q", scale=scale)),
        base.mark_rule(color=GREY, strokeWidth=1.5).encode(x=null_x, y=alt.Y("null_low:Q", scale=scale), y2="null_high:Q"),
        base.mark_tick(color=GREY, thickness=3, width=9, orient="horizontal", opacity=1).encode(x=null_x, y=alt.Y("null:Q", scale=scale)),
        base.mark_line(strokeWidth=1.5, opacity=0.6).encode(x=x, y=y, color=colour, order="width:Q"),
        base.mark_rule(strokeWidth=2).encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q", color=colour),
        base.mark_point(filled=True, opacity=1).encode(x=x, y=y, color=colour, shape=_shape(losses), size=_size(rows, column)),
    ]
    chart = alt.layer(*layers).properties(width=_PANEL_WIDTH, height=_PANEL_HEIGHT)
    note = "Mean over n latents a SAE with 95 % interval; grey: the same for shuffled explanations (the null); dashed: chance"
    return _styled(_faceted(chart, values, list(panels), title, note))


def _placed(row: Mapping[str, Any], panel: str, column: str, losses: Sequence[str]) -> dict[str, Any]:
    """A row with where its marks stand: by width those of each loss side by side, each null to the right of its score."""
    slot = 2 * losses.index(row["loss"]) - len(losses) + 0.5
    score, null = (2.0 ** (_DODGE * (slot + shift)) if column == "width" else 1.0 for shift in (0, 1))
    return {**row, "panel": panel, "label": _short(row["width"]), "x": row[column] * score, "x_null": row[column] * null}


def _panels(rows: Rows) -> dict[str, Rows]:
    """Rows by panel, in the order of explainers, then scorers; a panel's name says its metric and how many latents."""
    grouped = defaultdict(list)
    for row in rows:
        grouped[row["explainer"], row["scorer"]].append(row)
    explainers, scorers = _distinct(rows, "explainer"), _distinct(rows, "scorer")
    order = sorted(grouped, key=lambda pair: (explainers.index(pair[0]), scorers.index(pair[1])))
    mixed = len({_metric_words(row["metric"])[0] for row in rows}) > 1
    return {_panel_name(explainer, scorer, grouped[explainer, scorer], mixed): grouped[explainer, scorer] for explainer, scorer in order}


def _panel_name(explainer: str, scorer: str, rows: Rows, mixed: bool) -> str:
    metric, contrast = _metric_words(rows[0]["metric"])
    counts = [row["n"] for row in rows] if "n" in rows[0] else list(Counter(row["sae"] for row in rows).values())
    n = str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return "\n".join([f"{scorer} of {explainer} explanations", *([metric] if mixed else []), f"{contrast} contrasts, n = {n}"])


def _metric_words(metric: str) -> tuple[str, str]:
    name = next(name for name in _NAMES if metric.startswith(name))
    return _NAMES[name], metric[len(name) + 1 :].replace("_", " ")


def _score_title(rows: Rows) -> str:
    names = sorted({_metric_words(row["metric"])[0] for row in rows})
    return f"{names[0] if len(names) == 1 else 'score'} (chance .5)"


def _distinct(rows: Rows, column: str) -> list[Any]:
    return list(dict.fromkeys(row[column] for row in rows))


def _thinned(panels: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """At most `POINTS_PER_PANEL` rows of each panel, evenly taken."""
    taken = []
    for panel, rows in panels.items():
        places = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), POINTS_PER_PANEL)).astype(int))
        taken += [{**rows[place], "panel": panel, "box": False} for place in places]
    return taken


def _boxes(panels: Mapping[str, Rows]) -> list[dict[str, Any]]:
    boxes = []
    for panel, rows in panels.items():
        for sae in _distinct(rows, "sae"):
            mine = [row for row in rows if row["sae"] == sae]
            quartiles = np.quantile([row["score"] for row in mine], [0.25, 0.5, 0.75]).tolist()
            named = dict(zip(("quartile_1", "median", "quartile_3"), quartiles, strict=True))
            boxes.append({"panel": panel, "sae": sae, "loss": mine[0]["loss"], "box": True, **named})
    return boxes


def _faceted(chart: Any, values: Rows, panels: list[str], title: str, note: str) -> alt.FacetChart:
    header = alt.Header(title=None, labelExpr="split(datum.label, '\\n')", labelFontSize=12, labelLineHeight=15, labelPadding=6)
    facet = alt.Facet("panel:N", sort=panels, header=header)
    columns = min(3, len(panels))
    return chart.facet(facet=facet, columns=columns, data=alt.Data(values=list(values)), title=_title(title, note)).resolve_axis(
        x="independent"
    )


def _title(text: str, note: str) -> alt.TitleParams:
    return alt.TitleParams(text, subtitle=note, anchor="start")


def _nothing(title: str) -> alt.TopLevelMixin:
    text = (
        alt.Chart(alt.Data(values=[{"text": "nothing has been scored or measured yet"}]))
        .mark_text(fontSize=14, color=GREY)
        .encode(text="text:N")
    )
    return _styled(text.properties(width=560, height=80, title=title))


def _chance() -> alt.Chart:
    """The level of one who does not look, .5 for both metrics."""
    return alt.Chart().transform_calculate(chance="0.5").mark_rule(color=GREY, strokeDash=[4, 4])


def _score_scale(scores: Sequence[float | None]) -> alt.Scale:
    """From the tenth below the lowest, at most .4, up to 1: the same in all panels, with chance in sight."""
    lowest = min([0.4, *(np.floor(score * 10) / 10 for score in scores if score is not None)])
    return alt.Scale(domain=[float(lowest), 1.0], nice=False)


def _log_scale(rows: Rows, column: str) -> alt.Scale:
    values = [row[column] for row in rows]
    return alt.Scale(type="log", base=2, domain=[min(values) / 1.3, max(values) * 1.3], nice=False)


def _log_axis(rows: Rows, column: str) -> alt.Axis:
    if column != "width":
        return alt.Axis(format="~g", tickCount=5, grid=False)
    widths = sorted(_distinct(rows, "width"))
    labels = {width: _short(width) for width in widths}
    return alt.Axis(values=widths, labelExpr=f"({labels})[datum.value]", grid=False)


def _decades(values: Sequence[float]) -> list[float]:
    """Powers of ten among the values; with 2 and 5 times them where the values span less than two decades."""
    low, high = min(values) / 1.3, max(values) * 1.3
    steps = (1, 2, 5) if high / low < 100 else (1,)
    ticks = [step * 10.0**power for power in range(-9, 1) for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def _short(width: int) -> str:
    return f"{width // 1024}k" if width % 1024 == 0 else f"{width:,}"


def _colour(losses: Sequence[str]) -> alt.Color:
    colours = [OKABE_ITO[place % len(OKABE_ITO)] for place in range(len(losses))]
    return alt.Color("loss:N", legend=_legend(), scale=alt.Scale(domain=list(losses), range=colours))


def _legend() -> alt.Legend:
    return alt.Legend(title=None, labelExpr="datum.label + ' SAEs'", symbolOpacity=1)


def _shape(losses: Sequence[str]) -> alt.Shape:
    shapes = [SHAPES[place % len(SHAPES)] for place in range(len(losses))]
    return alt.Shape("loss:N", legend=_legend(), scale=alt.Scale(domain=list(losses), range=shapes))


def _size(rows: Rows, column: str) -> Any:
    """By width where the axis does not show it: SAEs of several widths often have one L0."""
    if column == "width":
        return alt.value(70)
    widths = sorted(_distinct(rows, "width"))
    scale = alt.Scale(domain=[_short(width) for width in widths], range=np.linspace(25, 130, len(widths)).tolist())
    return alt.Size("label:N", scale=scale, legend=alt.Legend(title="width:", symbolFillColor="#444444", symbolStrokeWidth=0))


def _styled(chart: Any) -> alt.TopLevelMixin:
    """One look for all: type that reads at 1,000 pixels, quiet grid, legend on top."""
    return (
        chart.configure(font=_FONT, background="white", padding=12)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal", gridColor="#ECECEC", domainColor="#888888")
        .configure_title(fontSize=16, subtitleFontSize=12, subtitleColor="#555555", subtitlePadding=6, offset=14)
        .configure_legend(orient="top", labelFontSize=12, symbolSize=90, titleFontSize=12, titleFontWeight="normal", titleOrient="left")
        .configure_view(stroke="#DDDDDD")
        .configure_facet(spacing=22)
    )
