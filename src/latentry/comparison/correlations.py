"""How far two scorers agree on which explanations are good: rank correlations over the latents that both scored.

Within each SAE, and over all SAEs of the grid together; the interval is a bootstrap over latents.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import stats

from latentry.comparison.cells import floats, of_cell, scored
from latentry.contracts import COMPARISON
from latentry.metrics import Values
from latentry.randomness import rng_for
from latentry.records import NO_EXPLAINER

CORRELATIONS_TABLE = "correlations.parquet"
N_DRAWS = 1000
FEWEST = 4
"""Latents below which nothing is said."""


def correlations_table(
    latents: pa.Table, saes: Sequence[str], explainers: Sequence[str], metrics: Mapping[str, str], seed: int
) -> pa.Table:
    """Every two scorers under each explainer; `metrics` names each scorer's headline by its column. `sae` is null over all of them."""
    rows = list(_rows(latents, saes, explainers, metrics, seed))
    return pa.Table.from_pylist(rows, schema=COMPARISON.tables[CORRELATIONS_TABLE])


def spearman(a: Values, b: Values, rng: np.random.Generator) -> tuple[float | None, float | None, float | None]:
    """Spearman's correlation and its 95 % percentile interval; None below `FEWEST` pairs or where a side does not vary."""
    if len(a) < FEWEST or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None, None, None
    found = float(np.asarray(stats.spearmanr(a, b))[0])
    places = rng.integers(0, len(a), size=(N_DRAWS, len(a)))
    ranks_a, ranks_b = (stats.rankdata(values[places], axis=1) for values in (a, b))
    centred_a, centred_b = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (ranks_a, ranks_b))
    lengths = np.sqrt((centred_a**2).sum(axis=1) * (centred_b**2).sum(axis=1))
    drawn = (centred_a * centred_b).sum(axis=1)[lengths > 0] / lengths[lengths > 0]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return found, float(low), float(high)


def _rows(
    latents: pa.Table, saes: Sequence[str], explainers: Sequence[str], metrics: Mapping[str, str], seed: int
) -> Iterator[dict[str, Any]]:
    for explainer in explainers:
        scores = {(sae, scorer): _scores(latents, sae, explainer, scorer, metric) for scorer, metric in metrics.items() for sae in saes}
        for scorer_a, scorer_b in combinations(metrics, 2):
            pairs = {sae: _both(scores[sae, scorer_a], scores[sae, scorer_b]) for sae in saes}
            whole = tuple(np.concatenate([pairs[sae][side] for sae in saes]) for side in (0, 1))
            for sae, (a, b) in [*pairs.items(), (None, whole)]:
                named = {"sae": sae, "explainer": explainer, "scorer_a": scorer_a, "scorer_b": scorer_b}
                found, low, high = spearman(a, b, rng_for(seed, f"correlation {sae} {explainer} {scorer_a} {scorer_b}"))
                yield {**named, "spearman": found, "low": low, "high": high, "n": len(a)}


def _scores(latents: pa.Table, sae: str, explainer: str, scorer: str, metric: str) -> dict[int, float]:
    """By latent; a scorer that reads no explanations has the same under every explainer."""
    rows = scored(of_cell(latents, sae, explainer, scorer), metric)
    rows = rows if len(rows) else scored(of_cell(latents, sae, NO_EXPLAINER, scorer), metric)
    return dict(zip(rows["latent"].to_pylist(), floats(rows, metric).tolist(), strict=True))


def _both(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[Values, Values]:
    shared = sorted(a.keys() & b.keys())
    return np.array([a[latent] for latent in shared], float), np.array([b[latent] for latent in shared], float)
