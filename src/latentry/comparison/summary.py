"""The few numbers that stand in git: `metrics/summary.json` for `dvc metrics` and `dvc exp show`, and flat rows for plots.

Made from the comparison's tables and the loss curves alone, rounded, and the same bytes for the same inputs.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from latentry.atomic import write_atomic
from latentry.comparison.cells import CELLS_TABLE
from latentry.comparison.correlations import CORRELATIONS_TABLE
from latentry.comparison.deciles import DECILES_TABLE
from latentry.comparison.jacobians import EDGE_SCORES_TABLE, JACOBIANS_TABLE
from latentry.comparison.tables import LATENTS_TABLE, SAES_TABLE
from latentry.contracts import COMPARISON
from latentry.metric_kinds import JACOBIAN_FIGURES, kind_of
from latentry.plot_rows import (
    correlation_rows,
    decile_rows,
    evenly,
    headline_rows,
    latent_rows,
    sae_rows,
    score_rows,
    training_rows,
    with_breadth,
)
from latentry.store import read_table

_QUALITY = ("l0", "fvu", "ce_recovered", "dead_fraction", "width")
_DIGITS = 4
_LATENTS = 1500
"""Latents in git, evenly taken from all that have a score: enough to draw, and few enough to be committed with every run."""
_CURVE_POINTS = 100
"""Points of a SAE's loss curve in git at most; all are in its `loss.csv`."""
_JSON: dict[str, Any] = {"sort_keys": True, "ensure_ascii": False, "allow_nan": False}


def write_metrics(comparison: Path, trained: Path, metrics: Path) -> None:
    """Write `summary.json` and the rows of every plot as `plots/*.json` under a folder, from a complete comparison's folder and that of
    the SAEs, which hold their loss curves."""
    tables = {name: read_table(comparison, COMPARISON, name) for name in COMPARISON.tables}
    cells, saes = tables[CELLS_TABLE], tables[SAES_TABLE]
    jacobians = jacobian_summary(tables[JACOBIANS_TABLE], tables[EDGE_SCORES_TABLE])
    _write(metrics / "summary.json", summary_of(cells, saes) | ({"jacobians": jacobians} if jacobians else {}))
    rows = {
        "scores": with_breadth(score_rows(cells, saes)),
        "saes": sae_rows(saes),
        "deciles": decile_rows(tables[DECILES_TABLE], saes),
        "correlations": correlation_rows(tables[CORRELATIONS_TABLE]),
        "latents": evenly(latent_rows(tables[LATENTS_TABLE], cells, saes), _LATENTS),
    }
    for name, some in rows.items():
        _write_rows(metrics / "plots" / f"{name}.json", [_rounded(row) for row in some])
    _write_rows(metrics / "plots" / "training.json", _thinned(training_rows(trained, saes)))


def summary_of(cells: pa.Table, saes: pa.Table) -> dict[str, Any]:
    """{sae: {quality: {...}, scores: {explainer: {scorer: {score, lift}}}}}; a number that is not known is left out.

    The score is the headline; where that is another number, the balanced accuracy stands beside it.
    """
    whole: dict[str, Any] = {}
    decided = (row for row in cells.to_pylist() if not row["headline"] and kind_of(row["metric"]) == "balanced_accuracy")
    beside = {(row["sae"], row["explainer"], row["scorer"]): row["mean"] for row in decided}
    for row in saes.to_pylist():
        whole[row["sae"]] = {"quality": _rounded({name: row[name] for name in _QUALITY}), "scores": {}}
    for row in headline_rows(cells):
        key = row["sae"], row["explainer"], row["scorer"]
        shown = _rounded({"score": row["mean"], "lift": row["lift"], "balanced_accuracy": beside.get(key)})
        if shown:
            whole[row["sae"]]["scores"].setdefault(row["explainer"], {})[row["scorer"]] = shown
    return whole


def jacobian_summary(jacobians: pa.Table, scores: pa.Table) -> dict[str, Any]:
    """{jacobian: {figures: {...}, edges: {explainer: {score, lift, own}}}}."""
    whole: dict[str, Any] = {}
    for row in jacobians.to_pylist():
        whole[row["jacobian"]] = {"figures": _rounded({name: row[name] for name in JACOBIAN_FIGURES}), "edges": {}}
    for row in scores.to_pylist():
        shown = _rounded({name: row[name] for name in ("score", "lift", "own")})
        whole.setdefault(row["jacobian"], {"edges": {}})["edges"][row["explainer"]] = shown
    return whole


def _thinned(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every so manieth point of each SAE's curve, its last among them."""
    kept = []
    for sae in dict.fromkeys(row["sae"] for row in rows):
        mine = [row for row in rows if row["sae"] == sae]
        kept += mine[:: -math.ceil(len(mine) / _CURVE_POINTS)][::-1]
    return kept


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    known = {name: value for name, value in row.items() if value is not None}
    return {name: _short(value) if isinstance(value, float) else value for name, value in known.items()}


def _short(value: float) -> float:
    """To four decimals, and what is rarer than that to three digits: a latent fires at one token in 100,000."""
    return round(value, _DIGITS) if abs(value) >= 10**-_DIGITS else float(f"{value:.3g}")


def _write(path: Path, value: dict[str, Any]) -> None:
    _write_text(path, json.dumps(value, indent=1, **_JSON))


def _write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """One row a line, so that git and its readers see which changed."""
    lines = ",\n".join(json.dumps(row, **_JSON) for row in rows)
    _write_text(path, f"[\n{lines}\n]" if rows else "[]")


def _write_text(path: Path, text: str) -> None:
    write_atomic(path, lambda partial: partial.write_text(text + "\n", encoding="utf-8"))
