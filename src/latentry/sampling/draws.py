"""Random numbers that follow from a key and a counter alone: those of many latents at once, without a generator for each.

A key is one of (seed, purpose, latent); the numbers are the finaliser of splitmix64 (Steele, Lea, Flood 2014) of key and counter.
"""

import numpy as np
from jaxtyping import Float64, Int64, UInt64

from latentry.randomness import rng_for


def keys_of(seed: int, purpose: str, latents: Int64[np.ndarray, " latent"]) -> UInt64[np.ndarray, " latent"]:
    """A key for each latent, whatever the others."""
    return _mixed(np.uint64(rng_for(seed, purpose).integers(2**63)), latents)


def uniform(keys: UInt64[np.ndarray, "*key"] | np.uint64, counters: Int64[np.ndarray, "*counter"]) -> Float64[np.ndarray, "*both"]:
    """A number in [0, 1) for each key and counter, these broadcast against each other."""
    return (_mixed(keys, counters) >> np.uint64(11)) * 2.0**-53


def generator_of(key: np.uint64) -> np.random.Generator:
    """Of one key, for draws that are not made at once for many latents."""
    return np.random.Generator(np.random.PCG64(int(key)))


def _mixed(keys: UInt64[np.ndarray, "*key"] | np.uint64, counters: Int64[np.ndarray, "*counter"]) -> UInt64[np.ndarray, "*both"]:
    x = (counters.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + keys
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
