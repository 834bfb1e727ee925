"""The example's scores as the table in the README: `python docs/example_table.py`, after `make repro`, in the project's folder."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from generated import write_between_marks

ROOT = Path(__file__).parents[1]
Row = Mapping[str, Any]


def lines(comparison: Path) -> Iterator[str]:
    """Markdown: one row per SAE and explainer, one column per scorer with its interval, null and n."""
    saes = {row["sae"]: row for row in pq.read_table(comparison / "saes.parquet").to_pylist()}
    heads = [row for row in pq.read_table(comparison / "cells.parquet").to_pylist() if row["headline"]]
    scorers, by_cell = (
        list(dict.fromkeys(row["scorer"] for row in heads)),
        {(row["sae"], row["explainer"], row["scorer"]): row for row in heads},
    )
    columns = ["SAE", "L0", "FVU", "CE recovered", "dead", "explainer", *scorers]
    yield from ("| " + " | ".join(columns) + " |", "|" + "---|" * len(columns))
    for sae, figures in saes.items():
        explainers = list(dict.fromkeys(row["explainer"] for row in heads if row["sae"] == sae))
        for place, explainer in enumerate(explainers):
            about = _figures(sae, figures) if place == 0 else [""] * 5
            shown = [_score(by_cell.get((sae, explainer, scorer))) for scorer in scorers]
            yield "| " + " | ".join([*about, explainer, *shown]) + " |"


def _figures(sae: str, row: Row) -> list[str]:
    return [sae, f"{row['l0']:.1f}", f"{row['fvu']:.3f}", f"{row['ce_recovered']:.3f}", f"{row['dead_fraction']:.1%}"]


def _score(cell: Row | None) -> str:
    if cell is None or cell["mean"] is None:
        return "" if cell is None else f"no score of {cell['n_asked']}"
    interval = "" if cell["low"] is None else f" ({_short(cell['low'])} to {_short(cell['high'])})"
    null = "" if cell["null"] is None else f"; null {_short(cell['null'])}"
    return f"{_short(cell['mean'])}{interval}{null}; n {cell['n']}"


def _short(value: float) -> str:
    return f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.2f}"


if __name__ == "__main__":
    write_between_marks(ROOT / "README.md", list(lines(ROOT / "data" / "comparison")))
