"""The comparison's tables and the training curves as the flat rows that are drawn, for all who draw: the summary, the report, the tracker.

Rows without the number that is drawn are left out, never zero.
"""

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa

from latentry.metric_kinds import METRIC_KINDS, chance_of, kind_of


def headline_rows(cells: pa.Table) -> list[dict[str, Any]]:
    """The cells' rows with the metric that stands for their scorer."""
    return [row for row in cells.to_pylist() if row["headline"]]


def score_rows(cells: pa.Table, saes: pa.Table) -> list[dict[str, Any]]:
    """One row per SAE, explainer and scorer with its headline score."""
    of = {row["sae"]: row for row in sae_rows(saes)}
    rows = [row for row in headline_rows(cells) if row["mean"] is not None and row["sae"] in of]
    about = ("loss", "width", "l0", "fvu")
    return [{**{name: of[row["sae"]][name] for name in about}, **row, "score": row["mean"], **_scale_of(row["metric"])} for row in rows]


def sae_rows(saes: pa.Table) -> list[dict[str, Any]]:
    """One row per SAE that was measured."""
    return [row for row in saes.to_pylist() if row["fvu"] is not None and row["l0"] is not None]


def latent_rows(latents: pa.Table, cells: pa.Table, saes: pa.Table) -> list[dict[str, Any]]:
    """One row per latent, explainer and scorer that has the headline score, of SAEs that are there."""
    of = {row["sae"]: row for row in saes.to_pylist() if row["loss"] is not None}
    headline = {(row["sae"], row["explainer"], row["scorer"]): row["metric"] for row in headline_rows(cells)}
    kept = ("sae", "explainer", "scorer", "latent", "firing_frequency")
    rows = []
    for row in latents.select([*kept, *METRIC_KINDS]).to_pylist():
        metric = headline.get((row["sae"], row["explainer"], row["scorer"]))
        score = row[kind_of(metric)] if metric else None
        if metric and score is not None and row["sae"] in of:
            about = {name: of[row["sae"]][name] for name in ("loss", "width")}
            rows.append({**about, **{name: row[name] for name in kept}, "metric": metric, "score": score, **_scale_of(metric)})
    return rows


def decile_rows(deciles: pa.Table, saes: pa.Table) -> list[dict[str, Any]]:
    """One row per SAE, explainer, scorer and decile of which windows were judged."""
    of = {row["sae"]: row for row in sae_rows(saes)}
    rows = [row for row in deciles.to_pylist() if row["found"] is not None and row["sae"] in of]
    return [{**{name: of[row["sae"]][name] for name in ("loss", "width")}, **row} for row in rows]


def correlation_rows(correlations: pa.Table) -> list[dict[str, Any]]:
    """One row per explainer and two scorers, over all SAEs together."""
    return [row for row in correlations.to_pylist() if row["sae"] is None and row["spearman"] is not None]


def with_breadth(scores: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `score_rows`, each with the `breadth` of its interval; None below two latents."""
    return [{**row, "breadth": None if row["low"] is None else row["high"] - row["low"]} for row in scores]


def cost_rows(scores: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of them that have an interval and a number of calls."""
    return [row for row in with_breadth(scores) if None not in (row["breadth"], row["n_calls"])]


def evenly(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """The rows, or where there are more than `most` so many of them, evenly taken."""
    return rows if len(rows) <= most else [rows[place * len(rows) // most] for place in range(most)]


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


def _scale_of(metric: str) -> dict[str, Any]:
    """Chance and unit of a score; None and `score` where it has none."""
    return {"chance": chance_of(metric), "unit": METRIC_KINDS[kind_of(metric)].unit or "score"}


def _points(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
