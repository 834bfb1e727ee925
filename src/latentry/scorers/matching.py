"""Completes a pairing by augmenting paths, where swaps of two left some without a partner.

Always true: who had a partner keeps one, though perhaps another; where no more can be paired, nothing changes.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Int

from latentry.randomness import rng_for

FREE = -1
Mask: TypeAlias = Bool[np.ndarray, " latent"]


def completed(partner: dict[int, int], n: int, allowed: Callable[[int], Mask], seed: int) -> dict[int, int]:
    """The largest pairing of the numbers below n that comes of a smaller one; no two have the same partner.

    Args:
        allowed: which partners one may have.
    """
    partner = dict(partner)
    owner = np.full(n, FREE)
    owner[list(partner.values())] = list(partner)
    dead = np.zeros(n, bool)  # partners from which no search reached a free one; none ever will
    for root in [int(one) for one in rng_for(seed, "null matched").permutation(n) if int(one) not in partner]:
        seen, came_from, end = _search(root, owner, dead, allowed)
        if end == FREE:
            dead = seen
            continue
        while end != FREE:
            one = came_from[end]
            before = partner.get(one, FREE)
            partner[one], owner[end] = end, one
            end = before
    return partner


def _search(root: int, owner: Int[np.ndarray, " latent"], dead: Mask, allowed: Callable[[int], Mask]) -> tuple[Mask, dict[int, int], int]:
    """The partners reached, from whom, and a free one among them (or FREE)."""
    seen, came_from, waiting = dead.copy(), {}, [root]
    for one in waiting:
        reached = np.flatnonzero(allowed(one) & ~seen)
        seen[reached] = True
        came_from |= dict.fromkeys(reached.tolist(), one)
        free = reached[owner[reached] == FREE]
        if len(free):
            return seen, came_from, int(free[0])
        waiting += owner[reached].tolist()
    return seen, came_from, FREE
