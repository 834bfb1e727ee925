"""Explainers against each other, paired by latent: whose texts fit better, on exactly the latents that both have scores of."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import stats

from latentry.comparison.cells import floats, metric_name, metrics_of, of_cell, scored
from latentry.comparison.grid import Grid
from latentry.contracts import COMPARISON
from latentry.metrics import Values, holm, lift, smallest_detectable_with
from latentry.randomness import rng_for

EXPLAINER_PAIRS_TABLE = "explainer_pairs.parquet"


def explainer_pairs_table(grid: Grid, latents: pa.Table, contrasts: Mapping[str, str]) -> pa.Table:
    """Every two explainers on every SAE by each scorer's headline metric.

    The p-values (paired t) of one scorer's metric, over all SAEs and pairs, are one family and Holm-adjusted together.
    """
    rows = []
    for scorer, (headline, *_) in metrics_of(latents, list(grid.scorers)).items():
        family = list(_family(grid, latents, scorer, headline, contrasts[scorer]))
        adjusted = holm([row["p_value"] for row in family])
        rows += [{**row, "p_adjusted": p} for row, p in zip(family, adjusted, strict=True)]
    return pa.Table.from_pylist(rows, schema=COMPARISON.tables[EXPLAINER_PAIRS_TABLE])


def _family(grid: Grid, latents: pa.Table, scorer: str, metric: str, contrast: str) -> Iterator[dict[str, Any]]:
    for sae in grid.saes:
        for one, other in combinations(grid.explainers, 2):
            named = {"scorer": scorer, "metric": metric_name(metric, contrast), "sae": sae, "explainer_a": one, "explainer_b": other}
            a, b = _paired(latents, sae, scorer, metric, (one, other))
            yield {**named, **_numbers(a, b, rng_for(grid.seed, "explainer pair " + " ".join(named.values())))}


def _paired(latents: pa.Table, sae: str, scorer: str, metric: str, explainers: tuple[str, str]) -> tuple[Values, Values]:
    """The scores of both, of the latents that both have one of, in one order."""
    cells = [scored(of_cell(latents, sae, explainer, scorer), metric) for explainer in explainers]
    by_latent = [dict(zip(cell["latent"].to_pylist(), floats(cell, metric), strict=True)) for cell in cells]
    both = sorted(by_latent[0].keys() & by_latent[1].keys())
    a, b = (np.array([of[latent] for latent in both], dtype=float) for of in by_latent)
    return a, b


def _numbers(a: Values, b: Values, rng: np.random.Generator) -> dict[str, Any]:
    apart = lift(a, b, rng)
    spread = float((a - b).std(ddof=1)) if len(a) > 1 else 0.0
    return {
        "difference": apart.mean,
        "low": apart.low,
        "high": apart.high,
        "p_value": float(stats.ttest_rel(a, b).pvalue) if spread > 0 else None,
        "smallest_detectable": smallest_detectable_with(spread, len(a), 0.0, len(a)) if len(a) > 1 else None,
        "n": len(a),
    }
