"""Plots of single latents: how their scores spread in each SAE, and whether they go with how often a latent fires."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from latentry.metric_kinds import chance_of
from latentry.plots.parts import (
    PANEL_HEIGHT,
    PANEL_WIDTH,
    Rows,
    chance_line,
    colour,
    decades,
    distinct,
    faceted,
    hover,
    in_a_row,
    in_parts,
    log_scale,
    nothing,
    panels_of,
    scale_of,
    score_scale,
    score_title,
    shape,
)

POINTS_PER_PANEL = 1500
"""Latents drawn in one panel, taken evenly from all of them; boxes and n are of all."""
_POINTS = 3000
"""Latents drawn in all panels of one plot: what bounds the report, which holds each twice, as picture and as row."""
_DRAWN = ("sae", "loss", "latent", "firing_frequency", "score")


def score_distribution(rows: Rows) -> alt.TopLevelMixin:
    """Every latent's score by SAE: points are latents, the box holds the middle half, its line is the median."""
    title = "Scores of single latents"
    if not rows:
        return nothing(title)
    note = "Each point is a latent, n a SAE; the box is the middle half, its line the median; dashed: chance"
    losses = distinct(rows, "loss")
    return in_parts(rows, scale_of, lambda some: _distributions(some, losses, _most(rows)), title, note + _left_out(rows))


def score_by_frequency(rows: Rows) -> alt.TopLevelMixin:
    """Every latent's score against how often it fires: whether a SAE's score is but its latents' frequency."""
    title = "Scores of single latents by firing frequency"
    fired = [row for row in rows if row["firing_frequency"]]
    if not fired:
        return nothing(title)
    losses, note = distinct(fired, "loss"), f"Each point is a latent, n of each SAE; dashed: chance{_left_out(fired)}"
    return in_parts(
        fired,
        scale_of,
        lambda some: _frequencies(some, losses, _most(fired)),
        title,
        note,
    )


def _distributions(rows: Rows, losses: Sequence[str], most: int) -> alt.FacetChart:
    panels, saes = panels_of(rows), distinct(rows, "sae")
    points = [{**row, "jitter": place % 7 - 3} for place, row in enumerate(_thinned(panels, most))]
    y, scale = alt.Y("sae:N", title=None, sort=saes), score_scale(rows, ["score"])
    x = alt.X("score:Q", title=score_title(rows), scale=scale, axis=alt.Axis(labelFlush=False, tickCount=5))
    boxes = alt.Chart().transform_filter("datum.box").encode(y=y, tooltip=hover("sae", "median", "middle half", "n"))
    single = alt.Chart().transform_filter("!datum.box").mark_point(filled=True, size=16, opacity=0.5)
    jitter = alt.YOffset("jitter:Q", scale=alt.Scale(domain=[-6, 6]))
    told = hover("sae", "latent", "score", "firing_frequency")
    chart = alt.layer(
        chance_line().encode(x=alt.X("mean(chance):Q", scale=scale)),
        boxes.mark_bar(height=16, opacity=0.25).encode(x=alt.X("quartile_1:Q", scale=scale), x2="quartile_3:Q", color=colour(losses)),
        single.encode(x=x, y=y, yOffset=jitter, color=colour(losses), shape=shape(losses), tooltip=told),
        boxes.mark_tick(thickness=3, height=18, color="black").encode(x=alt.X("median:Q", scale=scale)),
    ).properties(width=PANEL_WIDTH - 20, height=26 * len(saes) + 10)
    return faceted(chart, [*points, *_boxes(panels)], list(panels), in_a_row(rows))


def _frequencies(rows: Rows, losses: Sequence[str], most: int) -> alt.FacetChart:
    panels, scale = panels_of(rows), score_scale(rows, ["score"])
    ticks = decades([row["firing_frequency"] for row in rows])
    x = alt.X(
        "firing_frequency:Q",
        title="firing frequency (per token, log scale)",
        scale=log_scale(rows, "firing_frequency"),
        axis=alt.Axis(values=ticks, format="~g", grid=False),
    )
    points = (
        alt.Chart().mark_point(filled=True, size=24, opacity=0.55).encode(x=x, y=alt.Y("score:Q", title=score_title(rows), scale=scale))
    )
    points = points.encode(color=colour(losses), shape=shape(losses), tooltip=hover("sae", "latent", "score", "firing_frequency"))
    chart = alt.layer(chance_line().encode(y=alt.Y("mean(chance):Q", scale=scale)), points)
    return faceted(chart.properties(width=PANEL_WIDTH, height=PANEL_HEIGHT), _thinned(panels, most), list(panels), in_a_row(rows))


def _most(rows: Rows) -> int:
    """How many latents are drawn in each panel of a plot of these rows."""
    return min(POINTS_PER_PANEL, _POINTS // len({(row["explainer"], row["scorer"]) for row in rows}))


def _left_out(rows: Rows) -> str:
    """What the note adds where a panel has more latents than are drawn."""
    most = _most(rows)
    return f"; at most {most} points a panel, evenly taken" if max(len(some) for some in panels_of(rows).values()) > most else ""


def _thinned(panels: Mapping[str, Rows], most: int) -> list[dict[str, Any]]:
    """The rows of each panel, evenly taken where there are more than are drawn."""
    taken = []
    for panel, rows in panels.items():
        places = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(int))
        about = {"panel": panel, "box": False, "chance": chance_of(rows[0]["metric"])}
        taken += [{name: _short(rows[place][name]) for name in _DRAWN} | about for place in places]
    return taken


def _short(value: Any) -> Any:
    """A number to four digits, which is more than a picture shows."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _boxes(panels: Mapping[str, Rows]) -> list[dict[str, Any]]:
    boxes = []
    for panel, rows in panels.items():
        for sae in distinct(rows, "sae"):
            mine = [row for row in rows if row["sae"] == sae]
            quartiles = np.quantile([row["score"] for row in mine], [0.25, 0.5, 0.75]).tolist()
            named = dict(zip(("quartile_1", "median", "quartile_3"), quartiles, strict=True))
            told = {"middle half": f"{quartiles[0]:.3f} to {quartiles[2]:.3f}", "n": len(mine)}
            boxes.append({"panel": panel, "sae": sae, "loss": mine[0]["loss"], "box": True, **named, **told})
    return boxes
