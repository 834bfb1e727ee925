"""What the stages left, read into two tables: one row per SAE, one row per latent, explainer and scorer.

Every latent asked for has its row, with a status where it has no score. What is said of a cell is in `cells.py`.
"""

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from latentry.comparison.grid import AskedScorer, Grid, is_complete
from latentry.contracts import COMPARISON, EXAMPLES, EXPLANATIONS, SAE, SCORES
from latentry.errors import ContractError
from latentry.metric_kinds import COLUMNS, METRIC_KINDS
from latentry.records import Status
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
    return all(is_complete(folder) for folder in (grid.examples(sae), grid.explanations(sae), grid.scores(sae, scorer)))


def _cell_rows(grid: Grid, sae: str, scorer: str, asked: AskedScorer) -> pa.Table:
    latents = read_table(grid.examples(sae), EXAMPLES, "latents.parquet", ["latent", "rank", "firing_frequency"])
    explanations = read_table(grid.explanations(sae), EXPLANATIONS, "explanations.parquet", ["latent", "explainer", "text", "status"])
    explanations = explanations.rename_columns(["latent", "explainer", "explanation", "explanation_status"])
    scores = read_table(grid.scores(sae, scorer), SCORES, "scores.parquet", [*_KEYS, "null", "status", *COLUMNS])
    nulls = scores.filter(pc.field("null") & (pc.field("status") == Status.OK.value)).select([*_KEYS, *METRIC_KINDS])
    nulls = nulls.rename_columns([*_KEYS, *(f"null_{name}" for name in METRIC_KINDS)])
    rows = explanations.join(latents, "latent").join(scores.filter(~pc.field("null")), list(_KEYS)).join(nulls, list(_KEYS))
    rows = _asked_rows(rows.filter(pc.field("explainer").isin(list(grid.explainers))), asked)
    rows = rows.append_column("sae", pa.repeat(sae, len(rows))).append_column("scorer", pa.repeat(scorer, len(rows)))
    return rows.sort_by([("explainer", "ascending"), ("latent", "ascending")])


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
