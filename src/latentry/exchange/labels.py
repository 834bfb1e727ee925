"""The labels of one SAE as tables to give away: explanations with what their latents are, scores beside chance, null and interval.

Every latent asked for has its row, with its status; a metric has its whole name, so that scores of different contrasts are never
taken for one another.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from latentry.contracts import COMPARISON, EXAMPLES, EXPLANATIONS, SCORES
from latentry.metric_kinds import chance_of, kind_of
from latentry.records import Status
from latentry.saes.base import latent_label
from latentry.store import read_table

_KEYS = ["latent", "explainer"]
_STRINGS = pa.list_(pa.string())


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


EXPLANATION_COLUMNS = _schema(
    sae=pa.string(),
    latent=pa.uint32(),
    label=pa.string(),
    explainer=pa.string(),
    text=pa.string(),
    status=pa.string(),
    detail=pa.string(),
    prompt_digest=pa.string(),
    reply_key=pa.string(),
    firing_frequency=pa.float64(),
    peak=pa.float32(),
    inclusion_probability=pa.float64(),
    promoted_tokens=_STRINGS,
    suppressed_tokens=_STRINGS,
)
SCORE_COLUMNS = _schema(
    sae=pa.string(),
    latent=pa.uint32(),
    label=pa.string(),
    explainer=pa.string(),
    scorer=pa.string(),
    metric=pa.string(),
    headline=pa.bool_(),
    score=pa.float64(),
    low=pa.float64(),
    high=pa.float64(),
    null=pa.float64(),
    chance=pa.float64(),
    status=pa.string(),
    detail=pa.string(),
    contrast_source=pa.string(),
    n_activating=pa.uint32(),
    n_contrast=pa.uint32(),
    n_failed=pa.uint32(),
    stopped_early=pa.bool_(),
)


def explanations(data: Path, sae: str) -> pa.Table:
    """One row per latent asked for and explainer that was given it, in the sample's order."""
    latents = latents_asked(data, sae).select(["latent", "rank", "firing_frequency", "peak", "inclusion_probability"])
    columns = ["latent", "explainer", "text", "status", "detail", "prompt_digest", "reply_key"]
    said = read_table(data / "explanations" / sae, EXPLANATIONS, "explanations.parquet", columns)
    promoted = read_table(data / "examples" / sae, EXAMPLES, "promoted.parquet")
    promoted = promoted.append_column("at", pa.array(range(len(promoted)), pa.int64()))
    rows = (
        said.join(latents, "latent")
        .join(promoted.select(["latent", "at"]), "latent")
        .sort_by([("explainer", "ascending"), ("rank", "ascending")])
    )
    for name in ("promoted_tokens", "suppressed_tokens"):  # a join cannot carry lists
        rows = rows.append_column(name, promoted[name].combine_chunks().take(rows["at"].combine_chunks()))
    return _named(data, sae, rows, EXPLANATION_COLUMNS)


def scores(data: Path, sae: str, scorer: str) -> pa.Table:
    """One row per latent, explainer and metric that one scorer gave; a latent without a score has one row, with its status.

    Explainers come in order of name, `headline` marks the metric that stands for the scorer.
    """
    table = read_table(data / "scores" / sae / scorer, SCORES, "scores.parquet")
    given, nulls = table.filter(~pc.field("null")), table.filter(pc.field("null") & (pc.field("status") == Status.OK.value))
    parts = [_metric_rows(given, nulls, metric, headline=headline) for metric, headline in metrics(data, sae, scorer).items()]
    rows = pa.concat_tables(parts).sort_by([("explainer", "ascending"), ("latent", "ascending"), ("order", "ascending")])
    rows = rows.append_column("scorer", pa.repeat(pa.scalar(scorer), len(rows)))
    return _named(data, sae, rows, SCORE_COLUMNS)


def metrics(data: Path, sae: str, scorer: str) -> dict[str, bool]:
    """The whole names of the metrics that a scorer gave, as the comparison has them, and whether each stands for it."""
    cells = read_table(data / "comparison", COMPARISON, "cells.parquet", ["sae", "scorer", "metric", "headline"])
    mine = cells.filter((pc.field("sae") == sae) & (pc.field("scorer") == scorer))
    return dict(zip(mine["metric"].to_pylist(), mine["headline"].to_pylist(), strict=True))


def latents_asked(data: Path, sae: str) -> pa.Table:
    """Every latent asked for, by rank in the sample, with its status."""
    return read_table(data / "examples" / sae, EXAMPLES, "latents.parquet").sort_by("rank")


def with_constants(table: pa.Table, constants: Mapping[str, str | None]) -> pa.Table:
    """The table with columns that have one value throughout."""
    for name, value in constants.items():
        table = table.append_column(name, pa.repeat(pa.scalar(value, pa.string()), len(table)))
    return table


def _metric_rows(given: pa.Table, nulls: pa.Table, metric: str, *, headline: bool) -> pa.Table:
    kind = kind_of(metric)
    told = ["status", "detail", "contrast_source", "n_activating", "n_contrast", "n_failed", "stopped_early"]
    rows = given.select([*_KEYS, kind, f"{kind}_low", f"{kind}_high", *told]).rename_columns([*_KEYS, "score", "low", "high", *told])
    rows = rows.join(nulls.select([*_KEYS, kind]).rename_columns([*_KEYS, "null"]), _KEYS)
    rows = rows if headline else rows.filter(pc.field("score").is_valid())
    constants = {
        "metric": metric,
        "headline": headline,
        "chance": pa.scalar(chance_of(metric), pa.float64()),
        "order": 0 if headline else 1,
    }
    for name, value in constants.items():
        rows = rows.append_column(name, pa.repeat(value, len(rows)))
    return rows


def _named(data: Path, sae: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the SAE's name and what people call each latent."""
    labels = pa.array(latent_labels(data, sae, rows["latent"].to_pylist()), pa.string())
    rows = rows.append_column("sae", pa.repeat(pa.scalar(sae), len(rows))).append_column("label", labels)
    return rows.select(schema.names).cast(schema)


def latent_labels(data: Path, sae: str, latents: Sequence[int]) -> list[str]:
    """What people call latents: their numbers, and of a signed SAE the number in its file with the direction."""
    measured: Mapping[str, Any] = json.loads((data / "saes" / sae / "evaluation.json").read_text(encoding="utf-8"))
    signed = bool(measured.get("signed"))
    return [latent_label(latent, measured["width"], signed=signed) for latent in latents]
