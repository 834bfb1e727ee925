"""What sampling reads from its neighbours, and what a contrast source is.

Tokens and activations come from other rooms through the two small protocols here, so that sampling knows neither.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64, UInt32, UInt64

from latentry.sampling.grid import Grid


class Tokens(Protocol):
    """The corpus as rows of tokens, with the text they came from."""

    @property
    def tokens(self) -> UInt32[np.ndarray, "context position"]:
        """Token ids."""
        ...

    @property
    def document(self) -> Int32[np.ndarray, "context position"]:
        """Document of each position; -1 where none."""
        ...

    @property
    def text_start(self) -> UInt32[np.ndarray, "context position"]:
        """First character of each token in its document's text."""
        ...

    @property
    def text_end(self) -> UInt32[np.ndarray, "context position"]:
        """One past the last character of each token in its document's text."""
        ...

    @property
    def special(self) -> Bool[np.ndarray, "context position"]:
        """Tokens such as BOS, EOS, PAD and separators."""
        ...

    @property
    def texts(self) -> list[str]:
        """The documents' texts, by document id."""
        ...


class Activations(Protocol):
    """Every activation of every latent of one SAE."""

    @property
    def width(self) -> int:
        """Number of latents."""
        ...

    def read(self, latent: int) -> tuple[UInt64[np.ndarray, " n"], Float32[np.ndarray, " n"]]:
        """Flat positions where the latent fires, ascending, and its activations there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Contrasts wanted for one latent and one split."""

    latent: int
    n: int
    grid: Grid
    activating: Int64[np.ndarray, " window"]
    """All grid windows in which the latent fires, ascending; every other window is silent."""
    refused_texts: Int64[np.ndarray, " text"]
    """Ids of texts that no contrast may have, ascending: those of the activating windows, and of contrasts of the other split."""
    allowed: Callable[[Int64[np.ndarray, " candidate"]], Bool[np.ndarray, " candidate"]]
    """Whether each window lies in the documents of this split."""
    rng: np.random.Generator


class ContrastSource(Protocol):
    """Where silent windows come from. A variant is a file with `build(config) -> ContrastSource`."""

    def draw(self, wanted: Wanted) -> Int64[np.ndarray, " drawn"]:
        """Silent allowed windows of distinct, not refused text, in drawn order; fewer than `n` where there are no more."""
        ...


def is_in(values: np.ndarray, ascending: np.ndarray) -> Bool[np.ndarray, " value"]:
    """Whether each value is among sorted ones, in time that does not grow with sorting them again."""
    if not ascending.size:
        return np.zeros(values.shape, dtype=bool)
    places = np.minimum(np.searchsorted(ascending, values), ascending.size - 1)
    return ascending[places] == values
