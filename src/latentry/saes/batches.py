"""The activations in the order in which training sees them: the contexts anew in each epoch, their tokens mixed in a bounded buffer.

It draws and gives what sae-lens's `mixing_buffer` does; unlike that, it can be put down at any batch and taken up again.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentry.saes.base import Activations

READ_CONTEXTS = 64
"""Contexts read at once."""

_KEPT_SHARE = 0.5
"""Of the buffer, how much stays to be mixed with what comes."""


class Batches(Iterator[Tensor]):
    """Endless shuffled batches of equal size, in float32."""

    def __init__(
        self, activations: Activations, contexts: Int[np.ndarray, " context"], rng: np.random.Generator, *, batch: int, buffer: int
    ) -> None:
        self.activations, self.contexts = activations, contexts
        self._rng = rng
        self._batch, self._buffer = batch, buffer
        self._rows: Tensor | None = None
        """Read and not served, those to be served next first; None before the first is read."""
        self._n_to_serve = 0
        self._epoch, self._next_context = 0, 0
        self._order = rng.permutation(contexts)

    def __next__(self) -> Float[Tensor, "token d_in"]:
        rows = self._filled()
        self._n_to_serve -= 1
        self._rows = rows[self._batch :]
        return rows[: self._batch].float()

    def _filled(self) -> Tensor:
        """The buffer, when it has a batch to serve."""
        rows = self._rows
        while rows is None or not self._n_to_serve:
            new = self._read()
            rows = new if rows is None else torch.cat([rows.to(new.device), new])
            if len(rows) >= self._buffer:
                rows = rows[torch.randperm(len(rows))]
                self._n_to_serve = max(1, (len(rows) - int(self._buffer * _KEPT_SHARE)) // self._batch)
        return rows

    def _read(self) -> Tensor:
        if self._next_context >= len(self._order):
            self._next_epoch()
        first, self._next_context = self._next_context, self._next_context + READ_CONTEXTS
        return self.activations.rows(self._order[first : self._next_context])

    def _next_epoch(self) -> None:
        self._order, self._epoch, self._next_context = self._rng.permutation(self.contexts), self._epoch + 1, 0

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What `resume` needs: the buffer with torch's random state, and where in the contexts it is."""
        rows = {} if self._rows is None else {"rows": self._rows}
        numbers = {"n_to_serve": self._n_to_serve, "epoch": self._epoch, "next_context": self._next_context}
        return {**rows, "random_state": torch.get_rng_state()}, numbers

    def resume(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Go on where another one of the same arguments was when it told its state."""
        while self._epoch < numbers["epoch"]:
            self._next_epoch()
        self._rows, self._n_to_serve, self._next_context = tensors.get("rows"), numbers["n_to_serve"], numbers["next_context"]
        torch.set_rng_state(tensors["random_state"])
