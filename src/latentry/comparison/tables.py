"""What the stages left, read into two tables: one row per SAE, one row per latent, explainer and scorer.

Every latent asked for has its row, with a status where it has no score. What is said of a cell is in `cells.py`.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from latentry.comparison.grid import AskedScorer, Grid, is_complete
from latentry.contracts import COMPARISON, EXAMPLES, EXPLANATIONS, SAE, SCORES
from latentry.errors import ContractError
from latentry.metric_kinds import COLUMNS, METRIC_KINDS
from latentry.records import NO_EXPLAINER, Status
from latentry.store import read_manifest, read_table

LATENTS_TABLE = "latents.parquet"
SAES_TABLE = "saes.parquet"

_KEYS = ("explainer", "latent")
_STATUSES = ("status", "explanation_status")


def saes_table(grid: Grid) -> pa.Table:
    """One row per SAE named, in the order of params; one that was never made has its name alone.

    Raises:
        ContractError: an `evaluation.json` is unreadable or lacks a key.
    """
    schema = COMPARISON.tables[SAES_TABLE]
    return pa.Table.from_pylist([_sae_row(grid, sae) for sae in grid.saes], schema=schema)


def contrast_sources(grid: Grid) -> dict[str, str]:
    """The contrast source of each scorer, as its scores say, or as it was asked where there are none.

    Raises:
        ContractError: one scorer's scores were made under several.
    """
    return {scorer: _contrast_source(grid, scorer) for scorer in grid.scorers}


def latents_table(grid: Grid) -> pa.Table:
    """One row per latent asked for, SAE, explainer and scorer, of all cells whose folders are there."""
    schema = COMPARISON.tables[LATENTS_TABLE]
    parts = [
        _cell_rows(grid, sae, scorer, asked) for sae in grid.saes for scorer, asked in grid.scorers.items() if _is_there(grid, sae, scorer)
    ]
    return pa.concat_tables([part.select(schema.names).cast(schema) for part in parts]) if parts else schema.empty_table()


def _sae_row(grid: Grid, sae: str) -> dict[str, Any]:
    if not is_complete(grid.sae(sae)):
        return {"sae": sae}
    read_manifest(grid.sae(sae), SAE)
    path = grid.sae(sae) / "evaluation.json"
    try:
        evaluation = json.loads(path.read_text(encoding="utf-8"))
        return {"sae": sae, **{name: evaluation[name] for name in COMPARISON.tables[SAES_TABLE].names if name != "sae"}}
    except (OSError, ValueError, KeyError) as error:
        raise ContractError(f"{path}: unreadable or without a key that is needed ({error!r}); rerun `dvc repro sae@{sae}`") from error


def _contrast_source(grid: Grid, scorer: str) -> str:
    folders = [grid.scores(sae, scorer) for sae in grid.saes if is_complete(grid.scores(sae, scorer))]
    columns = [read_table(folder, SCORES, "scores.parquet", ["contrast_source"])["contrast_source"] for folder in folders]
    found = sorted({source for column in columns for source in column.unique().to_pylist() if source})
    if len(found) > 1:
        raise ContractError(
            f"{folders[0].parent.parent}: {scorer} was scored under {found}; scores are comparable under one, rerun `dvc repro score`"
        )
    return found[0] if found else grid.scorers[scorer].contrast


def _is_there(grid: Grid, sae: str, scorer: str) -> bool:
    needed = [grid.examples(sae), grid.scores(sae, scorer)]
    needed += [grid.explanations(sae)] if grid.scorers[scorer].reads_explanations else []
    return all(is_complete(folder) for folder in needed)


def _cell_rows(grid: Grid, sae: str, scorer: str, asked: AskedScorer) -> pa.Table:
    columns = ["latent", "rank", "firing_frequency", "stratum", "inclusion_probability", "status"]
    latents = read_table(grid.examples(sae), EXAMPLES, "latents.parquet", columns).rename_columns([*columns[:-1], "latent_status"])
    scores = read_table(grid.scores(sae, scorer), SCORES, "scores.parquet", [*_KEYS, "null", "status", *COLUMNS])
    nulls = scores.filter(pc.field("null") & (pc.field("status") == Status.OK.value)).select([*_KEYS, *METRIC_KINDS])
    nulls = nulls.rename_columns([*_KEYS, *(f"null_{name}" for name in METRIC_KINDS)])
    explanations = _explanations(grid, sae) if asked.reads_explanations else _no_explanations(latents)
    rows = explanations.join(latents, "latent").join(scores.filter(~pc.field("null")), list(_KEYS)).join(nulls, list(_KEYS))
    rows = _asked_rows(rows.filter(pc.field("explainer").isin(list(grid.explainers_of(scorer)))), asked)
    rows = _of_this_cell(rows, latents)
    rows = rows.append_column("sae", pa.repeat(sae, len(rows))).append_column("scorer", pa.repeat(scorer, len(rows)))
    return rows.sort_by([("explainer", "ascending"), ("latent", "ascending")])


def _explanations(grid: Grid, sae: str) -> pa.Table:
    table = read_table(grid.explanations(sae), EXPLANATIONS, "explanations.parquet", ["latent", "explainer", "text", "status"])
    return table.rename_columns(["latent", "explainer", "explanation", "explanation_status"])


def _no_explanations(latents: pa.Table) -> pa.Table:
    """A row per latent for what is scored without a text; the latent's own status stands for the explanation's."""
    texts, n = pa.nulls(len(latents), pa.string()), len(latents)
    explainers = pa.repeat(NO_EXPLAINER, n)
    columns = {"latent": latents["latent"], "explainer": explainers, "explanation": texts, "explanation_status": latents["latent_status"]}
    return pa.table(columns)


def _of_this_cell(rows: pa.Table, latents: pa.Table) -> pa.Table:
    """The same with each latent's probability of being in its cell, which may hold only the head of the SAE's sample."""
    in_sample = Counter(row["stratum"] for row in latents.select(["stratum", "latent_status"]).to_pylist() if _is_ok(row))
    about = rows.select(["explainer", "stratum", "latent_status", "inclusion_probability"]).to_pylist()
    in_cell = Counter((row["explainer"], row["stratum"]) for row in about if _is_ok(row))
    probabilities = [
        row["inclusion_probability"] * in_cell[row["explainer"], row["stratum"]] / in_sample[row["stratum"]]
        if row["inclusion_probability"] is not None and _is_ok(row)
        else row["inclusion_probability"]
        for row in about
    ]
    place = rows.column_names.index("inclusion_probability")
    return rows.set_column(place, "inclusion_probability", pa.array(probabilities, pa.float64()))


def _is_ok(row: Mapping[str, Any]) -> bool:
    return row["latent_status"] == Status.OK.value


def _asked_rows(rows: pa.Table, asked: AskedScorer) -> pa.Table:
    """The latents the scorer was asked for, each with a status: the score's, else why there was nothing to judge."""
    if asked.max_latents is not None:
        # a latent that has a score was asked for, whatever its rank
        rows = rows.filter(pc.field("status").is_valid() | (pc.field("rank") < asked.max_latents))
    statuses = [
        status or _unjudged(explanation) for status, explanation in zip(*(rows[name].to_pylist() for name in _STATUSES), strict=True)
    ]
    return rows.set_column(rows.column_names.index("status"), "status", pa.array(statuses, pa.string()))


def _unjudged(explanation_status: str) -> str:
    """An explanation that was fine, but whose latent had no example to judge, has no class at all."""
    return Status.SINGLE_CLASS.value if explanation_status == Status.OK else explanation_status
