"""Prints the results of a run as the table that stands in docs/saes.md: `python examples/sizes-and-losses/table.py`, in the project's folder."""

import sys

import pyarrow.parquet as pq

HEADS = ("SAE", "loss", "width", "L0", "FVU", "CE recovered", "dead", "AUROC (95 %)", "shuffled", "lift (95 %)", "n")


def rows() -> list[list[str]]:
    """One row per SAE of params.yaml, in their order."""
    saes = {row["sae"]: row for row in pq.read_table("data/comparison/saes.parquet").to_pylist()}
    cells = {row["sae"]: row for row in pq.read_table("data/comparison/cells.parquet").to_pylist() if row["metric"] == "auroc_random"}
    return [_row(name, sae, cells[name]) for name, sae in saes.items()]


def _row(name: str, sae: dict, cell: dict) -> list[str]:
    figures = [sae["loss"], f"{sae['width']:,}", f"{sae['l0']:.1f}", f"{sae['fvu']:.3f}", f"{sae['ce_recovered']:.3f}"]
    score = f"{cell['mean']:.3f} ({cell['low']:.3f} to {cell['high']:.3f})"
    lift = f"{cell['lift']:+.3f} ({cell['lift_low']:+.3f} to {cell['lift_high']:+.3f})"
    named = f"{name} (baseline)" if sae["baseline"] else name
    return [named, *figures, f"{sae['dead_fraction']:.1%}", score, f"{cell['null']:.3f}", lift, str(cell["n"])]


if __name__ == "__main__":
    for line in (HEADS, ["---"] * len(HEADS), *rows()):
        sys.stdout.write("| " + " | ".join(line) + " |\n")
