"""From the examples of a SAE to one explanation per latent asked for."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from latentry.explainers.base import Explainer, LatentExamples
from latentry.records import Example, Explanation, Split, Status


def latents_for(latents: pa.Table, examples: Mapping[int, Sequence[Example]]) -> list[LatentExamples]:
    """Every latent of `latents.parquet` by rank, with its explain split alone."""
    rows = sorted(latents.to_pylist(), key=lambda row: row["rank"])
    return [
        LatentExamples(
            latent=row["latent"],
            status=Status(row["status"]),
            detail=row["detail"],
            examples=tuple(one for one in examples.get(row["latent"], ()) if one.split is Split.EXPLAIN),
        )
        for row in rows
    ]


def explain_all(explainer: Explainer, latents: Sequence[LatentExamples], max_latents: int | None) -> list[Explanation]:
    """One explanation for each of the first `max_latents`, whatever its status.

    Raises:
        ValueError: the explainer answered for other latents than it was given.
    """
    asked = latents[:max_latents]
    explanations = explainer.explain(asked)
    if [one.latent for one in explanations] != [one.latent for one in asked]:
        raise ValueError(f"{type(explainer).__name__} gave explanations of other latents than it was asked for")
    return explanations
