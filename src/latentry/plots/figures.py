"""All plots of one comparison, in the order in which one reads them."""

from collections.abc import Mapping
from dataclasses import dataclass

import altair as alt
import pyarrow as pa

from latentry import plot_rows
from latentry.plots.grids import correlations, found_by_decile, interval_by_calls
from latentry.plots.latents import score_by_frequency, score_distribution
from latentry.plots.scores import frontier, score_by_fvu, score_by_l0, score_by_width


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One plot of a comparison."""

    name: str
    """As a file is named."""
    title: str
    note: str
    """What one sees in it, for who cannot and who does not yet."""
    chart: alt.TopLevelMixin


def figures_of(tables: Mapping[str, pa.Table]) -> list[Figure]:
    """Every plot of one comparison, from its tables by file name."""
    cells, saes, latents = (tables[f"{name}.parquet"] for name in ("cells", "saes", "latents"))
    scores, single = plot_rows.score_rows(cells, saes), plot_rows.latent_rows(latents, cells, saes)
    deciles = plot_rows.decile_rows(tables["deciles.parquet"], saes)
    correlated = plot_rows.correlation_rows(tables["correlations.parquet"])
    drawn = [
        ("score_by_width", "Score against width", "Bars are 95 % intervals, grey is the shuffled null.", score_by_width(scores)),
        ("score_by_l0", "Score against L0", "The same scores by how many latents fire at a token.", score_by_l0(scores)),
        ("score_by_fvu", "Score against FVU", "Upper left is better: explained well and reconstructed well.", score_by_fvu(scores)),
        (
            "frontier",
            "Reconstruction against sparsity",
            "FVU against L0: lower and further left is better.",
            frontier(plot_rows.sae_rows(saes)),
        ),
        ("score_distribution", "Scores of single latents", "Each latent once; a mean hides the shape.", score_distribution(single)),
        ("score_by_frequency", "Score against firing frequency", "Whether rare latents score otherwise.", score_by_frequency(single)),
        ("deciles", "Found by decile", "A line that climbs: the explanation fits the strong windows only.", found_by_decile(deciles)),
        ("correlations", "Scorers against each other", "1: they rank the latents alike, 0: as if by chance.", correlations(correlated)),
        (
            "cost",
            "Interval against calls",
            "What the calls of a judge buy; lower left is better.",
            interval_by_calls(plot_rows.cost_rows(scores)),
        ),
    ]
    return [Figure(name=name, title=title, note=note, chart=chart) for name, title, note, chart in drawn]
