"""Charts as SVG and PNG, and as what a page needs to draw them itself: all in process, nothing asked of a network."""

import functools
import json
from collections.abc import Mapping

import altair as alt
import vl_convert


def to_svg(chart: alt.TopLevelMixin) -> str:
    """The chart as SVG, drawn in process."""
    return vl_convert.vegalite_to_svg(chart.to_dict())


def to_png(chart: alt.TopLevelMixin, *, scale: float = 2) -> bytes:
    """The chart as PNG, `scale` pixels for each of its own, drawn in process."""
    return vl_convert.vegalite_to_png(chart.to_dict(), scale=scale)


def to_json(charts: Mapping[str, alt.TopLevelMixin]) -> str:
    """Charts by name as JSON that may stand in a page's script element, whatever names are in them: all but ASCII, and what could close
    the element or open another, is escaped."""
    text = json.dumps({name: chart.to_dict() for name, chart in charts.items()}, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@functools.cache
def page_script() -> str:
    """The script that draws charts in a page: Vega, Vega-Lite and Vega-Embed in one (about a megabyte), as the global `vegaEmbed`."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
