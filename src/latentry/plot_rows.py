"""The comparison's tables and the training curves as the flat rows that are drawn, for all who draw: the summary, the report, the tracker.

Rows without the number that is drawn are left out, never zero.
"""

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa

from latentry.metric_kinds import METRIC_KINDS, kind_of


def headline_rows(cells: pa.Table) -> list[dict[str, Any]]:
    """The cells' rows with the metric that stands for their scorer."""
    return [row for row in cells.to_pylist() if row["headline"]]


def score_rows(cells: pa.Table, saes: pa.Table) -> list[dict[str, Any]]:
    """One row per SAE, explainer and scorer with its headline score."""
    of = {row["sae"]: row for row in sae_rows(saes)}
    rows = [row for row in headline_rows(cells) if row["mean"] is not None and row["sae"] in of]
    return [{**{name: of[row["sae"]][name] for name in ("loss", "width", "l0", "fvu")}, **row, "score": row["mean"]} for row in rows]


def sae_rows(saes: pa.Table) -> list[dict[str, Any]]:
    """One row per SAE that was measured."""
    return [row for row in saes.to_pylist() if row["fvu"] is not None and row["l0"] is not None]


def latent_rows(latents: pa.Table, cells: pa.Table, saes: pa.Table) -> list[dict[str, Any]]:
    """One row per latent, explainer and scorer that has the headline score."""
    of = {row["sae"]: row for row in saes.to_pylist()}
    headline = {(row["sae"], row["explainer"], row["scorer"]): row["metric"] for row in headline_rows(cells)}
    kept = ("sae", "explainer", "scorer", "latent", "firing_frequency")
    rows = []
    for row in latents.select([*kept, *METRIC_KINDS]).to_pylist():
        metric = headline.get((row["sae"], row["explainer"], row["scorer"]))
        score = row[kind_of(metric)] if metric else None
        if score is not None:
            about = {name: of[row["sae"]][name] for name in ("loss", "width")}
            rows.append({**about, **{name: row[name] for name in kept}, "metric": metric, "score": score})
    return rows


def decile_rows(deciles: pa.Table, saes: pa.Table) -> list[dict[str, Any]]:
    """One row per SAE, explainer, scorer and decile of which windows were judged."""
    of = {row["sae"]: row for row in sae_rows(saes)}
    rows = [row for row in deciles.to_pylist() if row["found"] is not None and row["sae"] in of]
    return [{**{name: of[row["sae"]][name] for name in ("loss", "width")}, **row} for row in rows]


def correlation_rows(correlations: pa.Table) -> list[dict[str, Any]]:
    """One row per explainer and two scorers, over all SAEs together."""
    return [row for row in correlations.to_pylist() if row["sae"] is None and row["spearman"] is not None]


def cost_rows(scores: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `score_rows` that have an interval and a number of calls, with the interval's `breadth`."""
    known = [row for row in scores if None not in (row["low"], row["high"], row["n_calls"])]
    return [{**row, "breadth": row["high"] - row["low"]} for row in known]


def training_rows(folder: Path, saes: pa.Table) -> list[dict[str, Any]]:
    """The loss curves of the SAEs that were trained here, from their folders under `folder`; others have none.

    `value` is what was trained on; it and `mse`, its part that is squared error per token, are of activations scaled to a mean norm of
    sqrt(d_in). `loss` is the loss's name, as everywhere.
    """
    rows = []
    for sae in sae_rows(saes):
        path = folder / sae["sae"] / "loss.csv"
        for point in _points(path) if path.is_file() else ():
            about = {name: sae[name] for name in ("sae", "loss", "width")}
            rows.append(
                about
                | {"tokens": int(point["tokens"]), **{name: float(point[name]) for name in ("mse", "l0")}, "value": float(point["loss"])}
            )
    return rows


def _points(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
