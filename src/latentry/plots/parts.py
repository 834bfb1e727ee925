"""What the plots share: panels and their names, scales, colours with shapes, hover texts, and one look.

Colours are Okabe and Ito's, told apart by the colour-blind, and each has a shape of its own as well. Nothing here knows which plot it is in.
"""

import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from latentry.metric_kinds import METRIC_KINDS, chance_of, context_of, kind_of
from latentry.records import NO_EXPLAINER

Rows = Sequence[Mapping[str, Any]]

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
GREY = "#8C8C8C"
"""Of what is no SAE's: the shuffled null, and chance."""

PANEL_WIDTH, PANEL_HEIGHT = 250, 190  # three panels and their axis stand side by side in 1,000 pixels
NOTHING = "nothing has been scored or measured yet"

_FONT = "DejaVu Sans, Arial, Helvetica, sans-serif"


def distinct(rows: Rows, column: str) -> list[Any]:
    """The values of a column, in the order in which they come."""
    return list(dict.fromkeys(row[column] for row in rows))


def panels_of(rows: Rows) -> dict[str, Rows]:
    """Rows by panel, in the order of explainers, then scorers; a panel's name says its metric and how many latents."""
    grouped = defaultdict(list)
    for row in rows:
        grouped[row["explainer"], row["scorer"]].append(row)
    explainers, scorers = distinct(rows, "explainer"), distinct(rows, "scorer")
    order = sorted(grouped, key=lambda pair: (explainers.index(pair[0]), scorers.index(pair[1])))
    mixed = len({kind_of(row["metric"]) for row in rows if "metric" in row}) > 1
    return {_panel_name(explainer, scorer, grouped[explainer, scorer], mixed): grouped[explainer, scorer] for explainer, scorer in order}


def counts_of(rows: Rows) -> str:
    """`n = 30`, or `n = 12 to 30`, of latents: as the rows say, or rows by SAE where each is a latent."""
    counts = [row["n"] for row in rows] if "n" in rows[0] else list(Counter(row["sae"] for row in rows).values())
    return f"n = {min(counts)}" if min(counts) == max(counts) else f"n = {min(counts)} to {max(counts)}"


def scale_of(row: Mapping[str, Any]) -> tuple[str, float | None]:
    """What scores must share to stand in one scale: unit and chance."""
    return unit_of(row), chance_of(row["metric"])


def unit_of(row: Mapping[str, Any]) -> str:
    """The unit of a row's score; empty for shares and correlations."""
    return METRIC_KINDS[kind_of(row["metric"])].unit


def in_parts(rows: Rows, key: Callable[..., Any], draw: Callable[[Rows], Any], title: str, note: str) -> alt.TopLevelMixin:
    """The charts that `draw` makes of the rows of one `key`, below each other under one title; those with a unit (nats) stand last."""
    grouped = defaultdict(list)
    for row in sorted(rows, key=unit_of):
        grouped[key(row)].append(row)
    charts = [draw(some) for some in grouped.values()]
    whole = charts[0] if len(charts) == 1 else alt.vconcat(*charts, spacing=24).resolve_scale(color="shared", shape="shared", size="shared")
    return styled(whole.properties(title=title_of(title, note)))


def in_a_row(rows: Rows) -> int:
    """Panels beside each other: an explainer's scorers, where that are two or three."""
    most = max(Counter(explainer for explainer, _ in {(row["explainer"], row["scorer"]) for row in rows}).values())
    return 2 if most == 2 else 3


def faceted(chart: Any, values: Rows, panels: Sequence[str], columns: int = 3) -> alt.FacetChart:
    """One panel for each value of `panel`."""
    header = alt.Header(title=None, labelExpr="split(datum.label, '\\n')", labelFontSize=12, labelLineHeight=15, labelPadding=6)
    facet = alt.Facet("panel:N", sort=list(panels), header=header)
    columns = min(columns, len(panels))
    return chart.facet(facet=facet, columns=columns, data=alt.Data(values=list(values))).resolve_axis(x="independent")


def score_title(rows: Rows) -> list[str]:
    """Name, unit and chance of scores of one scale at an axis, in lines that fit it."""
    kinds, chance = distinct([{"kind": kind_of(row["metric"])} for row in rows], "kind"), chance_of(rows[0]["metric"])
    said = [*filter(None, [unit_of(rows[0])]), *([] if chance is None else [f"chance {chance:.3g}"])]
    name = METRIC_KINDS[kinds[0]].title if len(kinds) == 1 else "score"
    return textwrap.wrap(f"{name} ({', '.join(said)})" if said else name, 34)


def score_scale(rows: Rows, columns: Sequence[str]) -> alt.Scale:
    """From the tenth below the lowest up to 1, chance in sight, the same in all panels of one scale; numbers with a unit: as they fall, with 0."""
    if METRIC_KINDS[kind_of(rows[0]["metric"])].limits is None:
        return alt.Scale(zero=True, nice=True)
    levels = [row[column] for row in rows for column in columns if row.get(column) is not None]
    levels += [chance - 0.1 for row in rows if (chance := chance_of(row["metric"])) is not None]
    lowest = min([0.4, *(np.floor(round(level * 10, 6)) / 10 for level in levels)])
    return alt.Scale(domain=[float(lowest), 1.0], nice=False)


def chance_line() -> alt.Chart:
    """The level of one who does not look, from the rows' `chance`; none where it is not known."""
    return alt.Chart().transform_filter("isValid(datum.chance)").mark_rule(color=GREY, strokeDash=[4, 4])


def log_scale(rows: Rows, column: str) -> alt.Scale:
    """Of powers of two, with a margin."""
    values = [row[column] for row in rows]
    return alt.Scale(type="log", base=2, domain=[min(values) / 1.3, max(values) * 1.3], nice=False)


def width_axis(rows: Rows) -> alt.Axis:
    """A tick at each width that there is."""
    widths = sorted(distinct(rows, "width"))
    return alt.Axis(values=widths, labelExpr=f"({ {width: short(width) for width in widths} })[datum.value]", labelOverlap=True, grid=False)


def decades(values: Sequence[float]) -> list[float]:
    """Powers of ten among the values; with 2 and 5 times them where the values span less than two decades."""
    low, high = min(values) / 1.3, max(values) * 1.3
    steps = (1, 2, 5) if high / low < 100 else (1,)
    ticks = [step * 10.0**power for power in range(-9, 1) for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def short(width: int) -> str:
    """A width as one says it: 16k."""
    return f"{width // 1024}k" if width % 1024 == 0 else f"{width:,}"


def colour(names: Sequence[str], column: str = "loss") -> alt.Color:
    """A colour for each name; by default for each loss."""
    colours = [OKABE_ITO[place % len(OKABE_ITO)] for place in range(len(names))]
    return alt.Color(f"{column}:N", legend=_legend(column), scale=alt.Scale(domain=list(names), range=colours))


def shape(names: Sequence[str], column: str = "loss") -> alt.Shape:
    """A shape for each name; where colours begin anew, no shape meets the same colour."""
    shapes = [SHAPES[(place + place // len(SHAPES)) % len(SHAPES)] for place in range(len(names))]
    return alt.Shape(f"{column}:N", legend=_legend(column), scale=alt.Scale(domain=list(names), range=shapes))


def size(rows: Rows, largest: int = 130) -> Any:
    """By width, where no axis shows it."""
    widths = sorted(distinct(rows, "width"))
    if len(widths) == 1:
        return alt.value(largest / 2)
    names = [short(width) for width in widths]
    scale = alt.Scale(domain=names, range=np.linspace(20, largest, len(widths)).tolist())
    return alt.Size("label:O", sort=names, scale=scale, legend=alt.Legend(title="width:", symbolFillColor="#444444", symbolStrokeWidth=0))


def hover(*columns: str) -> list[alt.Tooltip]:
    """What is shown of a mark under the pointer, by column."""
    return [_HOVERS.get(column, alt.Tooltip(f"{column}:N")) for column in columns]


_HOVERS = {
    "sae": alt.Tooltip("sae:N", title="SAE"),
    "interval": alt.Tooltip("interval:N", title="95 % interval"),
    "n": alt.Tooltip("n:Q", title="n latents"),
    "n_calls": alt.Tooltip("n_calls:Q", title="calls", format=","),
    "width": alt.Tooltip("width:Q", format=","),
    "latent": alt.Tooltip("latent:N"),
    "firing_frequency": alt.Tooltip("firing_frequency:Q", title="firing frequency", format=".3g"),
    **{name: alt.Tooltip(f"{name}:Q", format=".3f") for name in ("score", "median", "found", "spearman", "null", "breadth")},
    "fvu": alt.Tooltip("fvu:Q", title="FVU", format=".3f"),
    "l0": alt.Tooltip("l0:Q", title="L0", format=".3~f"),
}


def interval_words(row: Mapping[str, Any]) -> str:
    """A row's interval as text."""
    return "none" if row["low"] is None or row["high"] is None else f"{row['low']:.3f} to {row['high']:.3f}"


def nothing(title: str, why: str = NOTHING) -> alt.TopLevelMixin:
    """A plot of no rows, which says why there are none."""
    text = alt.Chart(alt.Data(values=[{"text": why}])).mark_text(fontSize=14, color=GREY).encode(text="text:N")
    return styled(text.properties(width=560, height=80, title=title))


def title_of(text: str, note: str) -> alt.TitleParams:
    """A title with a line below it that says how to read the plot."""
    return alt.TitleParams(text, subtitle=note, anchor="start")


def styled(chart: Any) -> alt.TopLevelMixin:
    """One look for all: type that reads at 1,000 pixels, quiet grid, legend on top."""
    return (
        chart.configure(font=_FONT, background="white", padding=12)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal", gridColor="#ECECEC", domainColor="#888888")
        .configure_title(fontSize=16, subtitleFontSize=12, subtitleColor="#555555", subtitlePadding=6, offset=14)
        .configure_legend(
            orient="top",
            columns=6,
            labelFontSize=12,
            labelLimit=200,
            symbolSize=90,
            titleFontSize=12,
            titleFontWeight="normal",
            titleOrient="left",
        )
        .configure_view(stroke="#DDDDDD")
        .configure_facet(spacing=22)
    )


def _panel_name(explainer: str, scorer: str, rows: Rows, mixed: bool) -> str:
    whose = f"{scorer}, no explanation read" if explainer == NO_EXPLAINER else f"{scorer} of {explainer} explanations"
    if "metric" not in rows[0]:
        return f"{whose}\n{counts_of(rows)}"
    metric = METRIC_KINDS[kind_of(rows[0]["metric"])].title
    return "\n".join([whose, *([metric] if mixed else []), ", ".join(filter(None, [context_of(rows[0]["metric"]), counts_of(rows)]))])


def _legend(column: str) -> alt.Legend:
    words = "datum.label + ' SAEs'" if column == "loss" else "datum.label"
    return alt.Legend(title=None, labelExpr=words, symbolOpacity=1)
