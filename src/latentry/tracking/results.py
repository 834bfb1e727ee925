"""What is to be published, read from the results on disk: one record per SAE and explainer, one per comparison.

Nothing here knows MLflow. A record's files are written only when it is published.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from latentry import contracts
from latentry.metric_kinds import ENDS, JACOBIAN_FIGURES, METRIC_KINDS, kind_of
from latentry.plot_rows import training_rows
from latentry.store import manifest_digest, read_table
from latentry.tracking import identity
from latentry.tracking.artifacts import write_cell_files, write_comparison_files
from latentry.tracking.notes import cell_note, comparison_note, metric_name, shown

LATENT_COLUMNS = ("sae", "explainer", "scorer", "latent", "explanation", "explanation_status", "firing_frequency", "status")
LATENT_COLUMNS += (*METRIC_KINDS, *(f"null_{name}" for name in METRIC_KINDS))
"""What runs show of a latent: everything but the intervals."""

Totals = Callable[[Sequence[str]], Mapping[str, float] | None]
"""Calls and tokens behind some replies, by their keys; None where the reply store does not know all of them."""

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#8C6D1F", "#444444")
"""Okabe and Ito's, told apart by colour-blind readers."""
_DIGITS = 4
"""The page shows every digit it is given; the Parquet files have them all."""
_CURVE_POINTS = 300
"""At most, evenly taken: with its three numbers a curve then fits one request."""
_SMALL_TABLES = ("saes.parquet", "cells.parquet", "jacobians.parquet", "edge_scores.parquet")
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
    costs: Callable[[], Mapping[str, float] | None]
    """Calls, tokens and money, summed when the run is made; None where they are not all known."""
    write_files: Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The comparison's tables, and where the rest stands."""

    here: Path
    lock: Mapping[str, Any]
    saes: Mapping[str, Mapping[str, Any]]
    cells: Sequence[Mapping[str, Any]]
    jacobians: Sequence[Mapping[str, Any]]
    """How sparse each Jacobian is."""
    edge_scores: Sequence[Mapping[str, Any]]
    """How well the edges of each predict, by explainer."""
    latents: Callable[[], pa.Table]
    """Every latent's scores, read when the first run is made: where nothing is new they are not needed."""
    training_rows: Sequence[Mapping[str, Any]]
    """The loss curves, as plots draw them."""

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
    tables = {name: read_table(folder, contracts.COMPARISON, name) for name in _SMALL_TABLES}
    manifest_digest(folder)  # what is published is as it was written
    return Results(
        here=here,
        lock=identity.read_lock(here),
        saes={row["sae"]: row for row in tables["saes.parquet"].to_pylist()},
        cells=tables["cells.parquet"].to_pylist(),
        jacobians=tables["jacobians.parquet"].to_pylist(),
        edge_scores=tables["edge_scores.parquet"].to_pylist(),
        latents=functools.cache(lambda: read_table(folder, contracts.COMPARISON, "latents.parquet", LATENT_COLUMNS)),
        training_rows=training_rows(here / "data" / "saes", tables["saes.parquet"]),
    )


def headlines(cells: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The metric that stands for each scorer, as it is logged, and the cells that have it."""
    found: dict[str, list[str]] = {metric_name(row): [] for row in cells if row["headline"]}
    for row in cells:
        if row["headline"] and row["mean"] is not None:
            found[metric_name(row)].append(f"{row['sae']}/{row['explainer']}")
    return found


def run_records(results: Results, study: Study, totals: Totals) -> list[RunRecord]:
    """Every run that the study's results make: its cells in order, then the comparison.

    A SAE that was never made has no run; the comparison's says so.
    """
    comparison = _comparison_record(results, study)
    missing = _missing(results)
    pairs = dict.fromkeys((row["sae"], row["explainer"]) for row in results.cells if row["sae"] in study.saes and row["sae"] not in missing)
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
    tags = {
        "comparison": comparison,
        "mlflow.runColor": colour,
        "sae": sae,
        "explainer": explainer,
        "baseline": row["baseline"] or "none",
        "missing": ", ".join(dict.fromkeys(cell["scorer"] for cell in cells if not cell["n_asked"])) or "none",
        "mlflow.note.content": cell_note(row, explainer, study.judge, cells),
    }
    return RunRecord(
        name=f"{sae}/{explainer}",
        key=f"{sae}/{explainer}",
        kind="cell",
        identity=digest,
        params=params,
        metrics=_metrics(row, cells),
        curve=_curve(results, sae),
        tags=tags,
        tables=("interpretations.json",),
        inputs=_inputs(results.lock, stages),
        costs=lambda: totals(_reply_keys(results.data, sae, explainer, study.scorers)),
        write_files=lambda folder: write_cell_files(
            folder, results.data / "saes" / sae, _latents_of(results, sae, explainer), cells, row, headline_columns(cells)
        ),
    )


def _latents_of(results: Results, sae: str, explainer: str) -> pa.Table:
    return results.latents().filter((pc.field("sae") == sae) & (pc.field("explainer") == explainer))


def _missing(results: Results) -> list[str]:
    """The SAEs that were named and never made: of these the tables hold the name alone."""
    return [name for name, row in results.saes.items() if row["width"] is None]


def headline_columns(cells: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Each scorer's headline metric as the column of the latents' table."""
    return {row["scorer"]: kind_of(row["metric"]) for row in cells if row["headline"]}


def _params(row: Mapping[str, Any], study: Study) -> dict[str, str]:
    return {
        "d_sae": str(row["width"]),
        "log2_d_sae": f"{math.log2(row['width']):.2f}",
        "loss": row["loss"],
        "l0": shown(row["l0"], 1),
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


def _jacobian_metrics(results: Results) -> dict[str, float]:
    """`jacobian/<J>/<figure>` and `jacobian/<J>/<explainer>/<mean>`, with the ends of their intervals."""
    found: dict[str, float | None] = {}
    for row in results.jacobians:
        names = [f"{name}{end}" for name in JACOBIAN_FIGURES for end in ENDS]
        found |= {f"jacobian/{row['jacobian']}/{name}": row[name] for name in (*names, "fvu_input", "fvu_output", "n_tokens", "n_edges")}
    for row in results.edge_scores:
        names = [f"{name}{end}" for name in ("score", "null", "lift", "own") for end in ENDS] + ["n_score"]
        found |= {f"jacobian/{row['jacobian']}/{row['explainer']}/edges_{name}": row[name] for name in names}
    return {name: float(f"{value:.6g}") for name, value in found.items() if value is not None and math.isfinite(value)}


def _curve(results: Results, sae: str) -> list[tuple[int, dict[str, float]]]:
    numbers = {"loss": "value", "mse": "mse", "l0": "l0"}
    mine = [row for row in results.training_rows if row["sae"] == sae]
    last = max(len(mine) - 1, 0)
    taken = {round(n * last / (_CURVE_POINTS - 1)) for n in range(_CURVE_POINTS)} if len(mine) > _CURVE_POINTS else range(len(mine))
    return [(mine[n]["tokens"], {f"training/{name}": mine[n][column] for name, column in numbers.items()}) for n in sorted(taken)]


def _reply_keys(data: Path, sae: str, explainer: str, scorers: Sequence[str]) -> list[str]:
    """Keys of all replies behind one explainer's explanations of one SAE and behind their judgments, each once."""
    files = [data / "explanations" / sae / "explanations.parquet"]
    files += [data / "scores" / sae / scorer / "judgments.parquet" for scorer in scorers]
    wanted = (pc.field("explainer") == explainer) & pc.field("reply_key").is_valid()
    found = [
        pq.read_table(path, columns=["reply_key"], filters=wanted)["reply_key"].unique().to_pylist() for path in files if path.is_file()
    ]
    return list(dict.fromkeys(key for keys in found for key in keys))


def _inputs(lock: Mapping[str, Any], stages: Sequence[str]) -> dict[str, str]:
    digests = identity.out_digests(lock, ["tokens", *stages])
    return {path: digest for path, digest in digests.items() if path.startswith(("data/tokens", "data/saes", "data/examples"))}


def _comparison_record(results: Results, study: Study) -> RunRecord:
    stages, folders = ["compare"], [results.data / "comparison"]
    any_sae = next((row for row in results.saes.values() if row["subject"] is not None), {"subject": ""})
    params = {"subject": any_sae["subject"], "judge": study.judge, "n_latents": study.n_latents, "seed": str(study.seed)}
    digest = identity.identity_of(results.lock, stages, results.data, folders, params)
    n_saes, missing = len(results.saes), _missing(results)
    return RunRecord(
        name=f"comparison of {n_saes} SAE{'s' if n_saes != 1 else ''}",
        key="comparison",
        kind="comparison",
        identity=digest,
        params=params,
        curve=(),
        metrics={"comparison/n_saes": n_saes, "comparison/n_missing_saes": len(missing), "comparison/n_cells": len(results.cells)}
        | _jacobian_metrics(results),
        tags={
            "comparison": digest,
            "missing": ", ".join(missing) or "none",
            "mlflow.note.content": comparison_note(list(results.saes), missing),
        },
        tables=(),
        inputs={path: md5 for path, md5 in identity.out_digests(results.lock, stages).items() if path == "data/comparison"},
        costs=dict,
        write_files=lambda folder: write_comparison_files(
            folder, results.here, identity.lock_without_track(results.lock), [row["jacobian"] for row in results.jacobians]
        ),
    )
