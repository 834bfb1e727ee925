"""What sampling reads from its neighbours, and what a contrast source is.

Tokens and activations come from other rooms through the two small protocols here, so that sampling knows neither.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64, UInt32, UInt64

from latentry.sampling.grid import Grid

if TYPE_CHECKING:
    from latentry.registry import ContrastConfig
    from latentry.sampling.wanted import Wanted


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


NO_SUPPLIER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Windows drawn for one latent, in drawn order."""

    window: Int64[np.ndarray, " window"]
    """The window of the grid that each is, or was cut around a token of."""
    starts: Int64[np.ndarray, " window"]
    """Flat position of each window's first token."""
    supplier: Int64[np.ndarray, " window"]
    """The latent in whose windows a contrast was found; `NO_SUPPLIER` where none."""
    part: Int64[np.ndarray, " window"]
    """Which part of a source that is made of several drew it; else 0."""

    @classmethod
    def none(cls) -> "Windows":
        """No windows."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(window=empty, starts=empty, supplier=empty, part=empty)

    def taken(self, indices: Int64[np.ndarray, " taken"] | slice) -> "Windows":
        """Those at the indices, in that order."""
        return Windows(window=self.window[indices], starts=self.starts[indices], supplier=self.supplier[indices], part=self.part[indices])

    def followed_by(self, other: "Windows") -> "Windows":
        """These, then the others."""
        if not self.starts.size:
            return other
        return Windows(
            window=np.concatenate([self.window, other.window]),
            starts=np.concatenate([self.starts, other.starts]),
            supplier=np.concatenate([self.supplier, other.supplier]),
            part=np.concatenate([self.part, other.part]),
        )


class ContrastSource(Protocol):
    """Where silent windows come from. A variant is a file with `build(config, inputs) -> ContrastSource`."""

    def draw(self, wanted: Sequence["Wanted"]) -> list[Windows]:
        """For each latent, all asked for one split, as many as are wanted, that `Wanted` lets through; fewer where there are no more.

        What a latent is given depends on no other.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceInputs:
    """What contrast sources may read when they are built."""

    seed: int
    grid: Grid
    token_set: Tokens
    store: Activations
    signed: bool
    """Whether each latent has a twin, as `windows.Firing.of` says."""
    firing_counts: Int64[np.ndarray, " latent"]
    decoder: Callable[[], Float32[np.ndarray, "latent d_in"]]
    """Reads the SAE's decoder rows."""
    embedded: Callable[[str, Sequence[str]], Float32[np.ndarray, "text d_embedding"]]
    """Unit vectors of texts by a model named under `models`."""
    contrasts: Mapping[str, "ContrastConfig"]
    """All of `examples.contrasts`."""
    source: Callable[[str], ContrastSource]
    """The source of another entry, for one that is made of several."""


def first_of_each(keys: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " distinct"]:
    """Indices, ascending, of the first of each key."""
    order = np.argsort(keys, kind="stable")
    first = np.ones(order.size, dtype=bool)
    np.not_equal(keys[order[1:]], keys[order[:-1]], out=first[1:])
    return np.sort(order[first])


def is_in(values: np.ndarray, ascending: np.ndarray) -> Bool[np.ndarray, " value"]:
    """Whether each value is among sorted ones, in time that does not grow with sorting them again."""
    if not ascending.size:
        return np.zeros(values.shape, dtype=bool)
    places = np.minimum(np.searchsorted(ascending, values), ascending.size - 1)
    return ascending[places] == values


def overlaps(starts: Int64[np.ndarray, " window"], others: Int64[np.ndarray, " other"], window: int) -> Bool[np.ndarray, " window"]:
    """Whether each window has a token in common with one of the others, all of them `window` tokens long."""
    ascending = np.sort(others)
    return np.searchsorted(ascending, starts - window, side="right") < np.searchsorted(ascending, starts + window)


def by_turns(table: Int64[np.ndarray, "list place"]) -> Int64[np.ndarray, " turn"]:
    """Indices into the flattened table, the first places of all lists, then the second ones, and so on; negative entries are skipped."""
    order = np.arange(table.size).reshape(table.shape).T.reshape(-1)
    return order[table.reshape(-1)[order] >= 0]


def in_turns(groups: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Indices that put the first of every group first, by group, then the second ones, and so on."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    turn = np.empty(groups.size, dtype=np.int64)
    turn[order] = np.arange(groups.size) - np.searchsorted(ordered, ordered)
    return np.lexsort((groups, turn))
