"""Jacobians beside each other: what their folders say, the difference over common contexts, and what two are unlike in."""

import json
from pathlib import Path

import numpy as np
import pytest

from latentry.comparison.grid import Grid, remove_unnamed_cells
from latentry.comparison.jacobians import jacobian_tables
from latentry.comparison.summary import jacobian_summary
from latentry.contracts import EDGES, JACOBIAN
from latentry.edges.figures import as_json, context_row, figures, sums_by_context
from latentry.edges.pairs import ActivePairs
from planted_folders import finish


def jacobian(data: Path, name: str, *, scale: float, n_contexts: int = 20, width: int = 64, redrawn: bool = False) -> None:
    rng = np.random.default_rng(7)
    rows = []
    for context in range(n_contexts):
        zeros, value = np.zeros(50, np.int64), (rng.laplace(size=50) * scale).astype(np.float32)
        rows.append(context_row(context, 10, ActivePairs(token=np.repeat(np.arange(10), 5), out=zeros, input=zeros, value=value)))
    side = {"sae": "read", "loss": "topk", "width": width, "l0": 4.0, "fvu": 0.2, "dead_fraction": 0.0}
    found = as_json(figures(sums_by_context(rows), rng))
    told = {"input": side, "output": side | {"sae": "written"}, "module": "layers.1.mlp", "redrawn": redrawn, "pair": None, "mlp_fvu": 1e-6}
    told |= {"n_tokens": 10 * n_contexts, "n_contexts": n_contexts, "n_edges": 1, "figures": found}

    def fill(making):
        making.write_table("edges.parquet", [{"out": 0, "in": 0, "mean": 0.1, "mean_abs": 0.1, "count": 5}])
        making.write_table("contexts.parquet", rows)
        making.write_json("metrics.json", told)

    finish(data / "jacobians" / name, JACOBIAN, fill)


def edges(data: Path, name: str) -> None:
    mean = {"mean": 0.6, "low": 0.5, "high": 0.7, "n": 3}
    told = {"n_asked": 5, "statuses": {"no_inputs": 2, "ok": 3}, **dict.fromkeys(("score", "null", "lift", "own", "own_lead"), mean)}

    def fill(making):
        row = {"latent": 1, "explainer": "lexical", "text": "a", "rank": 0, "input": 2, "input_text": "b", "mean": 0.1}
        making.write_table("explained.parquet", [row | {"mean_abs": 0.1, "count": 5, "weight": 1.0}])
        making.write_table("scores.parquet", [])
        making.write_json("metrics.json", {"lexical": told})

    finish(data / "edges" / name, EDGES, fill)


def grid(data: Path, *names: str) -> Grid:
    return Grid(data=data, seed=0, saes=(), explainers=(), scorers={}, jacobians=names)


def test_differences_are_those_of_the_figures_with_intervals_over_common_contexts(tmp_path):
    jacobian(tmp_path, "sparse", scale=0.01)
    jacobian(tmp_path, "dense", scale=0.02, redrawn=True)
    edges(tmp_path, "sparse")
    tables = jacobian_tables(grid(tmp_path, "sparse", "dense", "to-come"))
    rows = {row["jacobian"]: row for row in tables["jacobians.parquet"].to_pylist()}
    assert list(rows) == ["sparse", "dense"]
    assert (rows["dense"]["redrawn"], rows["sparse"]["input"], rows["sparse"]["output"]) == (True, "read", "written")
    apart = {row["figure"]: row for row in tables["jacobian_pairs.parquet"].to_pylist()}
    for figure, row in apart.items():
        assert row["difference"] == pytest.approx(rows["sparse"][figure] - rows["dense"][figure])
        assert row["unlike"] == []
    # the numbers of the one are half those of the other, context by context: paired draws leave the kurtosis no spread
    assert apart["mean_abs"]["high"] < 0
    assert apart["kurtosis"]["low"] == pytest.approx(0, abs=1e-6)
    (score,) = tables["edge_scores.parquet"].to_pylist()
    assert (score["score"], score["lift_low"], score["n_asked"], json.loads(score["statuses"])) == (0.6, 0.5, 5, {"no_inputs": 2, "ok": 3})
    assert tables["explained_edges.parquet"].to_pylist()[0]["jacobian"] == "sparse"
    summary = jacobian_summary(tables["jacobians.parquet"], tables["edge_scores.parquet"])
    assert summary["sparse"]["edges"] == {"lexical": {"score": 0.6, "lift": 0.6, "own": 0.6}}
    assert summary["dense"]["figures"]["mean_abs"] == round(rows["dense"]["mean_abs"], 4)


def test_jacobians_of_other_widths_or_tokens_say_so(tmp_path):
    jacobian(tmp_path, "one", scale=0.01)
    jacobian(tmp_path, "wide", scale=0.01, width=128)
    jacobian(tmp_path, "short", scale=0.01, n_contexts=10)
    pairs = jacobian_tables(grid(tmp_path, "one", "wide", "short"))["jacobian_pairs.parquet"].to_pylist()
    unlike = {(row["jacobian_a"], row["jacobian_b"]): row["unlike"] for row in pairs}
    assert unlike["one", "wide"] == ["width of the input: 64, 128", "width of the output: 64, 128"]
    assert unlike["one", "short"] == ["tokens: 200, 100"]


def test_a_study_without_jacobians_has_empty_tables_and_those_no_longer_named_go(tmp_path):
    assert all(table.num_rows == 0 for table in jacobian_tables(grid(tmp_path)).values())
    jacobian(tmp_path, "old", scale=0.01)
    edges(tmp_path, "old")
    (tmp_path / "edges" / ".keep").touch()
    assert remove_unnamed_cells(grid(tmp_path)) == [tmp_path / "jacobians" / "old", tmp_path / "edges" / "old"]
    assert (tmp_path / "edges" / ".keep").is_file()
