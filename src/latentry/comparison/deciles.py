"""How much of what activates a latent is found, from its weakest tenth to its strongest: an explanation may fit the peaks alone.

A mean over the latents of a cell that had windows of that decile judged, with an interval over these latents.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from latentry.comparison.cells import of_cell, weights
from latentry.comparison.grid import Grid, is_complete
from latentry.contracts import COMPARISON, SCORES
from latentry.metrics import summary
from latentry.randomness import rng_for
from latentry.records import Status
from latentry.store import read_table

DECILES_TABLE = "deciles.parquet"


def deciles_table(grid: Grid, latents: pa.Table) -> pa.Table:
    """One row per SAE, explainer, scorer and decile, of the scorers that say yes or no; a shuffled explanation's answers are not in it."""
    rows = [row for sae in grid.saes for scorer in grid.scorers for row in _rows(grid, latents, sae, scorer)]
    return pa.Table.from_pylist(rows, schema=COMPARISON.tables[DECILES_TABLE])


def _rows(grid: Grid, latents: pa.Table, sae: str, scorer: str) -> Iterator[dict[str, Any]]:
    if not is_complete(grid.scores(sae, scorer)):
        return
    columns = ["latent", "explainer", "null", "status", "decile_found"]
    scores = read_table(grid.scores(sae, scorer), SCORES, "scores.parquet", columns)
    scores = scores.filter(~pc.field("null") & (pc.field("status") == Status.OK.value) & pc.field("decile_found").is_valid())
    for explainer in grid.explainers_of(scorer):
        mine = scores.filter(pc.field("explainer") == explainer)
        found = dict(zip(mine["latent"].to_pylist(), mine["decile_found"].to_pylist(), strict=True))
        cell = of_cell(latents, sae, explainer, scorer)
        cell = cell.filter(pc.field("latent").isin(list(found)))
        shares = np.array([found[latent] for latent in cell["latent"].to_pylist()], dtype=float)
        for place in range(shares.shape[1] if len(cell) else 0):
            judged = ~np.isnan(shares[:, place])
            rng = rng_for(grid.seed, f"decile {place + 1} {explainer} {scorer}")
            whole = summary(shares[judged, place], rng, weights=weights(cell.filter(pa.array(judged))))
            named = {"sae": sae, "explainer": explainer, "scorer": scorer, "decile": place + 1}
            yield {**named, "found": whole.mean, "low": whole.low, "high": whole.high, "n": whole.n}
