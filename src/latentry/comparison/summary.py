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
from latentry.comparison.tables import SAES_TABLE
from latentry.contracts import COMPARISON
from latentry.metric_kinds import kind_of
from latentry.plot_rows import headline_rows, sae_rows, score_rows, training_rows
from latentry.store import read_table

_QUALITY = ("l0", "fvu", "ce_recovered", "dead_fraction", "width")
_DIGITS = 4
_CURVE_POINTS = 100
"""Points of a SAE's loss curve at most: the file is in git. All are in its `loss.csv`."""


def write_metrics(comparison: Path, trained: Path, metrics: Path) -> None:
    """Write `summary.json` and `plots/{scores,saes,training}.json` under a folder, from a complete comparison's folder and that of
    the SAEs, which hold their loss curves."""
    cells, saes = (read_table(comparison, COMPARISON, name) for name in (CELLS_TABLE, SAES_TABLE))
    _write(metrics / "summary.json", summary_of(cells, saes))
    _write(metrics / "plots" / "scores.json", [_rounded(row) for row in score_rows(cells, saes)])
    _write(metrics / "plots" / "saes.json", [_rounded(row) for row in sae_rows(saes)])
    _write_lines(metrics / "plots" / "training.json", _thinned(training_rows(trained, saes)))


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


def _thinned(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every so manieth point of each SAE's curve, its last among them."""
    kept = []
    for sae in dict.fromkeys(row["sae"] for row in rows):
        mine = [row for row in rows if row["sae"] == sae]
        kept += mine[:: -math.ceil(len(mine) / _CURVE_POINTS)][::-1]
    return kept


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    known = {name: value for name, value in row.items() if value is not None}
    return {name: round(value, _DIGITS) if isinstance(value, float) else value for name, value in known.items()}


def _write(path: Path, value: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
    _write_text(path, _json(value, indent=1))


def _write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A row a line: there are many."""
    _write_text(path, "[" + ",\n".join(_json(row) for row in rows) + "]")


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, sort_keys=True, ensure_ascii=False, allow_nan=False)


def _write_text(path: Path, text: str) -> None:
    write_atomic(path, lambda partial: partial.write_text(text + "\n", encoding="utf-8"))
