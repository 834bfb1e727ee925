"""How well the explanations of a latent's inputs predict where it fires: the embedding scorer, asked of edges.

A window is graded by sum_i w_i cos(explanation of input i, window), w_i the weights of the latent's explained inputs; the score is the
AUROC of its held-out activating windows against its contrasts, chance .5. The null grades the same windows by another latent's inputs, by
a seeded derangement. A latent that cannot be scored has a status, and is in no mean.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from latentry.edges.explained import ExplainedLatent
from latentry.metrics import Summary, auroc, auroc_interval, lift, summary
from latentry.randomness import rng_for
from latentry.records import Example, Kind, Status
from latentry.scorers.base import Item, derangement, used_examples
from latentry.scorers.embedded import DECIMALS

if TYPE_CHECKING:
    from latentry.embeddings import Embedder


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedLatent:
    """One latent of the MLP's output that a score is wanted of."""

    latent: int
    status: Status
    """As it was chosen: what is not OK has no windows."""
    detail: str
    inclusion_probability: float | None
    edges: ExplainedLatent
    own: str | None
    """Its own explanation; None where it has none."""
    examples: Sequence[Example]
    """Held-out ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeScoring:
    """Scores the latents of one Jacobian and explainer."""

    seed: int
    purpose: str
    """Of the draws: the Jacobian and the explainer."""
    contrast: str
    max_examples: int | None
    null_latents: int | None
    """Latents on which the null is scored, the first ones; None: all."""
    embedder: "Embedder"

    def rows(self, asked: Sequence[AskedLatent], excluded: Mapping[int, set[int]]) -> list[dict[str, Any]]:
        """Rows of `scores.parquet`: every latent asked for, then the nulls; `excluded` are no partners of a latent's null."""
        able = {one.latent: one for one in asked if self._status(one)[0] is Status.OK}
        vectors = self._vectors(able.values())
        rows = [self._row(one, able.get(one.latent), None, vectors) for one in asked]
        texts = {latent: " | ".join(read.text for read in one.edges.inputs) for latent, one in able.items()}
        partner = derangement(texts, seed=self.seed, excluded=excluded)
        with_null = [one for one in able.values() if one.latent in partner][: self.null_latents]
        return rows + [self._row(one, able[partner[one.latent]], partner[one.latent], vectors) for one in with_null]

    def _row(self, one: AskedLatent, source: AskedLatent | None, partner: int | None, vectors: "_Vectors") -> dict[str, Any]:
        status, detail = self._status(one)
        row: dict[str, Any] = {"latent": one.latent, "null": partner is not None, "status": status.value, "detail": detail}
        row |= {"partner": partner, "inclusion_probability": one.inclusion_probability}
        row |= {name: getattr(one.edges, name) for name in ("n_inputs", "n_explained", "strength_explained")}
        if source is None:
            return row
        windows = self._windows(one)
        truth = np.array([window.kind is Kind.ACTIVATING for window in windows])
        grades = vectors.grades(source.edges, windows)
        rng = rng_for(self.seed, f"edges {self.purpose} {'null' if partner is not None else 'own'}", one.latent)
        low, high = auroc_interval(grades, truth, rng)
        row |= {"auroc": auroc(grades, truth), "low": low, "high": high}
        row |= {"n_activating": int(truth.sum()), "n_contrast": int((~truth).sum())}
        if partner is None and one.own is not None:
            row["own_auroc"] = auroc(vectors.own_grades(one.own, windows), truth)
        return row

    def _status(self, one: AskedLatent) -> tuple[Status, str]:
        if one.status is not Status.OK:
            return one.status, one.detail
        if not one.edges.inputs:
            return Status.NO_INPUTS, f"none of the {one.edges.n_inputs} latents that act on it has an explanation"
        n = Counter(window.kind for window in self._windows(one))
        if not n:
            return Status.UNDERSAMPLED, "no held-out examples"
        if len(n) < len(Kind):
            return Status.SINGLE_CLASS, f"{n[Kind.ACTIVATING]} activating and {n[Kind.CONTRAST]} contrast windows; both are needed"
        return Status.OK, ""

    def _windows(self, one: AskedLatent) -> list[Example]:
        item = Item(latent=one.latent, explainer="", null=False, text="", examples=tuple(one.examples))
        return used_examples(item, self.contrast, self.max_examples)

    def _vectors(self, able: Any) -> "_Vectors":
        texts = dict.fromkeys(text for one in able for text in (*(read.text for read in one.edges.inputs), one.own) if text is not None)
        windows = dict.fromkeys(window.text for one in able for window in self._windows(one))
        return _Vectors(
            queries=dict(zip(texts, self.embedder.queries(list(texts)), strict=True)),
            documents=dict(zip(windows, self.embedder.documents(list(windows)), strict=True)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vectors:
    """Unit vectors of all texts."""

    queries: Mapping[str, Float[np.ndarray, " d_embedding"]]
    documents: Mapping[str, Float[np.ndarray, " d_embedding"]]

    def grades(self, edges: ExplainedLatent, windows: Sequence[Example]) -> Float[np.ndarray, " example"]:
        """sum_i w_i cos(explanation of input i, window), of each window."""
        query = np.sum([read.weight * self.queries[read.text].astype(np.float64) for read in edges.inputs], axis=0)
        return self._cosines(query, windows)

    def own_grades(self, text: str, windows: Sequence[Example]) -> Float[np.ndarray, " example"]:
        """As the embedding scorer grades the latent's own explanation."""
        return self._cosines(self.queries[text].astype(np.float64), windows)

    def _cosines(self, query: Float[np.ndarray, " d_embedding"], windows: Sequence[Example]) -> Float[np.ndarray, " example"]:
        return np.array([round(float(np.dot(query, self.documents[window.text])), DECIMALS) for window in windows])


def summaries(rows: Sequence[Mapping[str, Any]], seed: int, purpose: str) -> dict[str, Any]:
    """What stands in `metrics.json` of one explainer: means over latents with their intervals, and how many had which status."""
    own = {row["latent"]: row for row in rows if not row["null"]}
    nulls = {row["latent"]: row["auroc"] for row in rows if row["null"]}
    scored = [row for row in own.values() if row.get("auroc") is not None]
    weights = np.array([1 / (row["inclusion_probability"] or 1.0) for row in scored])
    score, chance, theirs = (
        np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        for values in (
            [row["auroc"] for row in scored],
            [nulls.get(row["latent"]) for row in scored],
            [row.get("own_auroc") for row in scored],
        )
    )

    def rng(what: str) -> np.random.Generator:
        return rng_for(seed, f"edges {purpose} {what}")

    def mean(what: str, values: Float[np.ndarray, " latent"]) -> dict[str, Any]:
        there = ~np.isnan(values)
        return _short(summary(values[there], rng(what), weights=weights[there]))

    return {
        "n_asked": len(own),
        "statuses": dict(sorted(Counter(row["status"] for row in own.values()).items())),
        "score": mean("score", score),
        "null": mean("null", chance),
        "lift": _short(lift(score, chance, rng("lift"), weights)),
        "own": mean("own", theirs),
        "own_lead": _short(lift(theirs, score, rng("own lead"), weights)),
    }


def _short(found: Summary) -> dict[str, Any]:
    return {"mean": found.mean, "low": found.low, "high": found.high, "n": found.n}
