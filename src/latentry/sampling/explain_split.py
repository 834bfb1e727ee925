"""Which of the windows that the held-out split left go to the explain split, one function for each way to choose them.

Every way gives places among the candidates by rank, so that a reader who takes the first n has what n alone would give.
"""

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Int64

from latentry.sampling.deciles import drawn_by_decile
from latentry.sampling.windows import ActivatingWindows

_Candidates = Int64[np.ndarray, " candidate"]

TOP_EVERY = 5
"""In a mix, one window of so many is from the top, as in delphi's sampler of that name (Paulo et al. 2025)."""


def chosen_to_explain(
    found: ActivatingWindows, candidates: Int64[np.ndarray, " candidate"], how: str, n: int, rng: np.random.Generator
) -> Int64[np.ndarray, " chosen"]:
    """Those of the candidates, which are indices into the windows in corpus order, that are chosen, by rank.

    All of them where there are fewer than `n`.
    """
    return candidates[_WAYS[how](found, candidates, n, rng)]


def _deciles(found: ActivatingWindows, candidates: _Candidates, n: int, rng: np.random.Generator) -> Int64[np.ndarray, " chosen"]:
    """Equally many of each decile."""
    return drawn_by_decile(found.decile[candidates], n, rng)


def _top(found: ActivatingWindows, candidates: _Candidates, n: int, rng: np.random.Generator) -> Int64[np.ndarray, " chosen"]:  # noqa: ARG001
    """The strongest; of equal peaks the first in the corpus."""
    return np.argsort(-found.peak[candidates], kind="stable")[:n]


def _random(found: ActivatingWindows, candidates: _Candidates, n: int, rng: np.random.Generator) -> Int64[np.ndarray, " chosen"]:  # noqa: ARG001
    """All equally likely."""
    return rng.permutation(candidates.size)[:n]


def _importance(found: ActivatingWindows, candidates: _Candidates, n: int, rng: np.random.Generator) -> Int64[np.ndarray, " chosen"]:
    """One after another with probability proportional to the squared peak (the race of Efraimidis and Spirakis 2006)."""
    return np.argsort(rng.standard_exponential(candidates.size) / found.peak[candidates].astype(np.float64) ** 2, kind="stable")[:n]


def _mix(found: ActivatingWindows, candidates: _Candidates, n: int, rng: np.random.Generator) -> Int64[np.ndarray, " chosen"]:
    """Every fifth, from the first on, the strongest left; between them equally many of each decile of the others."""
    peak, decile = found.peak[candidates], found.decile[candidates]
    top = np.argsort(-peak, kind="stable")[: -(-n // TOP_EVERY)]
    others = np.setdiff1d(np.arange(peak.size), top)
    even = others[drawn_by_decile(decile[others], n - top.size, rng)]
    turns = np.concatenate([np.arange(top.size) * TOP_EVERY, np.flatnonzero(np.arange(n) % TOP_EVERY)[: even.size]])
    return np.concatenate([top, even])[np.argsort(turns, kind="stable")]


_WAYS: Mapping[str, Callable[[ActivatingWindows, _Candidates, int, np.random.Generator], Int64[np.ndarray, " chosen"]]] = {
    "deciles": _deciles,
    "top": _top,
    "random": _random,
    "importance": _importance,
    "mix": _mix,
}
