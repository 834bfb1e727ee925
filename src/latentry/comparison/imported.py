"""Scores that others made beside ours of the same latents and explainer: both means, and whether they rank the latents alike.

Theirs come from a file that `latentry import` wrote and params pin by its digest. Always true: only latents that both have a score
of are compared, and nothing says that two definitions are one.
"""

import functools
import operator
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from latentry.comparison.cells import floats, metrics_of, of_cell, scored, weights
from latentry.comparison.correlations import spearman
from latentry.comparison.grid import Grid
from latentry.contracts import COMPARISON, IMPORT
from latentry.errors import ContractError
from latentry.metrics import Summary, Values, summary
from latentry.pinned_files import check_pinned
from latentry.randomness import rng_for
from latentry.records import NO_EXPLAINER
from latentry.sections import ImportedSettings

IMPORTED_TABLE = "imported.parquet"
_SCORES = "scores.parquet"
_KEYS = ("scorer", "metric", "recomputed", "definition")


def imported_table(grid: Grid, latents: pa.Table, contrasts: Mapping[str, str]) -> pa.Table:
    """One row per import, number of theirs, and scorer of ours; empty where params name no import.

    Raises:
        ParamsError: a file is not there, or is not the one stated.
        ContractError: a file holds no scores of an import.
    """
    rows = [row for name, settings in grid.imported.items() for row in _rows(grid, latents, contrasts, name, settings)]
    return pa.Table.from_pylist(rows, schema=COMPARISON.tables[IMPORTED_TABLE])


def read_scores(path: Path) -> pa.Table:
    """The scores of an import.

    Raises:
        ContractError: the file is damaged, or has other columns.
    """
    wanted, again = IMPORT.tables[_SCORES], "run `latentry import` again, and name its file and digest"
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise ContractError(f"{path}: cannot be read as Parquet ({error}); {again}") from error
    if table.schema.names != wanted.names:
        raise ContractError(f"{path}: has columns {table.schema.names}, wanted {wanted.names}; {again}")
    return table


def _rows(grid: Grid, latents: pa.Table, contrasts: Mapping[str, str], name: str, settings: ImportedSettings) -> Iterator[dict[str, Any]]:
    check_pinned(Path(settings.path), settings.sha256, f"comparison.imported.{name}", "the scores of an import")
    theirs = read_scores(Path(settings.path))
    named = {"imported": name, "sae": settings.sae, "explainer": settings.explainer}
    for key in sorted(tuple(row[name] for name in _KEYS) for row in theirs.group_by(_KEYS).aggregate([]).to_pylist()):
        of_key = theirs.filter(functools.reduce(operator.and_, (pc.field(name) == value for name, value in zip(_KEYS, key, strict=True))))
        told = dict(zip(("their_scorer", "their_metric", "recomputed", "definition"), key, strict=True))
        for scorer, metrics in metrics_of(latents, grid.scorers).items():
            metric = told["their_metric"] if told["their_metric"] in metrics else metrics[0]
            ours = scored(_our_cell(grid, latents, settings, scorer), metric)
            row = {**named, **told, "scorer": scorer, "metric": grid.metric_name(scorer, metric, contrasts[scorer])}
            rng = rng_for(grid.seed, "imported " + " ".join(map(str, row.values())))
            yield {**row, **_numbers(of_key, ours, metric, rng)}


def _our_cell(grid: Grid, latents: pa.Table, settings: ImportedSettings, scorer: str) -> pa.Table:
    """A scorer that reads no explanations has one number of a latent, whoever explains it."""
    explainer = settings.explainer if grid.scorers[scorer].reads_explanations else NO_EXPLAINER
    return of_cell(latents, settings.sae, explainer, scorer)


def _numbers(theirs: pa.Table, ours: pa.Table, metric: str, rng: np.random.Generator) -> dict[str, Any]:
    """Means over the latents that both have, each weighing as it does in our sample."""
    scores = dict(zip(theirs["latent"].to_pylist(), theirs["score"].to_pylist(), strict=True))
    both = ours.filter(pc.field("latent").isin(list(scores))).sort_by("latent")
    a = np.array([scores[latent] for latent in both["latent"].to_pylist()], float)
    b = floats(both, metric)
    found, low, high = spearman(a, b, rng)
    return {
        "n": len(both),
        "n_theirs": len(scores),
        "n_ours": len(ours),
        **_mean("their_mean", summary(a, rng, weights=_weights(both))),
        **_mean("mean", summary(b, rng, weights=_weights(both))),
        "spearman": found,
        "spearman_low": low,
        "spearman_high": high,
    }


def _weights(both: pa.Table) -> Values | None:
    return weights(both) if len(both) else None


def _mean(name: str, of: Summary) -> dict[str, float | None]:
    return {name: of.mean, f"{name}_low": of.low, f"{name}_high": of.high}
