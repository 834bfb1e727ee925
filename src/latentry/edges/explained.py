"""Explained edges: beside a latent of the MLP's output, those of its strongest inputs that have an explanation, and how they weigh.

An input's strength is mean |J| x count: all that its latent moved the output latent by, over the tokens. Its weight is mean |J|, over the
inputs that stand beside the latent, so that the weights of a latent add up to 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from latentry.records import Explanation, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedInput:
    """One explained latent of the MLP's input, as it acts on one latent of the output."""

    latent: int
    text: str
    mean: float
    """Of J: above 0 where the input latent makes the output latent fire more."""
    mean_abs: float
    count: int
    """Tokens at which both were active."""
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedLatent:
    """One latent of the MLP's output with the strongest of its explained inputs, strongest first; there may be none."""

    latent: int
    n_inputs: int
    """Latents of the input that were ever active with it."""
    n_explained: int
    """Of these, how many have an explanation."""
    strength_explained: float | None
    """Share of the strength of all its inputs that those beside it hold; None where it has none, or they have no strength."""
    inputs: tuple[ExplainedInput, ...]


def texts_of(explanations: Sequence[Explanation]) -> dict[str, dict[int, str]]:
    """By explainer, the text of each latent that has one."""
    found: dict[str, dict[int, str]] = {}
    for one in explanations:
        of_explainer = found.setdefault(one.explainer, {})
        if one.status is Status.OK and one.text is not None:
            of_explainer[one.latent] = one.text
    return found


def explained_latents(edges: pa.Table, latents: Sequence[int], texts: Mapping[int, str], n_inputs: int) -> Iterator[ExplainedLatent]:
    """Each of some output latents with the `n_inputs` strongest of its explained inputs; `edges` is `edges.parquet`, in its order."""
    mine = edges.filter(pc.field("out").isin(pa.array(sorted(latents), pa.uint32())))
    out = mine["out"].to_numpy().astype(np.int64)
    columns = {name: mine[name].to_numpy() for name in ("in", "mean", "mean_abs", "count")}
    has_text = np.isin(columns["in"], np.fromiter(texts, np.int64, len(texts)))
    strength = columns["mean_abs"] * columns["count"]
    for latent in latents:
        rows = slice(*np.searchsorted(out, [latent, latent + 1]).tolist())
        explained = np.flatnonzero(has_text[rows]) + rows.start
        chosen = explained[np.lexsort((columns["in"][explained], -strength[explained]))][:n_inputs]
        whole = float(strength[rows].sum())
        yield ExplainedLatent(
            latent=latent,
            n_inputs=rows.stop - rows.start,
            n_explained=len(explained),
            strength_explained=float(strength[chosen].sum()) / whole if whole > 0 else None,
            inputs=tuple(_inputs(columns, chosen, texts)),
        )


def _inputs(columns: Mapping[str, np.ndarray], chosen: np.ndarray, texts: Mapping[int, str]) -> Iterator[ExplainedInput]:
    sizes = columns["mean_abs"][chosen]
    weights = sizes / sizes.sum() if sizes.sum() > 0 else np.full(len(sizes), 1 / max(1, len(sizes)))
    for row, weight in zip(chosen.tolist(), weights.tolist(), strict=True):
        latent = int(columns["in"][row])
        yield ExplainedInput(
            latent=latent,
            text=texts[latent],
            mean=float(columns["mean"][row]),
            mean_abs=float(columns["mean_abs"][row]),
            count=int(columns["count"][row]),
            weight=weight,
        )


def explained_rows(explainer: str, own: Mapping[int, str], latents: Sequence[ExplainedLatent]) -> Iterator[dict[str, object]]:
    """Rows of `explained.parquet`; `own` are the explanations of the output's latents."""
    for one in latents:
        for rank, read in enumerate(one.inputs):
            yield {
                "latent": one.latent,
                "explainer": explainer,
                "text": own.get(one.latent),
                "n_inputs": one.n_inputs,
                "n_explained": one.n_explained,
                "strength_explained": one.strength_explained,
                "rank": rank,
                "input": read.latent,
                "input_text": read.text,
                "mean": read.mean,
                "mean_abs": read.mean_abs,
                "count": read.count,
                "weight": read.weight,
            }
