"""The latents of one SAE as the explorer lists them: in the order of the sample, with their explanations and headline scores.

Read from the contracts; a latent that was asked for and could not be explained or scored keeps its row, and its status.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float32

from latentry import contracts
from latentry.explorer.labels import labels_of
from latentry.store import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The headline scores of one explainer by one scorer, by row; NaN where there is none."""

    explainer: str
    scorer: str
    value: Float32[np.ndarray, " row"]
    low: Float32[np.ndarray, " row"]
    high: Float32[np.ndarray, " row"]
    null: Float32[np.ndarray, " row"]
    status: Sequence[str | None]
    """None where the latent was not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaeRows:
    """One SAE's latents."""

    sae: str
    latents: Sequence[Mapping[str, Any]]
    """Rows of `latents.parquet` of the examples, by rank."""
    labels: Sequence[str]
    """What each is called."""
    texts: Mapping[str, Sequence[str | None]]
    """Explanations by explainer and row; None where there is none."""
    notes: Mapping[str, Sequence[str]]
    """Of each explainer and row: why there is no explanation, or the digest of its prompt."""
    scores: Sequence[Score]


def sae_rows(data: Path, sae: str, explainers: Sequence[str], headline: Mapping[str, str], latents: pa.Table) -> SaeRows:
    """Read one SAE; `headline` names each scorer's metric by its column in `latents`, the comparison's table.

    Raises:
        ContractError: the SAE's examples are not there.
    """
    asked = read_table(data / "examples" / sae, contracts.EXAMPLES, "latents.parquet").sort_by("rank").to_pylist()
    row_of = {row["latent"]: place for place, row in enumerate(asked)}
    mine = latents.filter(pc.field("sae") == sae)
    texts, notes = _explained(data / "explanations" / sae, explainers, row_of)
    label = labels_of(data, sae)
    labels = [label(row["latent"]) for row in asked]
    return SaeRows(sae=sae, latents=asked, labels=labels, texts=texts, notes=notes, scores=list(_scores(mine, headline, row_of)))


def _explained(
    folder: Path, explainers: Sequence[str], row_of: Mapping[int, int]
) -> tuple[dict[str, list[str | None]], dict[str, list[str]]]:
    texts: dict[str, list[str | None]] = {name: [None] * len(row_of) for name in explainers}
    notes: dict[str, list[str]] = {name: [""] * len(row_of) for name in explainers}
    if not (folder / "manifest.json").is_file():
        return texts, notes
    for one in read_table(folder, contracts.EXPLANATIONS, "explanations.parquet").to_pylist():
        if one["explainer"] in texts and one["latent"] in row_of:
            row = row_of[one["latent"]]
            texts[one["explainer"]][row] = one["text"]
            failed = f"{one['status'].replace('_', ' ')}: {one['detail']}"
            notes[one["explainer"]][row] = failed if one["text"] is None else f"prompt {one['prompt_digest'][:12]}"
    return texts, notes


def _scores(latents: pa.Table, headline: Mapping[str, str], row_of: Mapping[int, int]) -> Iterator[Score]:
    for scorer, metric in headline.items():
        of_scorer = latents.filter(pc.field("scorer") == scorer)
        for explainer in of_scorer["explainer"].unique().to_pylist():
            yield _score(of_scorer.filter(pc.field("explainer") == explainer), scorer, explainer, metric, row_of)


def _score(table: pa.Table, scorer: str, explainer: str, metric: str, row_of: Mapping[int, int]) -> Score:
    rows = np.array([row_of.get(latent, -1) for latent in table["latent"].to_pylist()], np.int64)
    known = rows >= 0
    status: list[str | None] = [None] * len(row_of)
    for row, found in zip(rows.tolist(), table["status"].to_pylist(), strict=True):
        if row >= 0:
            status[row] = found

    def column(name: str) -> Float32[np.ndarray, " row"]:
        values = np.full(len(row_of), np.nan, np.float32)
        values[rows[known]] = table[name].cast(pa.float64()).to_numpy().astype(np.float32)[known]
        return values

    named = {"value": metric, "low": f"{metric}_low", "high": f"{metric}_high", "null": f"null_{metric}"}
    return Score(explainer=explainer, scorer=scorer, status=status, **{field: column(name) for field, name in named.items()})


def plain(value: float | None) -> float | None:
    """A number as the page is given it, to four digits; what is not there is None."""
    return None if value is None or value != value else float(f"{value:.4g}")
