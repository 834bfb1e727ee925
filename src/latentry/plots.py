"""Every plot's one definition, from flat rows to an Altair chart, and charts to SVG and PNG without a network.

How they look is `plot_parts.py`'s. Rows are made by `plot_rows.py`: `score_rows`, `sae_rows` and `latent_rows`. Every axis
names its unit, every panel its n. Chance and limits are those of each panel's metric.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import vl_convert

from latentry.metric_kinds import METRIC_KINDS, MetricKind, chance_of, context_of, kind_of
from latentry.plot_parts import Rows, colour, decades, distinct, log_axis, log_scale, shape, short, size, styled
from latentry.records import NO_EXPLAINER

GREY = "#8C8C8C"
"""Of what is no SAE's: the shuffled null, and chance."""

POINTS_PER_PANEL = 1500
"""Latents drawn in one panel, taken evenly from all of them; boxes and n are of all."""

_PANEL_WIDTH, _PANEL_HEIGHT = 250, 190  # three panels and their axis stand side by side in 1,000 pixels
_DODGE = 0.07
"""Octaves between the marks at one width, so that error bars of losses and of their nulls stand side by side."""


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
    losses = distinct(rows, "loss")
    values = [{**row, "label": short(row["width"])} for row in rows]
    x = alt.X("l0:Q", title="L0 (latents firing per token, log scale)", scale=log_scale(rows, "l0"), axis=log_axis(rows, "l0"))
    y = alt.Y("fvu:Q", title="FVU (unexplained share of variance, 0 is perfect)", scale=alt.Scale(zero=False, padding=25))
    base = alt.Chart(alt.Data(values=values)).encode(x=x, y=y)
    line = base.mark_line(opacity=0.5).encode(color=colour(losses), order="width:Q")
    point = base.mark_point(filled=True, size=90, opacity=1).encode(
        color=colour(losses), shape=shape(losses), tooltip=["sae:N", "l0:Q", "fvu:Q"]
    )
    label = base.mark_text(dx=10, align="left", fontSize=12).encode(text="label:N")
    title = _title("Reconstruction against sparsity", f"{len(rows)} SAEs, each labelled with its width; lower left is better")
    return styled(alt.layer(line, point, label).properties(width=560, height=320, title=title))


def score_distribution(rows: Rows) -> alt.TopLevelMixin:
    """Every latent's score by SAE: points are latents, the box holds the middle half, its line is the median."""
    return _by_unit(rows, _distribution, "Scores of single latents")


def score_by_frequency(rows: Rows) -> alt.TopLevelMixin:
    """Every latent's score against how often it fires: whether a SAE's score is but its latents' frequency."""
    fired = [row for row in rows if row["firing_frequency"]]
    return _by_unit(fired, _against_frequency, "Scores of single latents by firing frequency")


def to_svg(chart: alt.TopLevelMixin) -> str:
    """The chart as SVG, drawn in process."""
    return vl_convert.vegalite_to_svg(chart.to_dict())


def to_png(chart: alt.TopLevelMixin, *, scale: float = 2) -> bytes:
    """The chart as PNG, `scale` pixels for each of its own, drawn in process."""
    return vl_convert.vegalite_to_png(chart.to_dict(), scale=scale)


def _by_unit(rows: Rows, drawn: Callable[[Rows, str], alt.FacetChart], title: str) -> alt.TopLevelMixin:
    """One chart for the scores of each unit, one below the other: panels of one chart share their scale."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[_kind(row).unit].append({**row, "chance": chance_of(row["metric"])})
    if not groups:
        return _nothing(title)
    charts = [drawn(groups[unit], title) for unit in sorted(groups)]
    return styled(charts[0] if len(charts) == 1 else alt.vconcat(*charts))


def _distribution(rows: Rows, title: str) -> alt.FacetChart:
    panels, saes, losses = _panels(rows), distinct(rows, "sae"), distinct(rows, "loss")
    points = [{**row, "jitter": place % 7 - 3} for place, row in enumerate(_thinned(panels))]
    y, scale = alt.Y("sae:N", title=None, sort=saes), _score_scale(rows, ("score",))
    x = alt.X("score:Q", title=_score_title(rows), scale=scale, axis=alt.Axis(labelFlush=False, tickCount=5))
    boxes = alt.Chart().transform_filter("datum.box")
    chart = alt.layer(
        _chance().encode(x=alt.X("chance:Q", scale=scale)),
        boxes.mark_bar(height=16, opacity=0.25).encode(y=y, x=alt.X("quartile_1:Q", scale=scale), x2="quartile_3:Q", color=colour(losses)),
        alt.Chart()
        .transform_filter("!datum.box")
        .mark_circle(size=14, opacity=0.5)
        .encode(x=x, y=y, yOffset=alt.YOffset("jitter:Q", scale=alt.Scale(domain=[-6, 6])), color=colour(losses)),
        boxes.mark_tick(thickness=3, height=18, color="black").encode(y=y, x=alt.X("median:Q", scale=scale)),
    ).properties(width=_PANEL_WIDTH - 20, height=26 * len(saes) + 10)
    note = "Each point is a latent, n a SAE; the box is the middle half, its line the median; dashed: chance"
    return _faceted(chart, [*points, *_boxes(panels)], list(panels), title, note)


def _against_frequency(rows: Rows, title: str) -> alt.FacetChart:
    panels, losses, scale = _panels(rows), distinct(rows, "loss"), _score_scale(rows, ("score",))
    x = alt.X(
        "firing_frequency:Q",
        title="firing frequency (per token, log scale)",
        scale=log_scale(rows, "firing_frequency"),
        axis=alt.Axis(values=decades([row["firing_frequency"] for row in rows]), format="~g", grid=False),
    )
    points = alt.Chart().mark_point(filled=True, size=24, opacity=0.55)
    points = points.encode(x=x, y=alt.Y("score:Q", title=_score_title(rows), scale=scale), color=colour(losses), shape=shape(losses))
    chart = alt.layer(_chance().encode(y=alt.Y("chance:Q", scale=scale)), points).properties(width=_PANEL_WIDTH, height=_PANEL_HEIGHT)
    return _faceted(chart, _thinned(panels), list(panels), title, "Each point is a latent, n of each SAE; dashed: chance")


def _scores_against(rows: Rows, column: str, x_title: str, title: str) -> alt.TopLevelMixin:
    return _by_unit(rows, lambda some, title: _means_against(some, column, x_title, title), title)


def _means_against(rows: Rows, column: str, x_title: str, title: str) -> alt.FacetChart:
    panels, losses = _panels(rows), distinct(rows, "loss")
    values = [_placed(row, panel, column, losses) for panel, cells in panels.items() for row in cells]
    scale = _score_scale(rows, ("score", "low", "high", "null", "null_low", "null_high"))
    x_scale = log_scale(rows, column)
    x = alt.X("x:Q", title=x_title, scale=x_scale, axis=log_axis(rows, column))
    y = alt.Y("score:Q", title=_score_title(rows), scale=scale)
    null_x, base, by_loss = alt.X("x_null:Q", scale=x_scale), alt.Chart(), colour(losses)
    layers = [
        _chance().encode(y=alt.Y("chance:Q", scale=scale)),
        base.mark_rule(color=GREY, strokeWidth=1.5).encode(x=null_x, y=alt.Y("null_low:Q", scale=scale), y2="null_high:Q"),
        base.mark_tick(color=GREY, thickness=3, width=9, orient="horizontal", opacity=1).encode(x=null_x, y=alt.Y("null:Q", scale=scale)),
        base.mark_line(strokeWidth=1.5, opacity=0.6).encode(x=x, y=y, color=by_loss, order="width:Q"),
        base.mark_rule(strokeWidth=2).encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q", color=by_loss),
        base.mark_point(filled=True, opacity=1).encode(x=x, y=y, color=by_loss, shape=shape(losses), size=size(rows, column)),
    ]
    chart = alt.layer(*layers).properties(width=_PANEL_WIDTH, height=_PANEL_HEIGHT)
    note = "Mean over n latents a SAE with 95 % interval; grey: the same for shuffled explanations (the null); dashed: chance"
    return _faceted(chart, values, list(panels), title, note)


def _placed(row: Mapping[str, Any], panel: str, column: str, losses: Sequence[str]) -> dict[str, Any]:
    """A row with where its marks stand: by width those of each loss side by side, each null to the right of its score."""
    slot = 2 * losses.index(row["loss"]) - len(losses) + 0.5
    score, null = (2.0 ** (_DODGE * (slot + shift)) if column == "width" else 1.0 for shift in (0, 1))
    return {**row, "panel": panel, "label": short(row["width"]), "x": row[column] * score, "x_null": row[column] * null}


def _panels(rows: Rows) -> dict[str, Rows]:
    """Rows by panel, in the order of explainers, then scorers; a panel's name says its metric and how many latents."""
    grouped = defaultdict(list)
    for row in rows:
        grouped[row["explainer"], row["scorer"]].append(row)
    explainers, scorers = distinct(rows, "explainer"), distinct(rows, "scorer")
    order = sorted(grouped, key=lambda pair: (explainers.index(pair[0]), scorers.index(pair[1])))
    mixed = len({_kind(row).title for row in rows}) > 1
    return {_panel_name(explainer, scorer, grouped[explainer, scorer], mixed): grouped[explainer, scorer] for explainer, scorer in order}


def _panel_name(explainer: str, scorer: str, rows: Rows, mixed: bool) -> str:
    counts = [row["n"] for row in rows] if "n" in rows[0] else list(Counter(row["sae"] for row in rows).values())
    n = str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    scored = scorer if explainer == NO_EXPLAINER else f"{scorer} of {explainer} explanations"
    said = ", ".join(filter(None, [context_of(rows[0]["metric"]), f"n = {n}"]))
    return "\n".join([scored, *([_kind(rows[0]).title] if mixed else []), said])


def _kind(row: Mapping[str, Any]) -> MetricKind:
    return METRIC_KINDS[kind_of(row["metric"])]


def _score_title(rows: Rows) -> str:
    """The metric's name, its unit, and the chance where it is the same in all panels; which way is better where it is downwards."""
    kinds = {_kind(row).title: _kind(row) for row in rows}
    name, kind = next(iter(kinds.items()))
    chances = {row["chance"] for row in rows} - {None}
    said = [
        kind.unit,
        f"chance {chances.pop():.2g}".replace("0.", ".") if len(chances) == 1 else "",
        "" if kind.higher_is_better else "lower is better",
    ]
    shown = ", ".join(filter(None, said))
    return (name if len(kinds) == 1 else "score") + (f" ({shown})" if shown else "")


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
        for sae in distinct(rows, "sae"):
            mine = [row for row in rows if row["sae"] == sae]
            quartiles = np.quantile([row["score"] for row in mine], [0.25, 0.5, 0.75]).tolist()
            named = dict(zip(("quartile_1", "median", "quartile_3"), quartiles, strict=True))
            boxes.append({"panel": panel, "sae": sae, "loss": mine[0]["loss"], "chance": mine[0]["chance"], "box": True, **named})
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
    return styled(text.properties(width=560, height=80, title=title))


def _chance() -> alt.Chart:
    """The level of one who does not look, where it is known beforehand: one line a panel."""
    return (
        alt.Chart()
        .transform_aggregate(chance="mean(chance)")
        .transform_filter("isValid(datum.chance)")
        .mark_rule(color=GREY, strokeDash=[4, 4])
    )


def _score_scale(rows: Rows, columns: Sequence[str]) -> alt.Scale:
    """The same in all panels, with chance in sight: up to the metric's largest, down to the tenth below the lowest that is there."""
    values = [row[column] for row in rows for column in columns if row.get(column) is not None]
    known = [*values, *(row["chance"] for row in rows if row["chance"] is not None)]
    bounded = all(_kind(row).limits for row in rows)
    if not bounded:
        return alt.Scale(domain=[min(0.0, *known), max(known)], padding=10)
    lowest = min([*(np.floor(value * 10) / 10 for value in known), *(row["chance"] - 0.1 for row in rows if row["chance"] is not None)])
    return alt.Scale(domain=[round(max(-1.0, float(lowest)), 6), 1.0], nice=False)
