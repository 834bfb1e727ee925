"""Keys for the text of any window: equal texts have equal keys, without the texts being made.

A window's key is a polynomial hash of its characters, from the difference of two running sums over its document
(Karp and Rabin 1987): two numbers a token, and any window's key costs four look-ups.
"""

import numpy as np
from jaxtyping import Int64, UInt64

from latentry.sampling.base import Tokens

_BASE = 0x9E3779B97F4A7C15
"""Odd, so that it has an inverse modulo 2^64."""


class TextKeys:
    """Hashes of the characters between any two tokens of a document."""

    def __init__(self, token_set: Tokens) -> None:
        self._start = token_set.text_start.reshape(-1)
        longest = max((len(text) for text in token_set.texts), default=0)
        powers = _powers(_BASE, longest)
        self._inverse_powers = _powers(pow(_BASE, -1, 2**64), longest)
        self._before = np.zeros(self._start.size, dtype=np.uint64)
        self._after = np.zeros(self._start.size, dtype=np.uint64)
        end = token_set.text_end.reshape(-1)
        for text, places in _places_by_document(token_set):
            sums = _running_sums(text, powers)
            self._before[places] = sums[self._start[places]]
            self._after[places] = sums[end[places]]

    def at(self, starts: Int64[np.ndarray, "*n"], window: int) -> Int64[np.ndarray, "*n"]:
        """The keys of windows of so many tokens, each within one document's span."""
        difference = self._after[starts + window - 1] - self._before[starts]
        return (difference * self._inverse_powers[self._start[starts]]).view(np.int64)


def _places_by_document(token_set: Tokens) -> list[tuple[str, Int64[np.ndarray, " place"]]]:
    document = token_set.document.reshape(-1)
    order = np.argsort(document, kind="stable")
    bounds = np.searchsorted(document[order], np.arange(len(token_set.texts) + 1))
    return [(text, order[first:last]) for text, first, last in zip(token_set.texts, bounds, bounds[1:], strict=False)]


def _powers(base: int, n: int) -> UInt64[np.ndarray, " n+1"]:
    powers = np.full(n + 1, base, dtype=np.uint64)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)


def _running_sums(text: str, powers: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " character+1"]:
    characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64) + np.uint64(1)
    # Spread over all 64 bits, so that neighbouring characters of an alphabet share no low bits.
    mixed = characters * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
    sums = np.zeros(characters.size + 1, dtype=np.uint64)
    np.cumsum(mixed * powers[: characters.size], dtype=np.uint64, out=sums[1:])
    return sums
