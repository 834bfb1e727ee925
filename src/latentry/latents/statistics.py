"""A row of statistics per latent, in blocks of latents: counts, strengths, the tokens it fires at and those it promotes."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from latentry.corpora.token_set import TokenSet
from latentry.latents.latent_store import LatentStore, token_counts

BLOCK = 1024
"""Latents worked on together."""


def statistics_rows(
    store: LatentStore, token_set: TokenSet, n_kept: int, names: np.ndarray, promoted: Mapping[str, np.ndarray] | None, n_top: int
) -> Iterator[dict[str, Any]]:
    """One row of `statistics.parquet` per latent.

    Args:
        n_kept: positions that were encoded: what firing frequencies are fractions of.
        names: text of each token id.
        promoted: token ids [latent, n] that the decoder row pushes up (`promoted`) and down (`suppressed`), strongest
            first; None where the SAE does not write to the residual stream.
    """
    tokens = token_set.tokens.reshape(-1).astype(np.int64)
    for first in range(0, store.width, BLOCK):
        latents = range(first, min(first + BLOCK, store.width))
        counts = token_counts(store, latents, tokens, len(names)).tocsr()
        for place, latent in enumerate(latents):
            row = slice(counts.indptr[place], counts.indptr[place + 1])
            yield {
                "latent": latent,
                **_strengths(store.read(latent)[1], n_kept),
                **_top_tokens(counts.indices[row], counts.data[row], names, n_top),
                "promoted_tokens": _named(promoted, "promoted", latent, names),
                "suppressed_tokens": _named(promoted, "suppressed", latent, names),
            }


def _strengths(activation: np.ndarray, n_kept: int) -> dict[str, Any]:
    count = len(activation)
    if not count:
        return {
            "firing_count": 0,
            "firing_frequency": 0.0,
            "peak": 0.0,
            "mean": 0.0,
            "median": 0.0,
            "quantile_90": 0.0,
            "quantile_99": 0.0,
            "dead": True,
        }
    median, ninety, ninety_nine = np.quantile(activation, [0.5, 0.9, 0.99])
    return {
        "firing_count": count,
        "firing_frequency": count / n_kept,
        "peak": activation.max(),
        "mean": activation.mean(dtype=np.float64),
        "median": median,
        "quantile_90": ninety,
        "quantile_99": ninety_nine,
        "dead": False,
    }


def _top_tokens(ids: np.ndarray, counts: np.ndarray, names: np.ndarray, n_top: int) -> dict[str, Any]:
    """The commonest tokens it fires at, and the share of its firings at each."""
    order = np.lexsort((ids, -counts))[:n_top]
    total = counts.sum()
    return {"top_tokens": names[ids[order]].tolist(), "top_token_fractions": (counts[order] / total).tolist() if total else []}


def _named(promoted: Mapping[str, np.ndarray] | None, key: str, latent: int, names: np.ndarray) -> list[str]:
    return [] if promoted is None else names[promoted[key][latent]].tolist()
