"""What the report shows of single latents: explanations beside their scores and null, and example text cut at its activations.

Everything is plain text here; escaping is the template's.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from latentry import contracts
from latentry.explorer.labels import labels_of
from latentry.metric_kinds import kind_of
from latentry.store import read_table

LEVELS = 10
_SHOWN = {"explain": 3, "held_out": 3}
"""Activating windows shown of each split."""
_TOP_TOKENS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of text whose tokens fire at one level."""

    text: str
    level: int
    """0 silent to 10 the latent's largest activation (methods.md, Windows 4)."""
    activation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One example as it is shown."""

    split: str
    decile: int
    peak: float
    pieces: tuple[Piece, ...]


def sae_sample(data: Path, sae: str, latents: pa.Table, cells: Sequence[Mapping[str, Any]], per_sae: int) -> dict[str, Any]:
    """The first latents of one SAE's sample, those with explanations, each with all that the page shows of it.

    Raises:
        ContractError: the SAE's examples are not there.
    """
    asked = read_table(data / "examples" / sae, contracts.EXAMPLES, "latents.parquet").sort_by("rank").to_pylist()
    scored = latents.filter(pc.field("sae") == sae)
    known = set(scored["latent"].to_pylist())
    chosen = [row for row in asked if row["latent"] in known and row["status"] == "ok"][:per_sae]
    numbers = [row["latent"] for row in chosen]
    rows = scored.filter(pc.field("latent").isin(numbers)).to_pylist()
    windows = _windows(data / "examples" / sae, numbers)
    tokens = _top_tokens(data / "latents" / sae, numbers)
    label = labels_of(data, sae)
    metrics = {cell["scorer"]: kind_of(cell["metric"]) for cell in cells if cell["headline"]}
    return {
        "sae": sae,
        "n_asked": len(asked),
        "statuses": _counts(row["status"] for row in asked),
        "latents": [
            {
                **row,
                "label": label(row["latent"]),
                "tokens": tokens.get(row["latent"], []),
                "windows": windows.get(row["latent"], []),
                "explanations": _explanations(row["latent"], rows, metrics),
            }
            for row in chosen
        ],
    }


def pieces_of(text: str, spans: Sequence[int], activations: Sequence[float], largest: float) -> tuple[Piece, ...]:
    """The text cut where the level changes; characters outside all tokens are silent.

    Tokens that share characters (an emoji over several tokens) are shown once, at the strongest of them.
    """
    levels, values = [0] * len(text), [0.0] * len(text)
    for start, end, value in zip(spans[::2], spans[1::2], activations, strict=True):
        for place in range(start, min(end, len(text))):
            levels[place] = max(levels[place], level_of(value, largest))
            values[place] = max(values[place], value)
    pieces: list[Piece] = []
    begin = 0
    for place in range(1, len(text) + 1):
        if place == len(text) or values[place] != values[begin]:
            pieces.append(Piece(text=text[begin:place], level=levels[begin], activation=values[begin]))
            begin = place
    return tuple(pieces)


def level_of(activation: float, largest: float) -> int:
    """ceil(10 a / largest a of the latent), 0 to 10."""
    if activation <= 0 or largest <= 0:
        return 0
    return min(LEVELS, math.ceil(LEVELS * activation / largest))


def _windows(folder: Path, latents: Sequence[int]) -> dict[int, list[Window]]:
    """Of each latent, the first activating windows of both splits: each prefix is even over the deciles."""
    wanted = pc.field("latent").isin(latents) & (pc.field("kind") == "activating")
    columns = ["latent", "split", "rank", "decile", "text", "spans", "activations"]
    rows = pq.read_table(folder / "examples.parquet", columns=columns, filters=wanted).sort_by("rank").to_pylist()
    largest: dict[int, float] = {}
    for row in rows:
        largest[row["latent"]] = max(largest.get(row["latent"], 0.0), *row["activations"])
    found: dict[int, list[Window]] = {}
    for split, n in _SHOWN.items():
        for latent in latents:
            mine = [row for row in rows if (row["latent"], row["split"]) == (latent, split)][:n]
            found.setdefault(latent, []).extend(_window(row, largest[latent]) for row in mine)
    return found


def _window(row: Mapping[str, Any], largest: float) -> Window:
    pieces = pieces_of(row["text"], row["spans"], row["activations"], largest)
    return Window(split=row["split"], decile=row["decile"], peak=max(row["activations"]), pieces=pieces)


def _top_tokens(folder: Path, latents: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """The most common tokens each latent fires on; empty where the latents' folder is not here (it is not shared)."""
    path = folder / "statistics.parquet"
    if not path.is_file():
        return {}
    table = pq.read_table(path, columns=["latent", "top_tokens", "top_token_fractions"], filters=pc.field("latent").isin(latents))
    return {
        row["latent"]: [
            {"text": text.replace("\n", "⏎"), "fraction": fraction}
            for text, fraction in list(zip(row["top_tokens"], row["top_token_fractions"], strict=True))[:_TOP_TOKENS]
        ]
        for row in table.to_pylist()
    }


def _explanations(latent: int, rows: Sequence[Mapping[str, Any]], metrics: Mapping[str, str]) -> list[dict[str, Any]]:
    mine = [row for row in rows if row["latent"] == latent]
    names = dict.fromkeys(row["explainer"] for row in mine)
    return [_explanation(name, [row for row in mine if row["explainer"] == name], metrics) for name in names]


def _explanation(name: str, rows: Sequence[Mapping[str, Any]], metrics: Mapping[str, str]) -> dict[str, Any]:
    scores = [
        {
            "scorer": row["scorer"],
            "status": row["status"],
            "score": row[metrics[row["scorer"]]],
            "low": row[f"{metrics[row['scorer']]}_low"],
            "high": row[f"{metrics[row['scorer']]}_high"],
            "null": row[f"null_{metrics[row['scorer']]}"],
        }
        for row in rows
        if row["scorer"] in metrics
    ]
    return {"explainer": name, "text": rows[0]["explanation"], "status": rows[0]["explanation_status"], "scores": scores}


def _counts(values: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        found[value] = found.get(value, 0) + 1
    return dict(sorted(found.items(), key=lambda item: (item[0] != "ok", item[0])))
