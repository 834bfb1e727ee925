"""What the report says of Jacobians: how sparse each is, how they differ, and some latents of MLPs' outputs beside their explained inputs.

Prepared from the comparison's tables alone; the template escapes every text.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from latentry.explorer.labels import labels_of
from latentry.metric_kinds import JACOBIAN_FIGURES


def jacobian_context(data: Path, tables: Mapping[str, pa.Table], per_jacobian: int) -> dict[str, Any]:
    """What the template shows, by name; all of it empty where the study has no Jacobian."""
    rows = {row["jacobian"]: row for row in tables["jacobians.parquet"].to_pylist()}
    scores = tables["edge_scores.parquet"].to_pylist()
    return {
        "figure_titles": JACOBIAN_FIGURES,
        "jacobians": [row | {"figures": _figures(row)} for row in rows.values()],
        "jacobian_pairs": _pairs(tables["jacobian_pairs.parquet"]),
        "edge_scores": [row | {"statuses": _counted(row["statuses"])} for row in scores],
        "explained": list(_explained(data, rows, tables["explained_edges.parquet"], per_jacobian)),
    }


def _figures(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{end.strip("_") or "value": row[f"{name}{end}"] for end in ("", "_low", "_high")} for name in JACOBIAN_FIGURES]


def _pairs(table: pa.Table) -> list[dict[str, Any]]:
    """One row for two Jacobians, with the difference of every figure in the titles' order."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in table.to_pylist():
        a, b = row["jacobian_a"], row["jacobian_b"]
        pair = found.setdefault((a, b), {"a": a, "b": b, "unlike": row["unlike"], "differences": {}})
        pair["differences"][row["figure"]] = row
    return [pair | {"differences": [pair["differences"][name] for name in JACOBIAN_FIGURES]} for pair in found.values()]


def _counted(statuses: str) -> str:
    """Latents that could not be scored, by why."""
    return ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in json.loads(statuses).items() if status != "ok")


def _explained(data: Path, jacobians: Mapping[str, Mapping[str, Any]], table: pa.Table, most: int) -> Iterator[dict[str, Any]]:
    """The first latents of each Jacobian and explainer that have an explanation, each with its inputs by strength."""
    for (name, explainer), rows in _groups(table).items():
        labels = {side: labels_of(data, jacobians[name][side]) for side in ("input", "output")}
        by_latent: dict[int, list[dict[str, Any]]] = {}
        for row in rows.to_pylist():
            by_latent.setdefault(row["latent"], []).append(row | {"label": labels["input"](row["input"])})
        told = {latent: some for latent, some in by_latent.items() if some[0]["text"] is not None}
        yield {
            "jacobian": name,
            "explainer": explainer,
            "n_latents": len(by_latent),
            "n_told": len(told),
            "latents": [{**some[0], "label": labels["output"](latent), "inputs": some} for latent, some in list(told.items())[:most]],
        }


def _groups(table: pa.Table) -> dict[tuple[str, str], pa.Table]:
    keys = table.group_by(["jacobian", "explainer"], use_threads=False).aggregate([]).to_pylist()
    return {
        (key["jacobian"], key["explainer"]): table.filter(
            (pc.field("jacobian") == key["jacobian"]) & (pc.field("explainer") == key["explainer"])
        )
        for key in keys
    }
