"""What SAEs of one place have in common: the latents that two share, how many each has alone, and scores paired by shared latents."""

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from latentry.comparison.cells import floats, headlines, of_cell, scored
from latentry.comparison.grid import Grid
from latentry.comparison.matching import Decoder, Matched, matched
from latentry.contracts import COMPARISON
from latentry.metrics import Values, holm, lift, paired_p_value, smallest_detectable_with, spread
from latentry.randomness import rng_for

MATCHES_TABLE = "matches.parquet"
OVERLAPS_TABLE = "overlaps.parquet"
SHARED_PAIRS_TABLE = "shared_pairs.parquet"

Decoders = Callable[[str], Decoder]
"""A SAE's decoder rows, by its name; read when it is called."""


def match_tables(grid: Grid, latents: pa.Table, saes: pa.Table, contrasts: Mapping[str, str], decoders: Decoders) -> dict[str, pa.Table]:
    """Matches, overlaps and paired scores of every two SAEs of one hookpoint of one subject, as far as both are there."""
    found = dict(_matched_pairs(saes, decoders))
    hookpoints = dict(zip(saes["sae"].to_pylist(), saes["hookpoint"].to_pylist(), strict=True))
    overlaps = [{**_named(pair), "hookpoint": hookpoints[pair[0]], **_overlap(*one)} for pair, one in found.items()]
    matches = [_match_rows(pair, pairs) for pair, (pairs, _, _) in found.items()]
    schema = COMPARISON.tables[MATCHES_TABLE]
    return {
        MATCHES_TABLE: pa.concat_tables(matches).cast(schema) if matches else schema.empty_table(),
        OVERLAPS_TABLE: pa.Table.from_pylist(overlaps, schema=COMPARISON.tables[OVERLAPS_TABLE]),
        SHARED_PAIRS_TABLE: _shared_pairs_table(grid, latents, contrasts, {pair: one for pair, (one, _, _) in found.items()}),
    }


def _matched_pairs(saes: pa.Table, decoders: Decoders) -> Iterator[tuple[tuple[str, str], tuple[Matched, int, int]]]:
    """Each two SAEs with what matches, and the width of either. Decoders are read anew, two at a time."""
    there = [row for row in saes.to_pylist() if row["hookpoint"] is not None]
    for a, b in combinations(there, 2):
        if (a["subject"], a["hookpoint"]) == (b["subject"], b["hookpoint"]):
            rows_a, rows_b = decoders(a["sae"]), decoders(b["sae"])
            if rows_a.shape[1] == rows_b.shape[1]:
                yield (a["sae"], b["sae"]), (matched(rows_a, rows_b), len(rows_a), len(rows_b))


def _named(pair: tuple[str, str]) -> dict[str, str]:
    return {"sae_a": pair[0], "sae_b": pair[1]}


def _match_rows(pair: tuple[str, str], found: Matched) -> pa.Table:
    n = len(found.latent_a)
    columns = {name: pa.repeat(sae, n) for name, sae in _named(pair).items()}
    return pa.table({**columns, "latent_a": found.latent_a, "latent_b": found.latent_b, "cosine": found.cosine})


def _overlap(found: Matched, n_a: int, n_b: int) -> dict[str, Any]:
    n = len(found.latent_a)
    mean = float(found.cosine.mean()) if n else None
    return {"n_shared": n, "n_only_a": n_a - n, "n_only_b": n_b - n, "mean_cosine": mean}


def _shared_pairs_table(grid: Grid, latents: pa.Table, contrasts: Mapping[str, str], found: Mapping[tuple[str, str], Matched]) -> pa.Table:
    """Scores of one SAE's latents less those of the latents they match, where both have one; a family of tests for each scorer."""
    rows = []
    for scorer, metric in headlines(latents, grid.scorers).items():
        family = []
        for pair, one in found.items():
            for explainer in grid.explainers_of(scorer):
                named = {
                    "scorer": scorer,
                    "metric": grid.metric_name(scorer, metric, contrasts[scorer]),
                    "explainer": explainer,
                    **_named(pair),
                }
                a, b = _paired(latents, pair, explainer, scorer, metric, one)
                family.append({**named, **_numbers(a, b, rng_for(grid.seed, "shared pair " + " ".join(named.values())))})
        adjusted = holm([row["p_value"] for row in family])
        rows += [{**row, "p_adjusted": p} for row, p in zip(family, adjusted, strict=True)]
    return pa.Table.from_pylist(rows, schema=COMPARISON.tables[SHARED_PAIRS_TABLE])


def _paired(latents: pa.Table, pair: tuple[str, str], explainer: str, scorer: str, metric: str, found: Matched) -> tuple[Values, Values]:
    scores = []
    for sae, wanted in zip(pair, (found.latent_a, found.latent_b), strict=True):
        rows = scored(of_cell(latents, sae, explainer, scorer), metric)
        rows = rows.filter(pc.field("latent").isin(pa.array(wanted, pa.uint32())))
        scores.append(dict(zip(rows["latent"].to_pylist(), floats(rows, metric).tolist(), strict=True)))
    both = [
        (scores[0][a], scores[1][b])
        for a, b in zip(found.latent_a.tolist(), found.latent_b.tolist(), strict=True)
        if a in scores[0] and b in scores[1]
    ]
    values = np.array(both, float).reshape(-1, 2)
    return values[:, 0], values[:, 1]


def _numbers(a: Values, b: Values, rng: np.random.Generator) -> dict[str, Any]:
    apart = lift(a, b, rng)
    return {
        "difference": apart.mean,
        "low": apart.low,
        "high": apart.high,
        "p_value": paired_p_value(a, b),
        "smallest_detectable": smallest_detectable_with(spread(a - b), len(a), 0.0, len(a)) if len(a) > 1 else None,
        "n": len(a),
    }
