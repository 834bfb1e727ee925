"""From judgments to one score per latent, explainer and null: the rows of `scores.parquet`. No mean is taken over failures."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from latentry.randomness import rng_for
from latentry.records import Explanation, Judgment, Status
from latentry.scorers.base import Item, Scorer


def ranked_latents(latents: pa.Table, max_latents: int | None) -> list[int]:
    """The latents of `latents.parquet` in the order of the sample, the first `max_latents` of them."""
    rows = sorted(latents.select(["latent", "rank"]).to_pylist(), key=lambda row: row["rank"])
    return [row["latent"] for row in rows][:max_latents]


def window_fractions(latents: pa.Table) -> dict[int, float]:
    """The share of all windows in which each latent fires, from `latents.parquet`."""
    rows = latents.select(["latent", "activating_window_fraction"]).to_pylist()
    return {row["latent"]: row["activating_window_fraction"] for row in rows if row["activating_window_fraction"] is not None}


def score_rows(
    scorer: Scorer,
    explanations: Sequence[Explanation],
    items: Sequence[Item],
    judgments: Sequence[Judgment],
    *,
    name: str,
    contrast_source: str,
    seed: int,
) -> list[dict[str, Any]]:
    """One row per explanation, or per latent where there are none, and one per null that was judged; `name` is the scorer's.

    An explanation that could not be judged has its own status; one without any held-out example is `undersampled`.
    """
    judged: dict[tuple[int, str, bool], list[Judgment]] = defaultdict(list)
    for judgment in judgments:
        judged[judgment.latent, judgment.explainer, judgment.null].append(judgment)
    by_key = {(item.latent, item.explainer, item.null): item for item in items}
    rows = []
    for key in dict.fromkeys([*((one.latent, one.explainer, False) for one in explanations), *by_key]):
        latent, explainer, null = key
        row: dict[str, Any] = {"latent": latent, "explainer": explainer, "null": null}
        row |= {"contrast_source": contrast_source, "partner": by_key[key].partner if key in by_key else None}
        if key in by_key:
            rng = rng_for(seed, f"score {name} {explainer} {'null' if null else 'own'}", latent)
            rows.append(row | scorer.score(by_key[key], judged[key], rng).row())
        else:
            explanation = next(one for one in explanations if (one.latent, one.explainer) == (latent, explainer))
            rows.append(row | _unjudged(explanation))
    return rows


def _unjudged(explanation: Explanation) -> dict[str, Any]:
    if explanation.status is not Status.OK:
        status, detail = explanation.status, explanation.detail
    else:
        status, detail = Status.UNDERSAMPLED, "no held-out examples"
    return {"status": status, "detail": detail, "n_activating": 0, "n_contrast": 0, "n_failed": 0, "stopped_early": False}
