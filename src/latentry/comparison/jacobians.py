"""The Jacobians of the study beside each other: how sparse each is, their differences with intervals, and what their edges explain.

A difference is over contexts, drawn together where both were read on the same ones. What makes two unlike in more than what is
asked (width, tokens, MLP) is named beside it; whether the one or the other is of the redrawn subject is what may be asked.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from latentry.comparison.grid import Grid, is_complete
from latentry.contracts import COMPARISON, EDGES, JACOBIAN
from latentry.edges.figures import Sums, differences, sums_by_context
from latentry.metric_kinds import JACOBIAN_FIGURES
from latentry.randomness import rng_for
from latentry.rows import table_of
from latentry.store import read_table

JACOBIANS_TABLE, JACOBIAN_PAIRS_TABLE = "jacobians.parquet", "jacobian_pairs.parquet"
EDGE_SCORES_TABLE, EXPLAINED_EDGES_TABLE = "edge_scores.parquet", "explained_edges.parquet"
_MEANS = ("score", "null", "lift", "own", "own_lead")


def jacobian_tables(grid: Grid) -> dict[str, pa.Table]:
    """The tables of the Jacobians that are there, by file name; those that failed or are to come are not among them.

    Raises:
        ContractError: a folder that is there is damaged, or of another version.
    """
    read = {name: _metrics(grid, name) for name in grid.jacobians if is_complete(grid.jacobian(name))}
    explained = [name for name in grid.jacobians if is_complete(grid.edges(name))]
    rows = {
        JACOBIANS_TABLE: [_row(name, one) for name, one in read.items()],
        JACOBIAN_PAIRS_TABLE: list(_pairs(grid, read)),
        EDGE_SCORES_TABLE: [row for name in explained for row in _score_rows(grid, name)],
    }
    tables = {name: table_of(some, COMPARISON.tables[name]) for name, some in rows.items()}
    return tables | {EXPLAINED_EDGES_TABLE: _explained(grid, explained)}


def _metrics(grid: Grid, name: str) -> dict[str, Any]:
    read_table(grid.jacobian(name), JACOBIAN, "contexts.parquet", ["context"])
    return json.loads((grid.jacobian(name) / "metrics.json").read_text(encoding="utf-8"))


def _row(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    sides = {f"{key}_{side}": found[side][key] for side in ("input", "output") for key in ("width", "l0", "fvu")}
    values = {f"{figure}{end}": one[key] for figure, one in found["figures"].items() for end, key in _ENDS.items()}
    plain = {key: found[key] for key in ("module", "pair", "redrawn", "n_tokens", "n_edges")}
    return {"jacobian": name, "input": found["input"]["sae"], "output": found["output"]["sae"], **plain, **sides, **values}


_ENDS = {"": "value", "_low": "low", "_high": "high"}


def _pairs(grid: Grid, read: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    rows = {name: read_table(grid.jacobian(name), JACOBIAN, "contexts.parquet").to_pylist() for name in read}
    contexts = {name: [(row["context"], row["n_tokens"]) for row in some] for name, some in rows.items()}
    sums: dict[str, Sums] = {name: sums_by_context(some) for name, some in rows.items()}
    for a, b in itertools.combinations(read, 2):
        paired = contexts[a] == contexts[b]
        apart = differences(sums[a], sums[b], rng_for(grid.seed, f"jacobian pair {a} {b}"), paired=paired)
        unlike = _unlike(read[a], read[b], paired=paired)
        for figure in JACOBIAN_FIGURES:
            one = apart[figure]
            named = {"figure": figure, "jacobian_a": a, "jacobian_b": b}
            yield {**named, "difference": one.value, "low": one.low, "high": one.high, "unlike": unlike}


def _unlike(a: Mapping[str, Any], b: Mapping[str, Any], *, paired: bool) -> list[str]:
    """What differs besides how the SAEs were trained and on which subject."""
    found = [] if paired else [f"tokens: {a['n_tokens']:,}, {b['n_tokens']:,}"]
    found += [f"module: {a['module']}, {b['module']}"] if a["module"] != b["module"] else []
    for side in ("input", "output"):
        widths = [one[side]["width"] for one in (a, b)]
        l0s = [one[side]["l0"] for one in (a, b)]
        found += [f"width of the {side}: {widths[0]:,}, {widths[1]:,}"] if widths[0] != widths[1] else []
        found += [f"L0 of the {side}: {l0s[0]:.1f}, {l0s[1]:.1f}"] if not np.isclose(*l0s, rtol=_LIKE_L0) else []
    return found


_LIKE_L0 = 0.1
"""L0s that differ by less, relatively, are alike."""


def _score_rows(grid: Grid, name: str) -> Iterator[dict[str, Any]]:
    read_table(grid.edges(name), EDGES, "scores.parquet", ["latent"])
    found = json.loads((grid.edges(name) / "metrics.json").read_text(encoding="utf-8"))
    for explainer, one in found.items():
        means = {f"{key}{end}": one[key][stat] for key in _MEANS for end, stat in (("", "mean"), ("_low", "low"), ("_high", "high"))}
        counts = {f"n_{key}": one[key]["n"] for key in _MEANS}
        yield {
            "jacobian": name,
            "explainer": explainer,
            "n_asked": one["n_asked"],
            "statuses": json.dumps(one["statuses"]),
            **means,
            **counts,
        }


def _explained(grid: Grid, names: Sequence[str]) -> pa.Table:
    schema = COMPARISON.tables[EXPLAINED_EDGES_TABLE]
    tables = [read_table(grid.edges(name), EDGES, "explained.parquet") for name in names]
    named = [table.add_column(0, "jacobian", pa.array([name] * len(table), pa.string())) for name, table in zip(names, tables, strict=True)]
    return pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in named)])
