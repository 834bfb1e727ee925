"""One batch on its way through a causal language model, on top of a beginning that was run before.

Choosing tokens is the client's. Always true: a beginning's keys and values are never changed by a batch.
"""

import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Tokens = tuple[int, ...]

_HEAD_ROWS = 1024
"""Rows of the vocabulary that are widened at once: few enough to stay in the processor's cache."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prefix:
    """A beginning of prompts with its keys and values, by layer."""

    tokens: Tokens
    layers: tuple[tuple["Tensor", "Tensor"], ...]


NOTHING = Prefix((), ())


class BatchRun:
    """A batch on its way through the model: rows end at the same column, with gaps between prefix and row."""

    def __init__(self, model: Any, prefix: Prefix, prompts: Sequence[Tokens]) -> None:
        import torch
        from transformers import DynamicCache

        start = len(prefix.tokens)
        rows = [prompt[start:] for prompt in prompts]
        width = max(map(len, rows))
        self._model, self._lengths = model, list(map(len, prompts))
        # Renamed within transformers 5.
        self._cache_argument = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        self._ids = torch.tensor([(0,) * (width - len(row)) + row for row in rows], device=model.device)
        own = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=model.device)
        self._mask = torch.cat([own.new_ones(len(rows), start), own], dim=1)
        self._positions = (start + own.cumsum(1) - 1).clamp(min=0)
        self._cache = DynamicCache([(k.expand(len(rows), -1, -1, -1), v.expand(len(rows), -1, -1, -1)) for k, v in prefix.layers] or None)

    def read(self) -> "Tensor":
        """Logits [row, vocabulary] after each whole row, in float32."""
        return self._logits(1)[:, -1]

    def read_at(self, places: Sequence[Sequence[int]]) -> "Tensor":
        """Logits [place, vocabulary] after the tokens at the given places of each prompt, prompt by prompt, computed in float32.

        Nothing else is read out: over a vocabulary of 150,000, the logits of every token would take more memory than the model.
        No place may lie in the prefix. Only for a batch as it was begun.
        """
        width = self._ids.shape[1]
        rows = [row for row, of_row in enumerate(places) for _ in of_row]
        columns = [place - length + width for length, of_row in zip(self._lengths, places, strict=True) for place in of_row]
        with float32_logits(self._model, (rows, columns)):
            return self._logits(width)

    def _logits(self, n_last: int) -> "Tensor":
        output = self._model(
            input_ids=self._ids,
            attention_mask=self._mask,
            position_ids=self._positions,
            use_cache=True,
            logits_to_keep=n_last,
            **{self._cache_argument: self._cache},
        )
        return output.logits.float()

    def step(self, tokens: Sequence[int]) -> "Tensor":
        """Logits after one further token in each row."""
        import torch

        self._ids = torch.tensor(tokens, device=self._mask.device)[:, None]
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], dim=1)
        self._positions = self._positions[:, -1:] + 1
        return self.read()

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows alone."""
        import torch

        index = torch.tensor(rows, device=self._mask.device, dtype=torch.long)
        self._mask, self._positions = self._mask[index], self._positions[index]
        self._cache.batch_select_indices(index)

    def layers(self) -> tuple[tuple["Tensor", "Tensor"], ...]:
        """Keys and values by layer, each [row, head, position, d_head]."""
        layers: Any = self._cache.layers
        return tuple((layer.keys, layer.values) for layer in layers)


@contextmanager
def float32_logits(model: Any, places: tuple[Sequence[int], Sequence[int]] | None = None) -> Iterator[None]:
    """Within the block, a bfloat16 model gives float32 logits; its weights stay as they are.

    In bfloat16 a logit of 20 moves in steps of 0.125, so that graded answers tie. With `places`, rows and columns of the
    batch, only these are read out: logits [place, vocabulary].
    """
    import torch

    head = model.get_output_embeddings()

    def forward(hidden: "Tensor") -> "Tensor":
        exact = (hidden if places is None else hidden[places]).float()
        logits = torch.cat([torch.nn.functional.linear(exact, rows.float()) for rows in head.weight.split(_HEAD_ROWS)], dim=-1)
        return logits if getattr(head, "bias", None) is None else logits + head.bias.float()

    head.forward = forward
    try:
        yield
    finally:
        del head.forward


def common_beginning(prompts: Sequence[Tokens]) -> Tokens:
    """What all prompts begin with; at most all but the last token of the shortest, so that each has one of its own."""
    first, last = min(prompts), max(prompts)
    longest = min(map(len, prompts)) - 1
    n_equal = next((i for i, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), longest)
    return first[: min(n_equal, longest)]
