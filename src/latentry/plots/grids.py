"""Plots of what is found by decile, of scorers against each other, and of what calls buy."""

from collections.abc import Sequence

import altair as alt

from latentry.plots.parts import (
    PANEL_HEIGHT,
    PANEL_WIDTH,
    Rows,
    colour,
    counts_of,
    distinct,
    faceted,
    hover,
    in_a_row,
    in_parts,
    interval_words,
    nothing,
    panels_of,
    shape,
    short,
    size,
    styled,
    title_of,
    unit_of,
)
from latentry.records import NO_EXPLAINER

_CALLS = (0, 10, 100, 1000, 10_000, 100_000, 1_000_000)
"""Ticks of a scale that is logarithmic beyond a call, and has a place for 0."""
_COUNTED = "datum.value < 1000 ? datum.value : datum.value < 1e6 ? datum.value / 1000 + 'k' : datum.value / 1e6 + 'M'"


def found_by_decile(rows: Rows) -> alt.TopLevelMixin:
    """Share of the activating windows that are found, from the weakest tenth to the strongest, one line per SAE."""
    title = "Activating windows found, by their strength"
    if not rows:
        return nothing(title, "no scorer has said yes or no to windows of a decile yet")
    saes, losses, panels = distinct(rows, "sae"), distinct(rows, "loss"), panels_of(rows)
    step = 0.6 / len(saes)
    values = [
        {
            **row,
            "panel": panel,
            "label": short(row["width"]),
            "interval": interval_words(row),
            "x": row["decile"] + step * (saes.index(row["sae"]) - (len(saes) - 1) / 2),
        }
        for panel, some in panels.items()
        for row in some
    ]
    x = alt.X(
        "x:Q",
        title="decile of strength (1 weakest, 10 strongest)",
        scale=alt.Scale(domain=[0.4, 10.6], nice=False),
        axis=alt.Axis(values=list(range(1, 11)), format="d", grid=False),
    )
    scale, base = alt.Scale(domain=[0, 1]), alt.Chart().encode(detail="sae:N", color=colour(losses))
    y = alt.Y("found:Q", title="share of activating windows found", scale=scale)
    bars = base.mark_rule(strokeWidth=1, opacity=0.5).encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q")
    line = base.mark_line(strokeWidth=1.5, opacity=0.7).encode(x=x, y=y)
    told = hover("sae", "explainer", "scorer", "decile", "found", "interval", "n")
    point = base.mark_point(filled=True, opacity=1).encode(x=x, y=y, shape=shape(losses), size=size(rows, 70), tooltip=told)
    chart = faceted(alt.layer(bars, line, point).properties(width=PANEL_WIDTH, height=PANEL_HEIGHT), values, list(panels), in_a_row(rows))
    note = "Mean over n latents a SAE with 95 % interval; who says yes to everything finds all: see the score for false alarms"
    return styled(chart.properties(title=title_of(title, note)))


def correlations(rows: Rows) -> alt.TopLevelMixin:
    """Rank correlation of every two scorers over the latents of all SAEs, one matrix per explainer."""
    title = "Rank correlations of scorers"
    if not rows:
        return nothing(title, "needs two scorers that scored the same latents, at least four")
    scorers = list(dict.fromkeys([*distinct(rows, "scorer_a"), *distinct(rows, "scorer_b")]))
    values = [{**row, "panel": f"{row['explainer']} explanations", "interval": interval_words(row)} for row in rows]
    x = alt.X("scorer_a:N", title=None, sort=scorers, scale=alt.Scale(domain=scorers[:-1]), axis=alt.Axis(labelAngle=-30, labelLimit=160))
    y = alt.Y("scorer_b:N", title=None, sort=scorers, scale=alt.Scale(domain=scorers[1:]))
    legend = alt.Legend(title="Spearman's correlation", orient="top", gradientLength=200, tickCount=5)
    fill = alt.Color("spearman:Q", scale=alt.Scale(domain=[-1, 0, 1], range=["#D55E00", "#F7F7F7", "#0072B2"]), legend=legend)
    base = alt.Chart().encode(x=x, y=y)
    ink = alt.condition("abs(datum.spearman) > 0.8", alt.value("white"), alt.value("black"))
    number = base.mark_text(fontSize=14, dy=-9).encode(text=alt.Text("spearman:Q", format=".2f"), color=ink)
    small = [
        base.transform_calculate(text=text).mark_text(fontSize=10, dy=dy).encode(text="text:N", color=ink)
        for dy, text in ((5, "format(datum.low, '.2f') + ' to ' + format(datum.high, '.2f')"), (17, "'n = ' + datum.n"))
    ]
    square = base.mark_rect().encode(color=fill, tooltip=hover("scorer_a", "scorer_b", "spearman", "interval", "n"))
    chart = alt.layer(square, number, *small).properties(width=alt.Step(84), height=alt.Step(50))
    chart = faceted(chart, values, distinct(values, "panel"), columns=max(1, 12 // len(scorers))).resolve_scale(x="shared", y="shared")
    return styled(
        chart.properties(title=title_of(title, "Spearman's, over n latents that both scored, of all SAEs, with its 95 % interval"))
    )


def interval_by_calls(rows: Rows) -> alt.TopLevelMixin:
    """Width of the interval against the calls of a judge that were paid for it: a point for each SAE, a panel for each explainer."""
    title = "What calls buy: intervals by number of calls"
    if not rows:
        return nothing(title, "no cell of two latents or more has been scored yet")
    scorers = distinct(rows, "scorer")
    note = "Each point is one SAE, n latents; calls include those of the null; lower left is better"
    return in_parts(rows, unit_of, lambda some: _intervals(some, scorers), title, note)


def _intervals(rows: Rows, scorers: Sequence[str]) -> alt.FacetChart:
    grouped = {explainer: [row for row in rows if row["explainer"] == explainer] for explainer in distinct(rows, "explainer")}
    panels = {f"{_read(explainer)}\n{counts_of(some)}": some for explainer, some in grouped.items()}
    values = [{**row, "panel": panel, "interval": interval_words(row)} for panel, some in panels.items() for row in some]
    unit = unit_of(rows[0])
    most = max(row["n_calls"] for row in rows)
    x = alt.X(
        "n_calls:Q",
        title="calls of the judge (log scale; 0: none is asked)",
        scale=alt.Scale(type="symlog", domain=[-0.3, 1.6 * most + 1], nice=False),
        axis=alt.Axis(values=[tick for tick in _CALLS if tick <= 1.6 * most + 1], labelExpr=_COUNTED, grid=False),
    )
    y = alt.Y("breadth:Q", title=f"width of the 95 % interval ({unit or 'of the score'})", scale=alt.Scale(zero=True, nice=True))
    told = hover("sae", "explainer", "scorer", "n_calls", "score", "interval", "n")
    point = alt.Chart().mark_point(filled=True, size=70, opacity=0.85)
    point = point.encode(x=x, y=y, color=colour(scorers, "scorer"), shape=shape(scorers, "scorer"), tooltip=told)
    return faceted(point.properties(width=PANEL_WIDTH, height=PANEL_HEIGHT), values, list(panels))


def _read(explainer: str) -> str:
    return "no explanation read" if explainer == NO_EXPLAINER else f"{explainer} explanations"
