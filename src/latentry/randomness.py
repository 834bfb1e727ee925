"""Randomness that depends on (seed, purpose, latent) and on nothing else.

Other latents, their order, batch sizes and the number of workers change no draw.
"""

import hashlib

import numpy as np


def rng_for(seed: int, purpose: str, latent: int | None = None) -> np.random.Generator:
    """A generator of its own for one purpose, and for one latent where the draw is per latent."""
    words = hashlib.sha256(f"{seed}\x1f{purpose}\x1f{'' if latent is None else latent}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(words[:16], "little")))
