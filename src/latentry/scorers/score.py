"""From judgments to one score per latent, explainer and null: the rows of `scores.parquet`. No mean is taken over failures."""

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from latentry.metrics import latent_score
from latentry.randomness import rng_for
from latentry.records import Explanation, Judgment, Status
from latentry.scorers.base import Item


def ranked_latents(latents: pa.Table, max_latents: int | None) -> list[int]:
    """The latents of `latents.parquet` in the order of the sample, the first `max_latents` of them."""
    rows = sorted(latents.select(["latent", "rank"]).to_pylist(), key=lambda row: row["rank"])
    return [row["latent"] for row in rows][:max_latents]


def score_rows(
    explanations: Sequence[Explanation], items: Sequence[Item], judgments: Sequence[Judgment], contrast_source: str, seed: int, scorer: str
) -> list[dict[str, Any]]:
    """One row per explanation, and one per null that was judged.

    An explanation that could not be judged has its own status; one without any held-out example is `undersampled`.
    """
    judged: dict[tuple[int, str, bool], list[Judgment]] = defaultdict(list)
    for judgment in judgments:
        judged[judgment.latent, judgment.explainer, judgment.null].append(judgment)
    partners = {(item.latent, item.explainer, item.null): item.partner for item in items}
    rows = []
    for key in dict.fromkeys([*((one.latent, one.explainer, False) for one in explanations), *partners]):
        latent, explainer, null = key
        row: dict[str, Any] = {"latent": latent, "explainer": explainer, "null": null}
        row |= {"contrast_source": contrast_source, "partner": partners.get(key)}
        if key in partners:
            rng = rng_for(seed, f"score {scorer} {explainer} {'null' if null else 'own'}", latent)
            rows.append(row | dataclasses.asdict(latent_score(judged[key], rng)))
        else:
            explanation = next(one for one in explanations if (one.latent, one.explainer) == (latent, explainer))
            rows.append(row | _unjudged(explanation))
    return rows


def _unjudged(explanation: Explanation) -> dict[str, Any]:
    if explanation.status is not Status.OK:
        status, detail = explanation.status, explanation.detail
    else:
        status, detail = Status.UNDERSAMPLED, "no held-out examples"
    return {"status": status, "detail": detail, "n_activating": 0, "n_contrast": 0, "n_failed": 0}
