"""The tables of docs/jacobian.md: `python docs/jacobian_table.py`, after `make repro-jacobian`, in the project's folder."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from generated import write_between_marks

ROOT = Path(__file__).parents[1]
COMPARISON = ROOT / ".cache" / "jacobian" / "data" / "comparison"
FIGURES = {
    "mean_abs": "mean \\|J\\|",
    "above_0_005": "> .005",
    "above_0_01": "> .01",
    "above_0_02": "> .02",
    "above_0_04": "> .04",
    "kurtosis": "kurtosis",
}
Row = Mapping[str, Any]


def lines(comparison: Path) -> Iterator[str]:
    """Markdown: Jacobians, their differences, and what their edges predict."""
    jacobians, pairs, scores = (
        pq.read_table(comparison / f"{name}.parquet").to_pylist() for name in ("jacobians", "jacobian_pairs", "edge_scores")
    )
    yield from _table(["Jacobian", "L0 in, out", "FVU in, out", *FIGURES.values(), "tokens", "edges"], (_figures(row) for row in jacobians))
    yield ""
    yield from _table(["difference (95 %)", *FIGURES.values()], _differences(pairs))
    yield ""
    head = [
        "Jacobian",
        "edges' AUROC",
        "shuffled",
        "lift (95 %)",
        "own explanation",
        "own minus edges (95 %)",
        "scored, of asked",
        "not scored",
    ]
    yield from _table(head, (_score(row) for row in scores))


def _table(head: list[str], rows: Iterator[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    yield from ("| " + " | ".join(row) + " |" for row in rows)


def _figures(row: Row) -> list[str]:
    both = [f"{row[f'{name}_input']:{form}}, {row[f'{name}_output']:{form}}" for name, form in (("l0", ".1f"), ("fvu", ".3f"))]
    values = [f"{row[name]:.4f} ({row[f'{name}_low']:.4f} to {row[f'{name}_high']:.4f})" for name in FIGURES]
    return [row["jacobian"], *both, *values, f"{row['n_tokens']:,}", f"{row['n_edges']:,}"]


def _differences(pairs: list[Row]) -> Iterator[list[str]]:
    for a, b in dict.fromkeys((row["jacobian_a"], row["jacobian_b"]) for row in pairs):
        mine = {row["figure"]: row for row in pairs if (row["jacobian_a"], row["jacobian_b"]) == (a, b)}
        yield [f"{a} − {b}", *(_signed(mine[name], "difference", 4) for name in FIGURES)]


def _score(row: Row) -> list[str]:
    failed = {status: n for status, n in json.loads(row["statuses"]).items() if status != "ok"}
    return [
        row["jacobian"],
        f"{row['score']:.3f} ({row['score_low']:.3f} to {row['score_high']:.3f})",
        f"{row['null']:.3f}",
        _signed(row, "lift", 3),
        f"{row['own']:.3f}",
        _signed(row, "own_lead", 3),
        f"{row['n_score']}, {row['n_asked']}",
        ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in failed.items()),
    ]


def _signed(row: Row, name: str, digits: int) -> str:
    low, high = (f"{name}_low", f"{name}_high") if f"{name}_low" in row else ("low", "high")
    return f"{row[name]:+.{digits}f} ({row[low]:+.{digits}f} to {row[high]:+.{digits}f})"


if __name__ == "__main__":
    write_between_marks(ROOT / "docs" / "jacobian.md", list(lines(COMPARISON)))
