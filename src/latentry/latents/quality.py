"""Figures of a whole SAE over everything that was encoded: what its latents' counts and tokens say together.

FVU and cross-entropy need activations or the subject, and stand in the SAE's `evaluation.json`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Int

from latentry.activations.activation_store import Recorded
from latentry.activations.positions import Counted

QUALITY_FILE = "quality.json"

SINGLE_TOKEN_FRACTION = 0.9
"""A latent is a single-token latent when one token accounts for at least this share of its firings: what it says then is that
token. Below, the remaining tenth of its firings is context that an explanation can be about."""
LOWEST_EDGE = -6
"""Power of ten at which the density histogram begins, where no frequency can be below; else the one below one firing."""


def quality(statistics: Path, positions: Counted | Recorded) -> dict[str, Any]:
    """What `quality.json` holds; `single_token_fraction` is None where no latent fires.

    Args:
        statistics: the committed `statistics.parquet`.
        positions: of the activations: those kept were encoded, and the others are counted.
    """
    described = pq.read_table(statistics, columns=["firing_count", "top_token_fractions"])
    counts, n_tokens = described["firing_count"].to_numpy().astype(np.int64), int(positions.kept.sum())
    n_alive = int(np.count_nonzero(counts))
    n_single = int(np.count_nonzero(_first_of(described["top_token_fractions"]) >= np.float32(SINGLE_TOKEN_FRACTION)))
    return {
        "n_tokens": n_tokens,
        "l0": int(counts.sum()) / n_tokens,
        "dead_fraction": (len(counts) - n_alive) / len(counts),
        "density_histogram": density_histogram(counts, n_tokens),
        "single_token_fraction": n_single / n_alive if n_alive else None,
        "n_special": positions.n_special,
        "n_attention_sinks": positions.n_attention_sinks,
        "n_dropped_contexts": positions.n_dropped_contexts,
    }


def density_histogram(counts: Int[np.ndarray, " latent"], n_tokens: int) -> dict[str, Any]:
    """Latents by firing frequency, in bins between powers of ten; `n_dead` apart."""
    edges = list(range(min(LOWEST_EDGE, int(np.floor(-np.log10(n_tokens)))), 1))
    n_latents, _ = np.histogram(np.log10(counts[counts > 0] / n_tokens), bins=np.array(edges, dtype=float))
    return {"log10_edges": edges, "n_latents": n_latents.tolist(), "n_dead": int(np.sum(counts == 0))}


def _first_of(lists: pa.ChunkedArray) -> np.ndarray:
    """The first entry of each list that is not empty."""
    firsts = [np.empty(0, dtype=np.float32)]
    for chunk in lists.chunks:
        offsets = chunk.offsets.to_numpy()
        firsts.append(chunk.values.to_numpy()[offsets[:-1][np.diff(offsets) > 0]])
    return np.concatenate(firsts)
