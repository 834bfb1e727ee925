"""All that one latent's page shows beside the list: its examples by decile with their levels, contrasts, tokens and histogram.

Examples are read in the order of their file, a part at a time, so that memory does not grow with the latents.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from latentry import contracts
from latentry.explorer.samples import pieces_of
from latentry.explorer.site.rows import SaeRows, plain
from latentry.latents.latent_store import LatentStore
from latentry.store import read_table

PER_DECILE, PER_CONTRAST = 2, 3
"""Windows shown of each: of a decile, one that the explainer saw and one held out, where there are."""
N_BINS = 24
_COLUMNS = ("latent", "split", "kind", "contrast", "source", "supplier", "rank", "decile", "text", "spans", "activations")
_ROWS_AT_ONCE = 8192


def row_details(data: Path, part: SaeRows, tables: Mapping[str, pa.Table]) -> Iterator[dict[str, Any]]:
    """Everything of each row of one SAE, in order; of the comparison's tables those of latents that other SAEs have too and of
    explained edges, where they are given."""
    described, matched = Described(data / "latents" / part.sae), matches_of(tables.get("matches.parquet"), part.sae)
    inputs = inputs_of(tables, part.sae)
    for place, examples in _in_order(part, examples_by_latent(data / "examples" / part.sae)):
        latent = part.latents[place]["latent"]
        found = {**described.of(latent), **shown_examples(examples), "matches": matched.get(latent, []), "inputs": inputs.get(latent, [])}
        yield {**_asked(part, place), **found}


def _in_order(part: SaeRows, found: Iterator[tuple[int, list[dict[str, Any]]]]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Every row with its examples; the file may hold its latents in another order than the sample's, and lacks those without any."""
    waiting: dict[int, list[dict[str, Any]]] = {}
    for place, row in enumerate(part.latents):
        while row["latent"] not in waiting and row["status"] == "ok":
            latent, rows = next(found, (None, []))
            if latent is None:
                break
            waiting[latent] = rows
        yield place, waiting.pop(row["latent"], [])


def _asked(part: SaeRows, place: int) -> dict[str, Any]:
    """What was asked of a latent, and what came: its status, explanations and scores."""
    row = part.latents[place]
    explanations = [[name, texts[place], part.notes[name][place]] for name, texts in part.texts.items()]
    scores = [
        [one.explainer, one.scorer, *(plain(values[place]) for values in (one.value, one.low, one.high, one.null)), one.status[place]]
        for one in part.scores
        if one.status[place] is not None
    ]
    return {
        "latent": row["latent"],
        "label": part.labels[place],
        "status": row["status"],
        "detail": row["detail"],
        "shortfall": row["shortfall"],
        "n_windows": row["n_windows"],
        "window_fraction": plain(row["activating_window_fraction"]),
        "explanations": [one for one in explanations if one[1] or one[2]],
        "scores": scores,
    }


def examples_by_latent(folder: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Each latent with its rows of `examples.parquet`, in the order of the file, where a latent's rows stand together."""
    with pq.ParquetFile(folder / "examples.parquet") as file:
        latent, rows = -1, []
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=list(_COLUMNS)):
            for row in batch.to_pylist():
                if row["latent"] != latent:
                    if rows:
                        yield latent, rows
                    latent, rows = row["latent"], []
                rows.append(row)
        if rows:
            yield latent, rows


def shown_examples(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Some of a latent's windows: {active: [[split, decile, peak, pieces]], silent: [[contrast, supplier, text]]}.

    A piece is [text, level, activation], or the text alone where nothing fires.
    """
    active = sorted((row for row in rows if row["kind"] == "activating"), key=lambda row: (-row["decile"], row["split"], row["rank"]))
    largest = max((max(row["activations"]) for row in active), default=0.0)
    chosen: dict[tuple[int, str], Mapping[str, Any]] = {}
    for row in active:
        chosen.setdefault((row["decile"], row["split"]), row)
    return {"active": [_window(row, largest) for row in chosen.values()], "silent": list(_contrasts(rows))}


def _window(row: Mapping[str, Any], largest: float) -> list[Any]:
    pieces = pieces_of(row["text"], row["spans"], row["activations"], largest)
    shown = [[piece.text, piece.level, round(piece.activation, 3)] if piece.level else piece.text for piece in pieces]
    return [row["split"], row["decile"], round(max(row["activations"]), 3), shown]


def _contrasts(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[Any]]:
    silent = sorted((row for row in rows if row["kind"] == "contrast" and row["split"] == "held_out"), key=lambda row: row["rank"])
    for contrast in dict.fromkeys(row["contrast"] for row in silent):
        for row in [row for row in silent if row["contrast"] == contrast][:PER_CONTRAST]:
            yield [row["source"], row["supplier"], row["text"]]


class Described:
    """What the latents' folder of one SAE knows: statistics and histograms; nothing where the folder is not here (it is not shared)."""

    def __init__(self, folder: Path) -> None:
        there = (folder / "manifest.json").is_file()
        self._table = read_table(folder, contracts.LATENTS, "statistics.parquet") if there else None
        self._latents = np.empty(0) if self._table is None else self._table["latent"].to_numpy()
        self._store = LatentStore(folder) if there and (folder / "store.json").is_file() else None

    def of(self, latent: int) -> dict[str, Any]:
        """The tokens a latent fires at and promotes, its quantiles, and the histogram of its activations."""
        if self._table is None:
            return {}
        row = self._table.slice(int(np.searchsorted(self._latents, latent)), 1).to_pylist()[0]
        fires_at = [[token, round(share, 3)] for token, share in zip(row["top_tokens"], row["top_token_fractions"], strict=True)]
        numbers = {name: plain(row[name]) for name in ("firing_count", "mean", "median", "quantile_90", "quantile_99", "peak")}
        tokens = {"fires_at": fires_at, "promotes": row["promoted_tokens"] or [], "suppresses": row["suppressed_tokens"] or []}
        return {**numbers, **tokens, "histogram": self._histogram(latent)}

    def _histogram(self, latent: int) -> list[int]:
        """Activations in equal bins from 0 to the peak."""
        if self._store is None:
            return []
        _, activations = self._store.read(latent)
        if not len(activations):
            return []
        values = activations.astype(np.float64)
        return np.histogram(values, bins=N_BINS, range=(0.0, float(values.max())))[0].tolist()


def matches_of(matches: pa.Table | None, sae: str) -> dict[int, list[list[Any]]]:
    """The latents of other SAEs that match one's: by latent, [[SAE, latent, cosine]], the nearest first."""
    found: dict[int, list[list[Any]]] = {}
    if matches is None:
        return found
    for mine, other in (("a", "b"), ("b", "a")):
        for row in matches.filter(pc.field(f"sae_{mine}") == sae).to_pylist():
            entry = [row[f"sae_{other}"], row[f"latent_{other}"], round(row["cosine"], 3)]
            found.setdefault(row[f"latent_{mine}"], []).append(entry)
    return {latent: sorted(entries, key=lambda entry: -entry[2]) for latent, entries in found.items()}


def inputs_of(tables: Mapping[str, pa.Table], sae: str) -> dict[int, list[list[Any]]]:
    """What acts on the latents of a SAE of an MLP's output: by latent, [[Jacobian, explainer, SAE, latent, mean J, explanation]], the
    strongest first."""
    found: dict[int, list[list[Any]]] = {}
    if "jacobians.parquet" not in tables:
        return found
    around = {row["jacobian"]: row["input"] for row in tables["jacobians.parquet"].to_pylist() if row["output"] == sae}
    mine = tables["explained_edges.parquet"].filter(pc.field("jacobian").isin(pa.array(list(around), pa.string())))
    for row in mine.to_pylist():
        entry = [row["jacobian"], row["explainer"], around[row["jacobian"]], row["input"], round(row["mean"], 4), row["input_text"]]
        found.setdefault(row["latent"], []).append(entry)
    return found
