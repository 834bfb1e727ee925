"""What a run says of itself in words: Markdown that MLflow shows on top of its page."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from latentry.metric_kinds import chance_of
from latentry.records import NO_EXPLAINER


def cell_note(row: Mapping[str, Any], explainer: str, judge: str, cells: Sequence[Mapping[str, Any]]) -> str:
    """Of one SAE and explainer: every scorer's headline score, and the latents it left unscored by the reason."""
    explained = "Scored without explanations" if explainer == NO_EXPLAINER else f"Explained by **{explainer}**"
    lines = [
        f"**{row['sae']}**: {row['width']:,} latents, loss {row['loss']}, L0 {shown(row['l0'], 1)}, FVU {shown(row['fvu'])},"
        f" at `{row['hookpoint']}` of {row['subject']}. {explained}; models asked: {judge}.",
        "",
        "| scorer | metric | score | 95 % interval | chance | shuffled null | lift | n of asked | not scored |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        if cell["headline"]:
            interval = f"{shown(cell['low'])} to {shown(cell['high'])}"
            counts = f"{cell['n']} of {cell['n_asked']} | {_not_scored(cell)}"
            metric = metric_name(cell).partition("/")[2]
            chance = chance_of(cell["metric"])
            known = "" if chance is None else f"{chance:.3g}"
            numbers = (shown(cell["mean"]), interval, known, shown(cell["null"]), shown(cell["lift"]), counts)
            lines.append(f"| {cell['scorer']} | {metric} | {' | '.join(numbers)} |")
    lines += ["", "Intervals cover the latents drawn and the judge's noise, not the corpus or the seed.", ""]
    return "\n".join([*lines, "The null scores the same examples under another latent's explanation: lift says that the text is specific."])


def comparison_note(saes: Sequence[str], missing: Sequence[str]) -> str:
    """Of the comparison: what it compares, what is missing, where its pages are and how to make it again."""
    lines = [
        f"Comparison of {len(saes)} SAEs: {', '.join(name for name in saes if name not in missing)}.",
        *([f"**Missing**, never made or failed: {', '.join(missing)}."] if missing else []),
        "The report is `report/index.html`, the tables are under `tables/`. Its links to single latents work in the project's own folder"
        " `report/`, whose `latents.html` lists and searches all of them.",
        "To make all of it again: the commit in the tags, with `params.yaml`, `dvc.yaml` and `dvc.lock` from here. The tag `code` says whether"
        " that commit holds all the code.",
    ]
    return "\n\n".join(lines)


def metric_name(row: Mapping[str, Any]) -> str:
    """`detection/auroc_random`: the contrasts are part of the name, for scores under different ones are not comparable."""
    return f"{row['scorer']}/{row['metric']}"


def shown(value: float | None, digits: int = 3) -> str:
    """A number for readers."""
    return "unknown" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def _not_scored(cell: Mapping[str, Any]) -> str:
    """The latents without a score by the reason, or that the scorer has not run."""
    if not cell["n_asked"]:
        return "**missing**: not run, or failed"
    return ", ".join(f"{n} {status}" for status, n in json.loads(cell["statuses"]).items() if status != "ok") or "none"
