"""From the examples of a SAE to one explanation per latent asked for."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from latentry.contracts import EXAMPLES
from latentry.explainers.base import Explainer, LatentExamples, Promoted, SaeFacts
from latentry.records import Example, Explanation, Split, Status
from latentry.store import read_table


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


def facts_of(name: str, width: int | None, examples: Path) -> SaeFacts:
    """What explainers may know of one SAE; its promoted tokens are read when one asks."""

    def promoted() -> dict[int, Promoted]:
        rows = read_table(examples, EXAMPLES, "promoted.parquet").to_pylist()
        return {row["latent"]: Promoted(more=tuple(row["promoted_tokens"]), less=tuple(row["suppressed_tokens"])) for row in rows}

    return SaeFacts(name=name, width=width, promoted=promoted)


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
