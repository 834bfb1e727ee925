"""Explainers against each other, paired by latent: whose texts fit better, on exactly the latents that both have scores of."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from latentry.comparison.cells import floats, metrics_of, of_cell, scored, weights
from latentry.comparison.grid import Grid
from latentry.contracts import COMPARISON
from latentry.metrics import Values, holm, lift, paired_p_value, smallest_detectable_with, spread
from latentry.randomness import rng_for

EXPLAINER_PAIRS_TABLE = "explainer_pairs.parquet"


def explainer_pairs_table(grid: Grid, latents: pa.Table, contrasts: Mapping[str, str]) -> pa.Table:
    """Every two explainers on every SAE by each scorer's headline metric.

    The p-values (paired t) of one scorer's metric, over all SAEs and pairs, are one family and Holm-adjusted together.
    """
    rows = []
    for scorer, (headline, *_) in metrics_of(latents, grid.scorers).items():
        family = list(_family(grid, latents, scorer, headline, contrasts[scorer]))
        adjusted = holm([row["p_value"] for row in family])
        rows += [{**row, "p_adjusted": p} for row, p in zip(family, adjusted, strict=True)]
    return pa.Table.from_pylist(rows, schema=COMPARISON.tables[EXPLAINER_PAIRS_TABLE])


def _family(grid: Grid, latents: pa.Table, scorer: str, metric: str, contrast: str) -> Iterator[dict[str, Any]]:
    for sae in grid.saes:
        for one, other in combinations(grid.explainers_of(scorer), 2):
            name = grid.metric_name(scorer, metric, contrast)
            named = {"scorer": scorer, "metric": name, "sae": sae, "explainer_a": one, "explainer_b": other}
            a, b, weighted = _paired(latents, sae, scorer, metric, (one, other))
            yield {**named, **_numbers(a, b, weighted, rng_for(grid.seed, "explainer pair " + " ".join(named.values())))}


def _paired(latents: pa.Table, sae: str, scorer: str, metric: str, explainers: tuple[str, str]) -> tuple[Values, Values, Values | None]:
    """The scores of both and the weights, of the latents that both have one of, in one order."""
    cells = [scored(of_cell(latents, sae, explainer, scorer), metric) for explainer in explainers]
    both = sorted(set(cells[0]["latent"].to_pylist()) & set(cells[1]["latent"].to_pylist()))
    one, other = (cell.filter(pc.field("latent").isin(both)).sort_by("latent") for cell in cells)
    # those that both explained are the sample of the explainer that explained fewer
    weighted = [weights(one), weights(other)]
    larger = None if weighted[0] is None or weighted[1] is None else np.maximum(weighted[0], weighted[1])
    return floats(one, metric), floats(other, metric), larger


def _numbers(a: Values, b: Values, weighted: Values | None, rng: np.random.Generator) -> dict[str, Any]:
    apart = lift(a, b, rng, weighted)
    several = len(a) > 1
    return {
        "difference": apart.mean,
        "low": apart.low,
        "high": apart.high,
        "p_value": paired_p_value(a, b, weighted),
        "smallest_detectable": smallest_detectable_with(spread(a - b, weighted), len(a), 0.0, len(a)) if several else None,
        "n": len(a),
    }
