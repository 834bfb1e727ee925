"""Pairs of latents of two SAEs that are active at one token, with how the one acts on the other: what the rest of this room sums and describes."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivePairs:
    """Every pair of latents active at a token, by token, then output latent, then input latent."""

    token: Int64[np.ndarray, " pair"]
    out: Int64[np.ndarray, " pair"]
    input: Int64[np.ndarray, " pair"]
    value: Float32[np.ndarray, " pair"]
    """By how much the output latent grows with the input latent."""
