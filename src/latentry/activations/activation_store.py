"""The activations of one hookpoint as they lie on disk, and how to read them without holding them all."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import load_file
from torch import Tensor

from latentry.contracts import ACTIVATIONS
from latentry.store import read_manifest


@dataclass(frozen=True, slots=True)
class _Shard:
    path: Path
    first_context: int
    n_contexts: int


class ActivationStore:
    """Reads one folder of `data/activations`. Memory is what one call asks for."""

    def __init__(self, folder: Path) -> None:
        manifest = read_manifest(folder, ACTIVATIONS)
        described = json.loads((folder / "hookpoint.json").read_text(encoding="utf-8"))
        self.folder = folder
        self.d_in: int = described["d_in"]
        self.module: str = described["module"]
        self.side: str = described["side"]
        self.subject: str = described["subject"]
        self.kept: np.ndarray = load_file(folder / "positions.safetensors")["kept"].astype(bool)
        """[context, position]: neither special nor an attention sink."""
        per_shard = int(manifest.counts["shard_contexts"])
        self._shards = [
            _Shard(folder / f"shard-{number:05d}.safetensors", first, min(per_shard, self.n_contexts - first))
            for number, first in enumerate(range(0, self.n_contexts, per_shard))
        ]
        self._per_shard = per_shard

    @property
    def n_contexts(self) -> int:
        """Rows of tokens."""
        return self.kept.shape[0]

    @property
    def context(self) -> int:
        """Tokens in a row."""
        return self.kept.shape[1]

    def whole(self, first: int, last: int) -> Tensor:
        """Every position of contexts first..last (exclusive), [context, position, d_in], in the stored dtype."""
        parts = []
        for shard in self._shards:
            start, end = max(first, shard.first_context), min(last, shard.first_context + shard.n_contexts)
            if start < end:
                with safe_open(shard.path, framework="pt") as file:
                    rows = slice((start - shard.first_context) * self.context, (end - shard.first_context) * self.context)
                    parts.append(file.get_slice("activations")[rows])
        return torch.cat(parts).view(last - first, self.context, self.d_in)

    def rows(self, contexts: Sequence[int] | np.ndarray) -> Tensor:
        """The kept rows of the contexts given, in the order given, [token, d_in]."""
        picked = [self.whole(int(context), int(context) + 1)[0][torch.from_numpy(self.kept[int(context)])] for context in contexts]
        return torch.cat(picked) if picked else torch.empty((0, self.d_in))

    def batches(self, contexts: Sequence[int] | np.ndarray, batch_contexts: int) -> Iterator[Tensor]:
        """`rows` of a few contexts at a time."""
        for first in range(0, len(contexts), batch_contexts):
            yield self.rows(contexts[first : first + batch_contexts])
