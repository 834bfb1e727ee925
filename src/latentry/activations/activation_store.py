"""The activations of one hookpoint as they lie on disk, and how to read them without holding them all."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from safetensors import safe_open
from torch import Tensor

from latentry.activations.positions import HOOKPOINT_FILE, kept_in, shards_in
from latentry.errors import ContractError
from latentry.subjects.hooks import Redrawn

_MAPPED_SHARDS = 64
"""Shards that stay mapped; a process may map some 65,000 files in all."""


class Recorded:
    """What a folder of `data/activations` says of its hookpoint, whether activations are stored there or not."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            ContractError: the folder holds no complete activations of this version.
        """
        self.kept: np.ndarray = kept_in(folder)
        """bool [context, position]: neither special nor an attention sink, nor in a context that was dropped."""
        self.folder = folder
        described: dict[str, Any] = json.loads((folder / HOOKPOINT_FILE).read_text(encoding="utf-8"))
        self.hookpoint: str = described["hookpoint"]
        self.module: str = described["module"]
        self.side: str = described["side"]
        self.subject: str = described["subject"]
        self.random: Redrawn | None = redrawn_in(described)
        """How the subject's weights were redrawn; None: they were not."""
        self.d_in: int = described["d_in"]
        self.d_written: int = 0
        """Columns that stand after these in each row, where what another hookpoint gives is read beside this one's."""
        self.dtype: torch.dtype = getattr(torch, described["dtype"])
        """Of what `rows` gives."""
        self.is_stored: bool = described["stored"]
        self.n_special: int = described["n_special"]
        self.n_attention_sinks: int = described["n_attention_sinks"]
        self.n_dropped_contexts: int = described["n_dropped_contexts"]

    @property
    def n_contexts(self) -> int:
        """Rows of tokens."""
        return self.kept.shape[0]

    @property
    def context(self) -> int:
        """Tokens in a row."""
        return self.kept.shape[1]


class ActivationStore(Recorded):
    """Reads the shards of one folder. Memory is what one call asks for: shards are mapped, not loaded."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._shards = shards_in(folder)
        self._mapped = lru_cache(_MAPPED_SHARDS)(_mapped)
        self._shard_contexts = len(self._mapped(self._shards[0])) // self.context

    def rows(self, contexts: Sequence[int] | np.ndarray) -> Float[Tensor, "token d_in"]:
        """The activations at the kept positions of the contexts given, in the order given."""
        chosen = np.asarray(contexts, dtype=np.int64)
        which, position = np.nonzero(self.kept[chosen])
        shard, place = np.divmod(chosen[which], self._shard_contexts)
        place = torch.from_numpy(place * self.context + position)
        found = torch.empty((len(place), self.d_in), dtype=self.dtype)
        ends = [*(np.flatnonzero(np.diff(shard)) + 1).tolist(), len(shard)]
        first = 0
        for last in ends if len(shard) else []:
            torch.index_select(self._mapped(self._shards[shard[first]]), 0, place[first:last], out=found[first:last])
            first = last
        return found


class ActivationPair(Recorded):
    """The activations of one hookpoint, and after them in each row those of another, of the same positions: what a transcoder needs."""

    def __init__(self, folder: Path, written: Path) -> None:
        """
        Raises:
            ContractError: a folder holds no complete activations of this version, or they are not of one run.
        """
        super().__init__(folder)
        self._parts = (ActivationStore(folder), ActivationStore(written))
        self.d_written = beside(self, self._parts[1])

    def rows(self, contexts: Sequence[int] | np.ndarray) -> Float[Tensor, "token d_in_and_written"]:
        """As `ActivationStore`, with the columns of both."""
        return torch.cat([part.rows(contexts) for part in self._parts], dim=-1)


def beside(read: Recorded, written: Recorded) -> int:
    """How many columns stand beside those of a hookpoint where another one's activations are read with them.

    Raises:
        ContractError: their positions are not the same.
    """
    if not np.array_equal(read.kept, written.kept) or read.random != written.random:
        raise ContractError(
            f"{written.folder}: other positions or another subject than in {read.folder}; both must be of one run: rerun `dvc repro activations`"
        )
    return written.d_in


def redrawn_in(described: Mapping[str, Any]) -> Redrawn | None:
    """What a `hookpoint.json` says of the subject's weights."""
    return Redrawn(**described["random"]) if "random" in described else None


def _mapped(shard: Path) -> Tensor:
    with safe_open(shard, framework="pt") as file:
        return file.get_tensor("activations")
