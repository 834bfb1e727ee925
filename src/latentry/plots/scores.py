"""Plots of cells: the headline score against width, L0 and FVU, and the SAEs' reconstruction against their sparsity."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from latentry.metric_kinds import chance_of
from latentry.plots.parts import (
    GREY,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    Rows,
    chance_line,
    colour,
    distinct,
    faceted,
    hover,
    in_a_row,
    in_parts,
    interval_words,
    log_scale,
    nothing,
    panels_of,
    scale_of,
    score_scale,
    score_title,
    shape,
    short,
    size,
    styled,
    title_of,
    width_axis,
)

_DODGE = 0.07
"""Octaves between the marks at one width, so that error bars of losses and of their nulls stand side by side."""
_TITLES = {
    "width": "width (number of latents, log scale)",
    "l0": "L0 (latents firing per token, log scale)",
    "fvu": "FVU (unexplained share of variance, 0 is perfect)",
}
_ENDS = ("score", "low", "high", "null", "null_low", "null_high")
_DRAWN = ("sae", "explainer", "scorer", "loss", "width", "l0", "fvu", *_ENDS, "n")


def score_by_width(rows: Rows) -> alt.TopLevelMixin:
    """Headline score against width, one panel per explainer and scorer, with the shuffled null beside each."""
    return _scores_against(rows, "width", "Scores of explanations by width")


def score_by_l0(rows: Rows) -> alt.TopLevelMixin:
    """Headline score against the mean number of latents that fire at a token."""
    return _scores_against(rows, "l0", "Scores of explanations by L0")


def score_by_fvu(rows: Rows) -> alt.TopLevelMixin:
    """Headline score against reconstruction: what interpretability costs in fidelity."""
    return _scores_against(rows, "fvu", "Scores of explanations by reconstruction error")


def frontier(rows: Rows) -> alt.TopLevelMixin:
    """Reconstruction against sparsity: FVU by L0, one line per loss, each point labelled with its width."""
    if not rows:
        return nothing("Reconstruction against sparsity")
    losses = distinct(rows, "loss")
    values = [{**{name: row[name] for name in ("sae", "loss", "width", "l0", "fvu")}, "label": short(row["width"])} for row in rows]
    x = alt.X("l0:Q", title=_TITLES["l0"], scale=log_scale(rows, "l0"), axis=_axis(rows, "l0"))
    y = alt.Y("fvu:Q", title=_TITLES["fvu"], scale=alt.Scale(zero=False, padding=25))
    base = alt.Chart(alt.Data(values=values)).encode(x=x, y=y)
    line = base.mark_line(opacity=0.5).encode(color=colour(losses), order="width:Q")
    point = base.mark_point(filled=True, size=90, opacity=1)
    point = point.encode(color=colour(losses), shape=shape(losses), tooltip=hover("sae", "width", "l0", "fvu"))
    label = base.mark_text(dx=10, align="left", fontSize=12).encode(text="label:N")
    title = title_of("Reconstruction against sparsity", f"{len(rows)} SAEs, each labelled with its width; lower left is better")
    return styled(alt.layer(line, point, label).properties(width=560, height=320, title=title))


def _scores_against(rows: Rows, column: str, title: str) -> alt.TopLevelMixin:
    if not rows:
        return nothing(title)
    note = "Mean over n latents a SAE with 95 % interval; grey: the same for shuffled explanations (the null); dashed: chance"
    losses = distinct(rows, "loss")
    return in_parts(rows, scale_of, lambda some: _panels_against(some, column, losses), title, note)


def _panels_against(rows: Rows, column: str, losses: Sequence[str]) -> alt.FacetChart:
    panels, scale, x_scale = panels_of(rows), score_scale(rows, _ENDS), _scale(rows, column)
    values = [_placed(row, panel, column, losses) for panel, cells in panels.items() for row in cells]
    x = alt.X("x:Q", title=_TITLES[column], scale=x_scale, axis=_axis(rows, column))
    y = alt.Y("score:Q", title=score_title(rows), scale=scale)
    null_x, base, paint = alt.X("x_null:Q", scale=x_scale), alt.Chart(), colour(losses)
    told = hover("sae", "explainer", "scorer", "score", "interval", "n", "null", "width", "l0", "fvu")
    marks = 70 if column == "width" else None
    points = base.mark_point(filled=True, opacity=1).encode(x=x, y=y, color=paint, shape=shape(losses), tooltip=told)
    layers = [
        chance_line().encode(y=alt.Y("mean(chance):Q", scale=scale)),
        base.mark_rule(color=GREY, strokeWidth=1.5).encode(x=null_x, y=alt.Y("null_low:Q", scale=scale), y2="null_high:Q"),
        base.mark_tick(color=GREY, thickness=3, width=9, orient="horizontal", opacity=1).encode(x=null_x, y=alt.Y("null:Q", scale=scale)),
        base.mark_line(strokeWidth=1.5, opacity=0.6).encode(x=x, y=y, color=paint, order="width:Q"),
        base.mark_rule(strokeWidth=2).encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q", color=paint),
        points.encode(size=alt.value(marks) if marks else size(rows)),
    ]
    return faceted(alt.layer(*layers).properties(width=PANEL_WIDTH, height=PANEL_HEIGHT), values, list(panels), in_a_row(rows))


def _placed(row: Mapping[str, Any], panel: str, column: str, losses: Sequence[str]) -> dict[str, Any]:
    """A row with where its marks stand: by width those of each loss side by side, each null to the right of its score."""
    slot = 2 * losses.index(row["loss"]) - len(losses) + 0.5
    score, null = (2.0 ** (_DODGE * (slot + shift)) if column == "width" else 1.0 for shift in (0, 1))
    about = {"panel": panel, "label": short(row["width"]), "chance": chance_of(row["metric"]), "interval": interval_words(row)}
    return {name: row[name] for name in _DRAWN} | about | {"x": row[column] * score, "x_null": row[column] * null}


def _scale(rows: Rows, column: str) -> alt.Scale:
    return alt.Scale(zero=False, padding=20) if column == "fvu" else log_scale(rows, column)


def _axis(rows: Rows, column: str) -> alt.Axis:
    return width_axis(rows) if column == "width" else alt.Axis(format="~g", tickCount=5, grid=False)
