"""The activations of one hookpoint, or of a pair, made anew by running the subject, for folders that store only which positions count."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from latentry.activations.activation_store import Recorded, beside
from latentry.corpora.token_set import TokenSet
from latentry.runtime import memory_for
from latentry.subjects.causal_lm import Subject


class ActivationStream(Recorded):
    """Runs the subject to its hookpoint, `batch_contexts` contexts at a time, each time it is asked; with `written` the activations of
    that hookpoint stand after those in each row, from the same pass.

    A row depends on its batch by rounding. Where the batches asked for are those of the pass that counts positions (a range that
    begins at a multiple of `batch_contexts`), the rows are bit for bit what that pass would have stored.
    """

    def __init__(self, folder: Path, subject: Subject, token_set: TokenSet, batch_contexts: int, written: Recorded | None = None) -> None:
        super().__init__(folder)
        subject.check_context(self.context)
        self._points = [self.hookpoint, *([] if written is None else [written.hookpoint])]
        self.d_written = 0 if written is None else beside(self, written)
        self._subject, self._token_set, self._batch_contexts = subject, token_set, batch_contexts

    def rows(self, contexts: Sequence[int] | np.ndarray) -> Float[Tensor, "token d_in_and_written"]:
        """The activations at the kept positions of the contexts given, in the order given, on the CPU in the stated dtype."""
        chosen = np.asarray(contexts, dtype=np.int64)
        found = torch.empty((int(self.kept[chosen].sum()), self.d_in + self.d_written), dtype=self.dtype)
        filled = 0
        with memory_for("run.batch_contexts"):
            for first in range(0, len(chosen), self._batch_contexts):
                batch = chosen[first : first + self._batch_contexts]
                kept = torch.from_numpy(self.kept[batch])
                activations = self._subject.activations(self._tokens(batch))
                rows = [activations[point][kept.to(activations[point].device)] for point in self._points]
                found[filled : filled + len(rows[0])] = torch.cat(rows, dim=-1)
                filled += len(rows[0])
        return found

    def _tokens(self, batch: np.ndarray) -> np.ndarray:
        first, last = int(batch[0]), int(batch[-1]) + 1
        if np.array_equal(batch, np.arange(first, last)):
            return self._token_set.rows(first, last)
        return np.concatenate([self._token_set.rows(context, context + 1) for context in batch.tolist()])
