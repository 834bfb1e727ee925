"""How plots look: scales, axes, colours, shapes and type; what is drawn is `plots.py`'s.

Colours are Okabe and Ito's, told apart by the colour-blind, and each loss has a shape of its own as well.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

Rows = Sequence[Mapping[str, Any]]

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
_FONT = "DejaVu Sans, Arial, Helvetica, sans-serif"


def distinct(rows: Rows, column: str) -> list[Any]:
    """The values of a column, each once, in the order of the rows."""
    return list(dict.fromkeys(row[column] for row in rows))


def log_scale(rows: Rows, column: str) -> alt.Scale:
    """Logarithmic, a third wider than the values."""
    values = [row[column] for row in rows]
    return alt.Scale(type="log", base=2, domain=[min(values) / 1.3, max(values) * 1.3], nice=False)


def log_axis(rows: Rows, column: str) -> alt.Axis:
    """Labels of widths as people say them, and of anything else as they are."""
    if column != "width":
        return alt.Axis(format="~g", tickCount=5, grid=False)
    widths = sorted(distinct(rows, "width"))
    labels = {width: short(width) for width in widths}
    return alt.Axis(values=widths, labelExpr=f"({labels})[datum.value]", grid=False)


def decades(values: Sequence[float]) -> list[float]:
    """Powers of ten among the values; with 2 and 5 times them where the values span less than two decades."""
    low, high = min(values) / 1.3, max(values) * 1.3
    steps = (1, 2, 5) if high / low < 100 else (1,)
    ticks = [step * 10.0**power for power in range(-9, 1) for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def short(width: int) -> str:
    """A width as people say it: 4k."""
    return f"{width // 1024}k" if width % 1024 == 0 else f"{width:,}"


def colour(losses: Sequence[str]) -> alt.Color:
    """By loss."""
    colours = [OKABE_ITO[place % len(OKABE_ITO)] for place in range(len(losses))]
    return alt.Color("loss:N", legend=_legend(), scale=alt.Scale(domain=list(losses), range=colours))


def _legend() -> alt.Legend:
    """What each loss looks like."""
    return alt.Legend(title=None, labelExpr="datum.label + ' SAEs'", symbolOpacity=1)


def shape(losses: Sequence[str]) -> alt.Shape:
    """By loss, for those who do not see the colour."""
    shapes = [SHAPES[place % len(SHAPES)] for place in range(len(losses))]
    return alt.Shape("loss:N", legend=_legend(), scale=alt.Scale(domain=list(losses), range=shapes))


def size(rows: Rows, column: str) -> Any:
    """By width where the axis does not show it: SAEs of several widths often have one L0."""
    if column == "width":
        return alt.value(70)
    widths = sorted(distinct(rows, "width"))
    scale = alt.Scale(domain=[short(width) for width in widths], range=np.linspace(25, 130, len(widths)).tolist())
    return alt.Size("label:N", scale=scale, legend=alt.Legend(title="width:", symbolFillColor="#444444", symbolStrokeWidth=0))


def styled(chart: Any) -> alt.TopLevelMixin:
    """One look for all: type that reads at 1,000 pixels, quiet grid, legend on top."""
    return (
        chart.configure(font=_FONT, background="white", padding=12)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal", gridColor="#ECECEC", domainColor="#888888")
        .configure_title(fontSize=16, subtitleFontSize=12, subtitleColor="#555555", subtitlePadding=6, offset=14)
        .configure_legend(orient="top", labelFontSize=12, symbolSize=90, titleFontSize=12, titleFontWeight="normal", titleOrient="left")
        .configure_view(stroke="#DDDDDD")
        .configure_facet(spacing=22)
    )
