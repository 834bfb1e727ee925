"""Activations through a SAE, segment by segment, into the latent-major store. Left-out positions are never encoded.

The rows of one encoder product depend on nothing but batch and shard sizes: a stream of activations, a store, and every
engine give the same bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt
from torch import Tensor

from latentry.activations.activation_store import ActivationPair, ActivationStore
from latentry.activations.opened import open_activations
from latentry.activations.stream import ActivationStream
from latentry.engines.base import Tick
from latentry.latents.latent_store import STORE_FILE, segment_name, write_segment
from latentry.registry import SaeConfig, variant
from latentry.runtime import device_of, memory_for
from latentry.saes.base import Activations, Sae
from latentry.store import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeJob:
    """A `Job` of the engines: each shard is a segment, what fires in `shard_contexts` contexts. Paths are absolute."""

    making: Work
    name: str
    """Of the SAE, under `saes`."""
    config: SaeConfig
    sae: Path
    activations: Path
    tokens: Path
    model: Path
    """The subject's folder; with tokens, what runs where activations are not stored."""
    subject_dtype: str
    sizes: Sequence[int]
    """Kept tokens of each segment."""
    dtype: str
    """Of stored activations of latents."""
    device: str
    threads: int
    batch_contexts: int
    batch_tokens: int
    block_latents: int
    shard_contexts: int

    @property
    def title(self) -> str:
        """What the progress bar says."""
        return f"latents {self.name}"

    @property
    def segments(self) -> list[str]:
        """Files of all segments, in the order of their contexts."""
        return [segment_name(number) for number in range(len(self.sizes))]

    def missing(self) -> list[int]:
        """Segments that were not committed yet; none once they were merged."""
        if self.making.has(STORE_FILE):
            return []
        return [number for number, name in enumerate(self.segments) if not self.making.has(name)]

    def size(self, shard: int) -> int:
        """Tokens that are encoded for a segment."""
        return self.sizes[shard]

    def load_sae(self) -> Sae:
        """The SAE, on the device."""
        return variant("saes", self.config.kind).build(self.config, self.name, self.sae, str(device_of(self.device)))

    def load_activations(self, written: Path | None = None) -> ActivationStore | ActivationPair | ActivationStream:
        """The activations, stored or running; beside them those that a transcoder rebuilds, where their folder is named."""
        return open_activations(
            self.activations,
            tokens=self.tokens,
            model=self.model,
            dtype=self.subject_dtype,
            device=device_of(self.device),
            batch_contexts=self.batch_contexts,
            written=written,
        )

    def open(self) -> Callable[[int, Tick], None]:
        """Load SAE and activations; returns what makes one segment."""
        sae, activations = self.load_sae(), self.load_activations()
        return lambda shard, tick: self._make(sae, activations, shard, tick)

    def _make(self, sae: Sae, activations: Activations, shard: int, tick: Tick) -> None:
        first = shard * self.shard_contexts
        contexts = range(first, min(first + self.shard_contexts, activations.n_contexts))
        batches = aligned_batches(activations, contexts, self.batch_contexts, self.batch_tokens)
        with memory_for("run.shard_contexts"):
            row, latent, activation = encoded(sae, batches, self.block_latents, tick)
            position = positions_of(activations.kept, contexts)[row]
            write_segment(self.making, segment_name(shard), position, latent, activation, sae.width, self.dtype)


def kept_by_segment(kept: Bool[np.ndarray, "context position"], shard_contexts: int) -> tuple[int, ...]:
    """How many tokens each segment encodes."""
    return tuple(int(kept[first : first + shard_contexts].sum()) for first in range(0, len(kept), shard_contexts))


def aligned_batches(
    activations: Activations, contexts: range, batch_contexts: int, batch_tokens: int
) -> Iterator[Float[Tensor, "token d_in"]]:
    """The kept rows of some contexts, so many tokens at a time (the last fewer), read as whole forward batches of the subject."""
    held: list[Tensor] = []
    for first in range(contexts.start, contexts.stop, batch_contexts):
        held.append(activations.rows(np.arange(first, min(first + batch_contexts, contexts.stop))))
        if sum(map(len, held)) >= batch_tokens:
            rows = torch.cat(held)
            whole = len(rows) - len(rows) % batch_tokens
            yield from rows[:whole].split(batch_tokens)
            held = [rows[whole:]]
    rest = torch.cat(held)
    if len(rest):
        yield rest


def encoded(sae: Sae, batches: Iterable[Float[Tensor, "token d_in"]], block_latents: int, tick: Tick) -> tuple[np.ndarray, ...]:
    """Row, latent (i32) and activation (f32) of every firing in some batches, by ascending row; rows count on through them."""
    parts: list[tuple[np.ndarray, ...]] = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32))]
    n_rows = 0
    for batch in batches:
        with torch.inference_mode(), memory_for("run.batch_tokens", "run.block_latents"):
            found = sae.firings(batch, block_latents)
            columns = found.token + n_rows, found.latent.int(), found.activation.float()
            parts.append(tuple(column.cpu().numpy() for column in columns))
        n_rows += len(batch)
        tick(len(batch))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def positions_of(kept: Bool[np.ndarray, "context position"], contexts: range) -> UInt[np.ndarray, " token"]:
    """Position of each kept row of some contexts: u32, or u64 where positions go past 2^32."""
    first = contexts.start * kept.shape[1]
    places = np.flatnonzero(kept[contexts.start : contexts.stop]) + first
    return places.astype(np.uint32 if kept.size <= 2**32 else np.uint64)
