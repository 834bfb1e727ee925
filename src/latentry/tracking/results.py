"""What is to be published, read from the results on disk: one record per SAE and explainer, one per comparison.

Nothing here knows MLflow. A record's files are written only when it is published.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from latentry import contracts
from latentry.metric_kinds import chance_of, kind_of
from latentry.plot_rows import latent_rows, training_rows
from latentry.records import NO_EXPLAINER
from latentry.store import read_table
from latentry.tracking import identity
from latentry.tracking.artifacts import write_cell_files, write_comparison_files

Totals = Callable[[Sequence[str]], Mapping[str, float] | None]
"""Calls and tokens behind some replies, by their keys; None where the reply store does not know all of them."""

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8C6D1F", "#444444")
"""Okabe and Ito's, told apart by colour-blind readers."""
_DIGITS = 4
"""The page shows every digit it is given; the Parquet files have them all."""
_STATS = ("low", "high", "null", "lift", "lift_low", "lift_high", "n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What every run of one study has in common, and which cells its parameters name."""

    saes: tuple[str, ...]
    scorers: tuple[str, ...]
    judge: str
    """Models that were asked, by name."""
    seed: int
    n_latents: str
    """Latents asked for per SAE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run to be: complete when made, but for its files."""

    name: str
    key: str
    """The cell: the same in every version of its results."""
    kind: str
    """`cell` or `comparison`."""
    identity: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    curve: Sequence[tuple[int, Mapping[str, float]]]
    """Metrics that have one value after another: of the SAE's training, by tokens trained on."""
    tags: Mapping[str, str]
    tables: tuple[str, ...]
    """Files that the page shows as tables."""
    inputs: Mapping[str, str]
    """Digests of what the results were made from, by name."""
    write_files: Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The comparison's tables, and where the rest stands."""

    here: Path
    lock: Mapping[str, Any]
    saes: Mapping[str, Mapping[str, Any]]
    cells: Sequence[Mapping[str, Any]]
    latents: pa.Table
    latent_rows: Sequence[Mapping[str, Any]]
    """The latents that have a score, as plots draw them."""
    training_rows: Sequence[Mapping[str, Any]]
    """The loss curves, likewise."""

    @property
    def data(self) -> Path:
        """The folder of all contracts."""
        return self.here / "data"


def read_results(here: Path) -> Results:
    """The results of the comparison in `here`.

    Raises:
        ContractError: there is no complete comparison.
    """
    folder = here / "data" / "comparison"
    tables = {name: read_table(folder, contracts.COMPARISON, name) for name in ("saes.parquet", "cells.parquet", "latents.parquet")}
    return Results(
        here=here,
        lock=identity.read_lock(here),
        saes={row["sae"]: row for row in tables["saes.parquet"].to_pylist()},
        cells=tables["cells.parquet"].to_pylist(),
        latents=tables["latents.parquet"],
        latent_rows=latent_rows(tables["latents.parquet"], tables["cells.parquet"], tables["saes.parquet"]),
        training_rows=training_rows(here / "data" / "saes", tables["saes.parquet"]),
    )


def headlines(cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The metric that stands for each scorer, as it is logged."""
    return {row["scorer"]: metric_name(row) for row in cells if row["headline"]}


def metric_name(row: Mapping[str, Any]) -> str:
    """`detection/auroc_random`: the contrasts are part of the name, for scores under different ones are not comparable."""
    return f"{row['scorer']}/{row['metric']}"


def run_records(results: Results, study: Study, totals: Totals) -> list[RunRecord]:
    """Every run that the study's results make: its cells in order, then the comparison."""
    comparison = _comparison_record(results, study)
    pairs = dict.fromkeys((row["sae"], row["explainer"]) for row in results.cells if row["sae"] in study.saes)
    colours = _colours(results, pairs)
    cells = [_cell_record(results, study, cell, comparison.identity, colours[cell], totals) for cell in pairs]
    return [*cells, comparison]


def _colours(results: Results, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """One colour for each loss and explainer, so that a chart over sizes shows their curves."""
    kinds = {pair: (results.saes[pair[0]]["loss"], pair[1]) for pair in pairs}
    order = sorted(set(kinds.values()))
    return {pair: _COLOURS[order.index(kind) % len(_COLOURS)] for pair, kind in kinds.items()}


def _cell_record(results: Results, study: Study, pair: tuple[str, str], comparison: str, colour: str, totals: Totals) -> RunRecord:
    sae, explainer = pair
    row = results.saes[sae]
    cells = [cell for cell in results.cells if (cell["sae"], cell["explainer"]) == (sae, explainer)]
    stages = identity.cell_stages(sae, study.scorers)
    folders = identity.cell_folders(results.data, sae, study.scorers)
    params = _params(row, study) | {"explainer": explainer}
    digest = identity.identity_of(results.lock, stages, results.data, folders, [explainer, params, row, cells])
    mine = results.latents.filter((pc.field("sae") == sae) & (pc.field("explainer") == explainer))
    drawn = [row for row in results.latent_rows if (row["sae"], row["explainer"]) == (sae, explainer)]
    spent = totals(_reply_keys(results.data, sae, explainer, study.scorers))
    cost = {f"cost/{name}": float(value) for name, value in (spent or {}).items()}
    tags = {
        "comparison": comparison,
        "mlflow.runColor": colour,
        "sae": sae,
        "explainer": explainer,
        "baseline": row["baseline"] or "none",
        "cost": "known" if spent is not None else "unknown",
        "mlflow.note.content": _cell_note(row, explainer, study, cells),
    }
    return RunRecord(
        name=f"{sae}/{explainer}",
        key=f"{sae}/{explainer}",
        kind="cell",
        identity=digest,
        params=params,
        metrics=_metrics(row, cells) | cost,
        curve=_curve(results, sae),
        tags=tags,
        tables=("interpretations.json",),
        inputs=_inputs(results.lock, stages),
        write_files=lambda folder: write_cell_files(folder, results.data / "saes" / sae, mine, drawn, headline_columns(cells)),
    )


def headline_columns(cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Each scorer's headline metric as the column of the latents' table."""
    return {row["scorer"]: kind_of(row["metric"]) for row in cells if row["headline"]}


def _params(row: Mapping[str, Any], study: Study) -> dict[str, str]:
    return {
        "d_sae": str(row["width"]),
        "log2_d_sae": f"{math.log2(row['width']):.2f}",
        "loss": row["loss"],
        "l0": _shown(row["l0"], 1),
        "hookpoint": row["hookpoint"],
        "subject": row["subject"],
        "judge": study.judge,
        "n_latents": study.n_latents,
        "seed": str(study.seed),
    }


def _metrics(row: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found = {}
    for cell in sorted(cells, key=lambda cell: not cell["headline"]):
        name = metric_name(cell)
        found |= {name: cell["mean"]} | {f"{name}_{stat}": cell[stat] for stat in _STATS}
    found |= {f"sae/{name}": row[name] for name in ("fvu", "l0", "ce_recovered", "dead_fraction")}
    return {name: round(float(value), _DIGITS) for name, value in found.items() if value is not None and math.isfinite(value)}


def _curve(results: Results, sae: str) -> list[tuple[int, dict[str, float]]]:
    shown = {"loss": "value", "mse": "mse", "l0": "l0"}
    mine = [row for row in results.training_rows if row["sae"] == sae]
    return [(row["tokens"], {f"training/{name}": row[column] for name, column in shown.items()}) for row in mine]


def _reply_keys(data: Path, sae: str, explainer: str, scorers: Sequence[str]) -> list[str]:
    """Keys of all replies behind one explainer's explanations of one SAE and behind their judgments, each once."""
    files = [data / "explanations" / sae / "explanations.parquet"]
    files += [data / "scores" / sae / scorer / "judgments.parquet" for scorer in scorers]
    wanted = (pc.field("explainer") == explainer) & pc.field("reply_key").is_valid()
    found = [pq.read_table(path, columns=["reply_key"], filters=wanted)["reply_key"].to_pylist() for path in files if path.is_file()]
    return list(dict.fromkeys(key for keys in found for key in keys))


def _inputs(lock: Mapping[str, Any], stages: Sequence[str]) -> dict[str, str]:
    digests = identity.out_digests(lock, ["tokens", *stages])
    return {path: digest for path, digest in digests.items() if path.startswith(("data/tokens", "data/saes", "data/examples"))}


def _cell_note(row: Mapping[str, Any], explainer: str, study: Study, cells: Sequence[Mapping[str, Any]]) -> str:
    explained = "Scored without explanations" if explainer == NO_EXPLAINER else f"Explained by **{explainer}**"
    lines = [
        f"**{row['sae']}**: {row['width']:,} latents, loss {row['loss']}, L0 {_shown(row['l0'], 1)}, FVU {_shown(row['fvu'])},"
        f" at `{row['hookpoint']}` of {row['subject']}. {explained}; models asked: {study.judge}.",
        "",
        "| scorer | metric | score | 95 % interval | chance | shuffled null | lift | n of asked |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        if cell["headline"]:
            interval = f"{_shown(cell['low'])} to {_shown(cell['high'])}"
            counts = f"{cell['n']} of {cell['n_asked']}"
            metric = metric_name(cell).partition("/")[2]
            chance = chance_of(cell["metric"])
            known = "" if chance is None else f"{chance:.3g}"
            shown = (_shown(cell["mean"]), interval, known, _shown(cell["null"]), _shown(cell["lift"]), counts)
            lines.append(f"| {cell['scorer']} | {metric} | {' | '.join(shown)} |")
    lines += ["", "Intervals cover the latents drawn and the judge's noise, not the corpus or the seed.", ""]
    return "\n".join([*lines, "The null scores the same examples under another latent's explanation: lift says that the text is specific."])


def _shown(value: float | None, digits: int = 3) -> str:
    return "unknown" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def _comparison_record(results: Results, study: Study) -> RunRecord:
    stages, folders = ["compare"], [results.data / "comparison"]
    any_sae = next(iter(results.saes.values()), {})
    params = {"subject": str(any_sae.get("subject", "")), "judge": study.judge, "n_latents": study.n_latents, "seed": str(study.seed)}
    digest = identity.identity_of(results.lock, stages, results.data, folders, params)
    names = ", ".join(results.saes)
    note = f"Comparison of {len(results.saes)} SAEs: {names}.\n\nThe report is `report/index.html`; the tables are under `tables/`."
    return RunRecord(
        name=f"comparison of {len(results.saes)} SAEs",
        key="comparison",
        kind="comparison",
        identity=digest,
        params=params,
        curve=(),
        metrics={"comparison/n_saes": float(len(results.saes)), "comparison/n_cells": float(len(results.cells))},
        tags={"comparison": digest, "mlflow.note.content": note},
        tables=(),
        inputs={path: md5 for path, md5 in identity.out_digests(results.lock, stages).items() if path == "data/comparison"},
        write_files=lambda folder: write_comparison_files(folder, results.here, identity.lock_without_track(results.lock)),
    )
