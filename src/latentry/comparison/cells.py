"""What is said of each cell (SAE x explainer x scorer x metric), with intervals.

Every number is made by `metrics.py` from the latents' table; a cell without scores is a row with n = 0.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from latentry.comparison.grid import AskedScorer, Grid, is_complete
from latentry.contracts import COMPARISON, SCORES
from latentry.metric_kinds import METRIC_KINDS, own_kind
from latentry.metrics import Values, lift, summary
from latentry.randomness import rng_for
from latentry.records import NO_EXPLAINER, Status
from latentry.store import read_table

CELLS_TABLE = "cells.parquet"


def metrics_of(latents: pa.Table, scorers: Mapping[str, AskedScorer]) -> dict[str, list[str]]:
    """The metrics that each scorer gives anywhere in the grid, headline first; its own where it gave none."""
    found = {}
    for scorer, asked in scorers.items():
        mine = latents.filter(pc.field("scorer") == scorer)
        given = [metric for metric in METRIC_KINDS if mine[metric].null_count < len(mine)]
        found[scorer] = given or [own_kind(asked.kind)]
    return found


def cells_table(grid: Grid, latents: pa.Table, contrasts: Mapping[str, str]) -> pa.Table:
    """One row per SAE, explainer, scorer and metric, in the order of params.

    A cell whose folder is missing has `n_asked` 0, no statuses and no number of calls.
    """
    metrics = metrics_of(latents, grid.scorers)
    rows = []
    for sae in grid.saes:
        calls = {scorer: calls_by_explainer(grid, sae, scorer) for scorer in grid.scorers}
        for explainer, scorer in _explained(grid):
            mine = of_cell(latents, sae, explainer, scorer)
            for metric in metrics[scorer]:
                name = grid.metric_name(scorer, metric, contrasts[scorer])
                named = {"sae": sae, "explainer": explainer, "scorer": scorer, "metric": name}
                shown = {"contrast_source": contrasts[scorer], "headline": metric == metrics[scorer][0]}
                # not of the SAE's name: a sweep that calls it otherwise draws the same
                rng = rng_for(grid.seed, f"cell {explainer} {scorer} {name}")
                rows.append({**named, **shown, **_cell_numbers(mine, metric, rng), "n_calls": calls[scorer].get(explainer)})
    return pa.Table.from_pylist(rows, schema=COMPARISON.tables[CELLS_TABLE])


def calls_by_explainer(grid: Grid, sae: str, scorer: str) -> dict[str, int]:
    """Replies of a judge that one scorer's judgments stand on, each counted once, those of the null among them; 0 where none is asked.

    Empty where the cell is not there.
    """
    if not is_complete(grid.scores(sae, scorer)):
        return {}
    judgments = read_table(grid.scores(sae, scorer), SCORES, "judgments.parquet", ["explainer", "reply_key"])
    counted = judgments.group_by("explainer").aggregate([("reply_key", "count_distinct")])
    found = dict(zip(counted["explainer"].to_pylist(), counted["reply_key_count_distinct"].to_pylist(), strict=True))
    return dict.fromkeys(grid.explainers_of(scorer), 0) | found


def headlines(latents: pa.Table, scorers: Mapping[str, AskedScorer]) -> dict[str, str]:
    """The metric that stands for each scorer, by its column."""
    return {scorer: found[0] for scorer, found in metrics_of(latents, scorers).items()}


def of_cell(latents: pa.Table, sae: str, explainer: str, scorer: str) -> pa.Table:
    """The rows of one cell and explainer."""
    return latents.filter((pc.field("sae") == sae) & (pc.field("explainer") == explainer) & (pc.field("scorer") == scorer))


def floats(table: pa.Table, column: str) -> Values:
    """A column as numbers; what is not there is NaN."""
    return table[column].cast(pa.float64()).to_numpy().astype(float)


def weights(cell: pa.Table) -> Values | None:
    """What each latent counts for: one over the probability with which it was drawn; None where that is not known of all."""
    probabilities = floats(cell, "inclusion_probability")
    return None if np.isnan(probabilities).any() or (probabilities <= 0).any() else 1 / probabilities


def scored(cell: pa.Table, metric: str) -> pa.Table:
    """The rows that have a score by that metric."""
    return cell.filter((pc.field("status") == Status.OK.value) & pc.field(metric).is_valid())


def _cell_numbers(cell: pa.Table, metric: str, rng: np.random.Generator) -> dict[str, Any]:
    rows, with_null = scored(cell, metric), cell.filter(pc.field(f"null_{metric}").is_valid())
    scores = floats(rows, metric)
    whole = summary(scores, rng, floats(rows, "firing_frequency"), weights(rows))
    null = summary(floats(with_null, f"null_{metric}"), rng, weights=weights(with_null))
    gain = lift(scores, floats(rows, f"null_{metric}"), rng, weights(rows))
    return {
        **{name: getattr(whole, name) for name in whole.__dataclass_fields__},
        "n_asked": len(cell),
        "null": null.mean,
        "null_low": null.low,
        "null_high": null.high,
        "lift": gain.mean,
        "lift_low": gain.low,
        "lift_high": gain.high,
        "n_lift": gain.n,
        "statuses": json.dumps(Counter(cell["status"].to_pylist()), sort_keys=True),
    }


def _explained(grid: Grid) -> Iterator[tuple[str, str]]:
    """Explainers with the scorers of their explanations, then what is scored without one."""
    for explainer in (*grid.explainers, NO_EXPLAINER):
        yield from ((explainer, scorer) for scorer in grid.scorers if explainer in grid.explainers_of(scorer))
