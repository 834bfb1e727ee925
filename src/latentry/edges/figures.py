"""How sparse a Jacobian is: mean |J|, shares above thresholds, kurtosis, with 95 % intervals over contexts. Pure numpy.

All figures are ratios of sums over contexts. Mean |J| divides by the active pairs of a token, then by the tokens that have one; shares and
kurtosis are of all active pairs of all tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from latentry.edges.pairs import ActivePairs
from latentry.metric_kinds import JACOBIAN_FIGURES, JACOBIAN_THRESHOLDS
from latentry.metrics.intervals import N_DRAWS, percentile_interval

_DRAWN_AT_ONCE = 4_000_000
"""Numbers held at once by the bootstrap."""
_N_POWERS = 4
_COLUMNS = 3 + len(JACOBIAN_THRESHOLDS) + _N_POWERS
"""Tokens with a pair, pairs, sum of the tokens' means, counts above each threshold, sums of powers."""

Sums = Float[np.ndarray, "context column"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number with its interval; None where it is not defined (no pair, or one context)."""

    value: float | None
    low: float | None
    high: float | None


def context_row(context: int, n_tokens: int, pairs: ActivePairs) -> dict[str, Any]:
    """The sums of one context: a row of `contexts.parquet`."""
    value = pairs.value.astype(np.float64)
    size, of_token = np.abs(value), np.bincount(pairs.token, minlength=n_tokens)
    means = np.bincount(pairs.token, weights=size, minlength=n_tokens)[of_token > 0] / of_token[of_token > 0]
    return {
        "context": context,
        "n_tokens": n_tokens,
        "n_paired_tokens": len(means),
        "n_pairs": len(value),
        "mean_abs_sum": float(means.sum()),
        "n_above": [int((size > threshold).sum()) for threshold in JACOBIAN_THRESHOLDS.values()],
        "power_sums": [float((value**power).sum()) for power in range(1, _N_POWERS + 1)],
    }


def added_rows(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The row of a context from those of its parts."""
    lists = {name: [sum(values) for values in zip(*(part[name] for part in parts), strict=True)] for name in ("n_above", "power_sums")}
    numbers = {name: sum(part[name] for part in parts) for name in ("n_tokens", "n_paired_tokens", "n_pairs", "mean_abs_sum")}
    return {"context": parts[0]["context"], **numbers, **lists}


def sums_by_context(rows: Sequence[Mapping[str, Any]]) -> Sums:
    """The same rows as an array."""
    columns = [[row["n_paired_tokens"], row["n_pairs"], row["mean_abs_sum"], *row["n_above"], *row["power_sums"]] for row in rows]
    return np.array(columns, dtype=np.float64).reshape(-1, _COLUMNS)


def figures(sums: Sums, rng: np.random.Generator) -> dict[str, Figure]:
    """Every figure by its name in `JACOBIAN_FIGURES`."""
    return _with_intervals(_of_totals(sums.sum(axis=0)), _draws([sums], rng), len(sums))


def differences(a: Sums, b: Sums, rng: np.random.Generator, *, paired: bool) -> dict[str, Figure]:
    """Every figure of `a` less that of `b`; paired: row by row of the same contexts, which are then drawn together."""
    point_a, point_b = _of_totals(a.sum(axis=0)), _of_totals(b.sum(axis=0))
    drawn = _draws([a, b], rng) if paired else [*_draws([a], rng), *_draws([b], rng)]
    apart = {name: point_a[name] - point_b[name] for name in JACOBIAN_FIGURES}
    return _with_intervals(apart, [{name: drawn[0][name] - drawn[1][name] for name in JACOBIAN_FIGURES}], min(len(a), len(b)))


def as_json(found: Mapping[str, Figure]) -> dict[str, dict[str, float | None]]:
    """As `metrics.json` holds them."""
    return {name: {"value": figure.value, "low": figure.low, "high": figure.high} for name, figure in found.items()}


def _of_totals(totals: Float[np.ndarray, "... column"]) -> dict[str, Any]:
    """The figures of sums; NaN where there is no pair, and the kurtosis where J does not vary."""
    n_tokens, n, mean_sum = (totals[..., place] for place in range(3))
    above, powers = totals[..., 3:-_N_POWERS], totals[..., -_N_POWERS:]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = {name: above[..., place] / n for place, name in enumerate(JACOBIAN_THRESHOLDS)}
        return {"mean_abs": mean_sum / n_tokens, **shares, "kurtosis": _kurtosis(np.moveaxis(powers / n[..., None], -1, 0))}


def _kurtosis(moments: np.ndarray) -> Any:
    """Excess kurtosis m4 / m2**2 - 3 of the population, 0 for a normal distribution, from the four moments about 0, one a row."""
    m1, m2, m3, m4 = moments
    return (m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4) / (m2 - m1**2) ** 2 - 3


def _draws(samples: Sequence[Sums], rng: np.random.Generator) -> list[dict[str, Any]]:
    """The figures of bootstrap samples of contexts, the same contexts of every one of `samples`."""
    n = len(samples[0])
    if not n:
        return [dict.fromkeys(JACOBIAN_FIGURES, np.full(N_DRAWS, np.nan))] * len(samples)
    at_once = max(1, min(N_DRAWS, _DRAWN_AT_ONCE // n))
    sizes = [min(at_once, N_DRAWS - first) for first in range(0, N_DRAWS, at_once)]
    totals: list[list[np.ndarray]] = [[] for _ in samples]
    for size in sizes:
        times = rng.multinomial(n, np.full(n, 1 / n), size=size).astype(np.float64)
        for kept, sums in zip(totals, samples, strict=True):
            kept.append(times @ sums)
    return [_of_totals(np.concatenate(kept)) for kept in totals]


def _with_intervals(points: Mapping[str, Any], draws: Sequence[Mapping[str, Any]], n_contexts: int) -> dict[str, Figure]:
    found = {}
    for name in JACOBIAN_FIGURES:
        value, drawn = float(points[name]), draws[0][name][np.isfinite(draws[0][name])]
        low, high = percentile_interval(drawn) if n_contexts > 1 and len(drawn) and np.isfinite(value) else (None, None)
        found[name] = Figure(value=value if np.isfinite(value) else None, low=low, high=high)
    return found
