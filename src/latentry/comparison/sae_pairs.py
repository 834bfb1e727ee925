"""Every two SAEs against each other: how far apart their scores are, what of it is but their latents' frequency, and who cannot be compared.

SAEs that were scored under unlike settings have no difference, unless the comparison is told to force it; then the row says so.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pyarrow as pa

from latentry.comparison.cells import floats, headlines, of_cell, scored, weights
from latentry.comparison.grid import Grid, is_complete
from latentry.comparison.unlike import differing
from latentry.contracts import COMPARISON, EXAMPLES
from latentry.metrics import difference, holm, smallest_detectable, standardised_difference
from latentry.randomness import rng_for
from latentry.records import Status
from latentry.store import read_table

PAIRS_TABLE = "pairs.parquet"


def pairs_table(grid: Grid, latents: pa.Table, contrasts: Mapping[str, str]) -> pa.Table:
    """Every two SAEs by each scorer's headline metric, under each explainer.

    The p-values of one scorer's metric, over all pairs and explainers, are one family and Holm-adjusted together.
    """
    eligible = {sae: _eligible_share(grid, sae) for sae in grid.saes}
    rows = []
    for scorer, metric in headlines(latents, grid.scorers).items():
        family = []
        for pair in combinations(grid.saes, 2):
            unlike = differing(grid, *pair, scorer)
            for explainer in grid.explainers_of(scorer):
                named = {"scorer": scorer, "metric": grid.metric_name(scorer, metric, contrasts[scorer]), "explainer": explainer}
                row = {**named, "sae_a": pair[0], "sae_b": pair[1], "unlike": unlike, "forced": bool(unlike) and grid.force}
                row |= {"eligible_a": eligible[pair[0]], "eligible_b": eligible[pair[1]]}
                family.append({**row, **(_numbers(grid, latents, named, metric, pair) if not unlike or grid.force else {})})
        adjusted = holm([row.get("p_value") for row in family])
        rows += [{**row, "p_adjusted": p} for row, p in zip(family, adjusted, strict=True)]
    return pa.Table.from_pylist(rows, schema=COMPARISON.tables[PAIRS_TABLE])


def _eligible_share(grid: Grid, sae: str) -> float | None:
    """Of the latents looked at, the share that has enough examples; None where there are none yet."""
    if not is_complete(grid.examples(sae)):
        return None
    statuses = read_table(grid.examples(sae), EXAMPLES, "latents.parquet", ["status"])["status"].to_pylist()
    return statuses.count(Status.OK.value) / len(statuses) if statuses else None


def _numbers(grid: Grid, latents: pa.Table, named: Mapping[str, str], metric: str, pair: tuple[str, str]) -> dict[str, Any]:
    rows = [scored(of_cell(latents, sae, named["explainer"], named["scorer"]), metric) for sae in pair]
    (a, b), weighted = [floats(of, metric) for of in rows], [weights(of) for of in rows]
    rng = rng_for(grid.seed, "pair " + " ".join([*named.values(), *pair]))
    apart = difference(a, b, rng, *weighted)
    frequency_a, frequency_b = (floats(of, "firing_frequency") for of in rows)
    alike = standardised_difference(a, b, frequency_a, frequency_b, rng, *weighted)
    return {
        **{name: getattr(apart, name) for name in apart.__dataclass_fields__},
        "smallest_detectable": smallest_detectable(a, b, *weighted),
        "standardised": alike.difference,
        "standardised_low": alike.low,
        "standardised_high": alike.high,
        "by_frequency": _apart_from_zero(apart.low, apart.high) and not _apart_from_zero(alike.low, alike.high),
    }


def _apart_from_zero(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and (low > 0 or high < 0)
