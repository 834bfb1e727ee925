"""The files of a run: interpretations as a table to read and as Parquet, figures, and what reproduces a comparison."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from latentry.plot_rows import latent_rows

MAX_ROWS = 5_000
"""The page reads the whole table into the browser."""
MAX_EDGE_BYTES = 200_000_000
"""Of the edges of one Jacobian; larger ones stay in `data/jacobians`, which DVC shares."""


def write_cell_files(
    folder: Path, sae: Path, latents: pa.Table, cells: Sequence[Mapping[str, Any]], row: Mapping[str, Any], metrics: Mapping[str, str]
) -> None:
    """Interpretations, the SAE's evaluation and training curve, and the distribution of scores."""
    from latentry import plots  # altair takes a second to import, and a track with nothing new draws nothing

    table = interpretations(latents, metrics)
    rows = table.slice(0, MAX_ROWS)
    content = {"columns": table.column_names, "data": [list(row.values()) for row in rows.to_pylist()]}
    _write(folder / "interpretations.json", json.dumps(content, ensure_ascii=False))
    pq.write_table(table, folder / "interpretations.parquet", compression="zstd")
    for name in ("evaluation.json", "loss.csv", "cfg.json"):
        if (sae / name).is_file():
            _copy(sae / name, folder / "sae" / name)
    drawn = latent_rows(latents, *(pa.Table.from_pylist(list(rows)) for rows in (cells, [row])))
    _write(folder / "figures" / "score_distribution.png", plots.to_png(plots.score_distribution(drawn)))


def write_comparison_files(folder: Path, here: Path, lock: str, jacobians: Sequence[str] = ()) -> None:
    """The report, the tables, the edges of Jacobians, the figures, and the three files that with the commit reproduce the comparison."""
    from latentry import plots

    comparison = here / "data" / "comparison"
    for path in sorted(comparison.glob("*.parquet")):
        _copy(path, folder / "tables" / path.name)
    for name in jacobians:
        edges = here / "data" / "jacobians" / name / "edges.parquet"
        if edges.is_file() and edges.stat().st_size <= MAX_EDGE_BYTES:
            _copy(edges, folder / "jacobians" / name / edges.name)
    for name in ("report/index.html", "params.yaml", "dvc.yaml"):
        if (here / name).is_file():
            _copy(here / name, folder / name)
    _write(folder / "dvc.lock", lock)
    for figure in plots.figures_of({path.name: pq.read_table(path) for path in comparison.glob("*.parquet")}):
        _write(folder / "figures" / f"{figure.name}.png", plots.to_png(figure.chart))


def interpretations(latents: pa.Table, metrics: Mapping[str, str]) -> pa.Table:
    """One row per latent of one SAE and explainer: explanation, each scorer's headline score and null, frequency, status.

    Latent and explanation come first: MLflow's artifact comparison groups by the first column and shows the second.
    Rows stand by falling score of the first scorer.
    """
    table = pa.table({name: latents[name] for name in ("latent", "explanation", "explanation_status", "firing_frequency")})
    table = table.group_by("latent", use_threads=False).aggregate(
        [(name, "first") for name in ("explanation", "explanation_status", "firing_frequency")]
    )
    table = table.rename_columns(["latent", "explanation", "explanation_status", "firing_frequency"])
    for scorer, metric in metrics.items():
        table = table.join(_scores_of(latents, scorer, metric), "latent", join_type="left outer", use_threads=False)
    shown = [column for scorer in metrics for column in (scorer, f"{scorer} null")]
    status = _status(table, list(metrics))
    table = table.append_column("status", status).select(["latent", "explanation", *shown, "firing_frequency", "status"])
    order = [(shown[0], "descending"), ("latent", "ascending")] if shown else [("latent", "ascending")]
    return table.sort_by(order)


def _scores_of(latents: pa.Table, scorer: str, metric: str) -> pa.Table:
    mine = latents.filter(pc.field("scorer") == scorer)
    scores = {scorer: _rounded(mine[metric]), f"{scorer} null": _rounded(mine[f"null_{metric}"])}
    return pa.table({"latent": mine["latent"], **scores, f"{scorer} status": mine["status"]})


def _rounded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """To four digits: what a reader can use, and a third of the table's bytes."""
    return pc.call_function("round", [values], options=pc.RoundOptions(4))


def _status(table: pa.Table, scorers: list[str]) -> pa.Array:
    """`ok`, or the explanation's failure, or which scorer failed and how."""
    names = ["explanation_status", *(f"{scorer} status" for scorer in scorers)]
    rows: list[dict[str, Any]] = table.select(names).to_pylist()
    found = []
    for row in rows:
        failed = [f"{scorer}: {row[f'{scorer} status']}" for scorer in scorers if row[f"{scorer} status"] not in (None, "ok")]
        found.append(row["explanation_status"] if row["explanation_status"] != "ok" else ", ".join(failed) or "ok")
    return pa.array(found, pa.string())


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
