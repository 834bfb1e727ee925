"""Which of the windows that the held-out split left go to the explain split, one function for each way to choose them.

Every way gives indices of candidates by rank, so that a reader who takes the first n has what n alone would give.
"""

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Float32, Int, Int64

from latentry.sampling.splits import drawn_by_decile

TOP_EVERY = 5
"""In a mix, one window of so many is from the top, as in delphi's sampler of that name (Paulo et al. 2025)."""

Candidates = tuple[Float32[np.ndarray, " candidate"], Int[np.ndarray, " candidate"]]
"""Peak and decile of each candidate, in corpus order."""


def chosen_to_explain(candidates: Candidates, how: str, n: int, rng: np.random.Generator) -> Int64[np.ndarray, " chosen"]:
    """The candidates chosen, by rank; all of them where there are fewer than `n`."""
    return _WAYS[how](candidates, n, rng)


def _deciles(candidates: Candidates, n: int, rng: np.random.Generator) -> Int64[np.ndarray, " chosen"]:
    """Equally many of each decile."""
    return drawn_by_decile(candidates[1], n, rng)


def _top(candidates: Candidates, n: int, rng: np.random.Generator) -> Int64[np.ndarray, " chosen"]:  # noqa: ARG001
    """The strongest; of equal peaks the first in the corpus."""
    return np.argsort(-candidates[0], kind="stable")[:n]


def _random(candidates: Candidates, n: int, rng: np.random.Generator) -> Int64[np.ndarray, " chosen"]:
    """All equally likely."""
    return rng.permutation(candidates[0].size)[:n]


def _importance(candidates: Candidates, n: int, rng: np.random.Generator) -> Int64[np.ndarray, " chosen"]:
    """One after another with probability proportional to the squared peak (the race of Efraimidis and Spirakis 2006)."""
    return np.argsort(rng.standard_exponential(candidates[0].size) / candidates[0].astype(np.float64) ** 2, kind="stable")[:n]


def _mix(candidates: Candidates, n: int, rng: np.random.Generator) -> Int64[np.ndarray, " chosen"]:
    """Every fifth, from the first on, the strongest left; between them equally many of each decile of the others."""
    peak, decile = candidates
    top = np.argsort(-peak, kind="stable")[: -(-n // TOP_EVERY)]
    others = np.setdiff1d(np.arange(peak.size), top)
    even = others[drawn_by_decile(decile[others], n - top.size, rng)]
    turns = np.concatenate([np.arange(top.size) * TOP_EVERY, np.flatnonzero(np.arange(n) % TOP_EVERY)[: even.size]])
    return np.concatenate([top, even])[np.argsort(turns, kind="stable")]


_WAYS: Mapping[str, Callable[[Candidates, int, np.random.Generator], Int64[np.ndarray, " chosen"]]] = {
    "deciles": _deciles,
    "top": _top,
    "random": _random,
    "importance": _importance,
    "mix": _mix,
}
