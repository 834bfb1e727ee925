"""Same-document contrasts: silent windows of the documents of the split's activating ones, so that topic alone does not tell."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from jaxtyping import Int64

from latentry.registry import ContrastConfig
from latentry.sampling.base import SourceInputs, Windows, in_turns
from latentry.sampling.grid import Grid
from latentry.sampling.wanted import Wanted


class Config(ContrastConfig):
    """Nothing to choose: every document gives equally many, at random among its silent windows."""


class SameDocument:
    """Silent windows by turns from each document, in the order of the activating windows' ranks."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def draw(self, wanted: Sequence[Wanted]) -> list[Windows]:
        """As `ContrastSource.draw`."""
        return [self._of(each) for each in wanted]

    def _of(self, wanted: Wanted) -> Windows:
        generator = wanted.generator()
        documents = self._grid.document[wanted.activating.window]
        _, first = np.unique(documents, return_index=True)
        ranked = documents[np.sort(first)]
        lists = [generator.permutation(self._windows(document)) for document in ranked.tolist()]
        drawn = wanted.extended(Windows.none(), np.concatenate([np.zeros(0, dtype=np.int64), *lists]))
        found_in = self._grid.document[drawn.window]
        return drawn.taken(in_turns((found_in[:, None] == ranked).argmax(axis=1))[: wanted.n])

    @cached_property
    def _by_document(self) -> tuple[Int64[np.ndarray, " window"], Int64[np.ndarray, " document+1"]]:
        """Windows in the order of their documents, and where each document's begin."""
        order = np.argsort(self._grid.document, kind="stable")
        n_documents = int(self._grid.document.max(initial=-1)) + 1
        return order, np.searchsorted(self._grid.document[order], np.arange(n_documents + 1))

    def _windows(self, document: int) -> Int64[np.ndarray, " window"]:
        order, begins = self._by_document
        return order[begins[document] : begins[document + 1]]


def build(config: Config, inputs: SourceInputs) -> SameDocument:  # noqa: ARG001
    """The source."""
    return SameDocument(inputs.grid)
