"""Every plot's one definition, from flat rows to an Altair chart, and charts to SVG, PNG and a page's script without a network.

Rows are made by `plot_rows.py`. Every axis names its unit, every panel its n; hovering over a mark names the SAE with its number,
interval and n. `figures_of` are all plots of a comparison, for the report and the tracker.
"""

from latentry.plots.drawing import page_script, to_json, to_png, to_svg
from latentry.plots.figures import Figure, figures_of
from latentry.plots.grids import correlations, found_by_decile, interval_by_calls
from latentry.plots.latents import POINTS_PER_PANEL, score_by_frequency, score_distribution
from latentry.plots.scores import frontier, score_by_fvu, score_by_l0, score_by_width

__all__ = [
    "POINTS_PER_PANEL",
    "Figure",
    "correlations",
    "figures_of",
    "found_by_decile",
    "frontier",
    "interval_by_calls",
    "page_script",
    "score_by_frequency",
    "score_by_fvu",
    "score_by_l0",
    "score_by_width",
    "score_distribution",
    "to_json",
    "to_png",
    "to_svg",
]
