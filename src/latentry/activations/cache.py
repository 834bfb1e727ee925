"""One pass of the subject over the tokens, for all its hookpoints at once, as shards that an engine makes.

A shard is committed in every hookpoint's folder. What the folder says of itself besides is written by `finish`, once all are there.
A subject whose weights are redrawn is another subject and has a pass of its own; which positions count is one for all of them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import save_file

from latentry.activations.held import Held, drop_contexts, refuse
from latentry.activations.positions import (
    HOOKPOINT_FILE,
    POSITIONS_FILE,
    Counted,
    counted_positions,
    kept_in,
    median_norm,
    read_kept,
    shard_name,
    shards_in,
)
from latentry.corpora.token_set import TokenSet
from latentry.engines.base import Tick
from latentry.runtime import device_of, memory_for
from latentry.store import Work
from latentry.subjects.causal_lm import Subject, by_subject, load_subject
from latentry.subjects.hooks import Hookpoint

_LEFT_OUT = ("n_special", "n_attention_sinks", "n_dropped_contexts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caching:
    """An engine's job: the forward pass over every context, up to the deepest hookpoint. `passes` makes the jobs that run."""

    making: Mapping[str, Work]
    """Folders in the making, by hookpoint; those that are finished are not among them."""
    hookpoints: tuple[Hookpoint, ...]
    """All of the run, for what is left out at one is left out at all."""
    model: Path
    tokens: Path
    n_contexts: int
    context: int
    subject_dtype: str
    dtype: str
    """Of the activations as they are kept or, when nothing is, as they are given."""
    store: bool
    non_finite: Literal["stop", "drop"]
    shard_contexts: int
    batch_contexts: int
    device: str
    threads: int

    @property
    def title(self) -> str:
        """Of the progress bar."""
        random = self.hookpoints[0].random
        return "activations" if random is None else f"activations, subject redrawn by seed {random.seed}"

    def passes(self) -> "list[Caching]":
        """A job for each subject that differs in its weights, with that subject's hookpoints."""
        groups = by_subject(self.hookpoints)
        return [replace(self, hookpoints=group, making=self._making_of(group)) for group in groups]

    def _making_of(self, hookpoints: Sequence[Hookpoint]) -> dict[str, Work]:
        return {point.name: self.making[point.name] for point in hookpoints if point.name in self.making}

    def missing(self) -> Sequence[int]:
        """Shards that a folder lacks; none where the positions were counted, which is what they were for."""
        if all(work.has(POSITIONS_FILE) for work in self.making.values()):
            return ()
        numbers = range(-(-self.n_contexts // self.shard_contexts))
        return [number for number in numbers if not all(work.has(shard_name(number)) for work in self.making.values())]

    def size(self, shard: int) -> int:
        """Tokens in a shard."""
        return len(self._contexts(shard)) * self.context

    def open(self) -> Callable[[int, Tick], None]:
        """Load the subject.

        Raises:
            HookpointError: a hookpoint is not in the subject, or gives no activations.
            ParamsError: the rows are longer than the subject has positions for.
        """
        subject = load_subject(self.model, self.hookpoints, dtype=self.subject_dtype, device=device_of(self.device))
        subject.check_context(self.context)
        return partial(self.make, subject, TokenSet(self.tokens))

    def make(self, subject: Subject, token_set: TokenSet, shard: int, tick: Tick) -> None:
        """Run one shard's contexts and commit it in each folder that lacks it.

        Raises:
            NumericsError: activations that are not finite, or do not fit the stated dtype.
        """
        with memory_for("run.batch_contexts", "run.shard_contexts"):
            held = self._run(subject, token_set, self._contexts(shard), tick)
        refuse(held, self._contexts(shard).start, drop=self.non_finite == "drop")
        drop_contexts(held.values())
        for name, work in self.making.items():
            if not work.has(HOOKPOINT_FILE):
                work.write_json(HOOKPOINT_FILE, self._described(subject, name, held[name].d_in))
            if not work.has(shard_name(shard)):
                tensors = held[name].tensors()
                n_bytes = sum(tensor.nbytes for tensor in tensors.values())
                work.write_file(shard_name(shard), lambda path, tensors=tensors: save_file(tensors, path), n_bytes)

    def _contexts(self, shard: int) -> range:
        return range(shard * self.shard_contexts, min((shard + 1) * self.shard_contexts, self.n_contexts))

    def _run(self, subject: Subject, token_set: TokenSet, contexts: range, tick: Tick) -> dict[str, Held]:
        """By hookpoint, in the order in which the pass reaches them."""
        held: dict[str, Held] = {}
        rows = token_set.rows(contexts.start, contexts.stop)
        for first in range(0, len(rows), self.batch_contexts):
            batch = rows[first : first + self.batch_contexts]
            for name, activations in subject.activations(batch).items():
                if name not in held:
                    held[name] = Held(name, rows.shape, activations.shape[-1], getattr(torch, self.dtype), store=self.store)
                held[name].put(first, activations)
            tick(batch.size)
        return held

    def _described(self, subject: Subject, name: str, d_in: int) -> dict[str, object]:
        point = subject.hookpoints[name]
        described = {"hookpoint": name, "module": point.module, "side": point.side, "d_in": d_in, "dtype": self.dtype, "stored": self.store}
        described |= {"subject": self.model.name, "subject_dtype": self.subject_dtype}
        described |= {"random": asdict(point.random)} if point.random else {}
        return described | {"attention": subject.attention_implementation, "quantisation": subject.quantisation}


def finish(job: Caching, finished: Sequence[Path], special: np.ndarray, max_norm_multiple: float) -> None:
    """Write which positions count and what was left out in each folder, then delete the shards of a run that stores nothing.

    Args:
        finished: hookpoints' folders of the same run that are complete already; what counts there counts here.
        special: bool [context, position].

    Raises:
        NumericsError: no position is left.
    """
    if not all(work.has(POSITIONS_FILE) for work in job.making.values()):
        _count(job, finished, special, max_norm_multiple)
    for work in job.making.values():
        kept, described = read_kept(work.folder), _described_in(work.folder)
        work.counts.update(n_positions=kept.size, n_kept=int(kept.sum()), **{name: described[name] for name in _LEFT_OUT})
        for shard in () if job.store else shards_in(work.folder):
            shard.unlink()


def _count(job: Caching, finished: Sequence[Path], special: np.ndarray, max_norm_multiple: float) -> None:
    medians = {work.folder: median_norm(work.folder, special) for work in job.making.values()}
    if finished:
        kept, before = kept_in(finished[0]), _described_in(finished[0])
        counted = Counted(kept=kept, **{name: before[name] for name in _LEFT_OUT})
    else:
        counted = counted_positions(medians, special, max_norm_multiple)
    left_out = {name: getattr(counted, name) for name in _LEFT_OUT}
    for work in job.making.values():
        work.write_json(HOOKPOINT_FILE, _described_in(work.folder) | left_out | {"median_norm": medians[work.folder]})
    for work in job.making.values():
        work.write_arrays(POSITIONS_FILE, {"kept": counted.kept.view(np.uint8)})


def _described_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / HOOKPOINT_FILE).read_text(encoding="utf-8"))
