"""The work of the `jacobian` stage: contexts chosen, read part by part, committed part by part, and joined.

A part is a fixed range of the contexts chosen, so a restart knows what it lacks; sums are exact, so the parts change no byte.
"""

import json
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from tqdm import tqdm

from latentry.edges.active import active_pairs
from latentry.edges.between import Between, mlp_fvu
from latentry.edges.figures import added_rows, context_row
from latentry.edges.sums import added, edges_table, even, merged, sums_of
from latentry.errors import ParamsError
from latentry.randomness import rng_for
from latentry.runtime import memory_for
from latentry.store import ROWS_PER_GROUP, Work

_PART_PAIRS = 8_000_000
"""Pairs of active latents in a part, as the SAEs' L0 foretells: what a kill costs, and what is held at once."""
_TOKEN_PAIRS = 2_000_000
"""Pairs of active latents read at once, likewise: some 200 MB."""
_CHECKED_CONTEXTS = 4
"""Contexts on which the MLP is checked to lie between the hookpoints."""


class Rows(Protocol):
    """Activations of both hookpoints, side by side."""

    def rows(self, contexts: Int[np.ndarray, " context"]) -> Float[Tensor, "token d_in_and_written"]:
        """The kept positions of those contexts, in the order given."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JacobianJob:
    """One Jacobian to be read."""

    making: Work
    name: str
    between: Between
    read: Rows
    contexts: Int[np.ndarray, " context"]
    """Ascending."""
    pairs_per_token: float
    """Pairs of active latents expected at a token."""
    context: int
    """Tokens in a context."""
    block: int
    """Latents encoded at once."""

    @property
    def parts(self) -> list[Int[np.ndarray, " context"]]:
        """The contexts of each part."""
        size = max(1, int(_PART_PAIRS / max(1.0, self.pairs_per_token * self.context)))
        return [self.contexts[first : first + size] for first in range(0, len(self.contexts), size)]


def chosen_contexts(
    held_out: Bool[np.ndarray, " context"], kept: Bool[np.ndarray, "context position"], tokens: int | None, seed: int, path: str
) -> Int[np.ndarray, " context"]:
    """Which of the contexts kept from training are read, ascending: seeded ones until their kept positions are so many; None: all.

    Raises:
        ParamsError: they have fewer.
    """
    sizes = kept.sum(axis=1)
    there = np.flatnonzero(held_out & (sizes > 0))
    if tokens is None:
        return there
    order = rng_for(seed, "jacobian contexts").permutation(there)
    totals = np.cumsum(sizes[order])
    if not len(totals) or totals[-1] < tokens:
        most = int(totals[-1]) if len(totals) else 0
        raise ParamsError(
            "params.yaml", [f"{path}: is {tokens}; the contexts kept from training have {most}: lower it, or raise `evaluation.contexts`"]
        )
    return np.sort(order[: int(np.searchsorted(totals, tokens)) + 1])


@torch.inference_mode()
def checked_fvu(job: JacobianJob) -> float:
    """How much of what the output's hookpoint holds the MLP does not make of what the input's holds, on the first contexts."""
    rows = job.read.rows(job.contexts[:_CHECKED_CONTEXTS]).to(device=job.between.directions.device, dtype=torch.float32)
    return mlp_fvu(job.between.mlp, rows[:, : job.between.d_in], rows[:, job.between.d_in :])


def read_parts(job: JacobianJob) -> None:
    """Commit every part that is not there yet."""
    with tqdm(total=len(job.contexts), unit="ctx", desc=f"jacobian {job.name}") as bar:
        for number, contexts in enumerate(job.parts):
            if not job.making.has(_rows_name(number)):
                _commit(job, number, contexts)
            bar.update(len(contexts))


def _commit(job: JacobianJob, number: int, contexts: Int[np.ndarray, " context"]) -> None:
    width, sums, rows = job.between.input.width, [], []
    at_once = max(1, int(_TOKEN_PAIRS / max(1.0, job.pairs_per_token)))
    with memory_for("run.block_latents"):
        for context in contexts.tolist():
            parts = []
            for read in job.read.rows(np.array([context])).split(at_once):
                pairs = active_pairs(job.between, read, job.block)
                parts.append(context_row(context, len(read), pairs))
                sums = [added([*sums, sums_of(pairs, width)])]
            rows.append(added_rows(parts))
    job.making.write_arrays(_sums_name(number), sums[0].arrays())
    job.making.write_json(_rows_name(number), rows)


def join_parts(job: JacobianJob) -> tuple[int, list[dict[str, Any]]]:
    """Write both tables from the parts, and delete these; gives the number of edges and the rows of `contexts.parquet`."""
    numbers, between, n_edges = range(len(job.parts)), job.between, 0
    with job.making.open_table("edges.parquet") as write:
        paths = [job.making.path(_sums_name(number)) for number in numbers]
        blocks = merged(paths, between.output.width, between.input.width)
        for table in even((edges_table(sums, between.input.width) for sums in blocks), ROWS_PER_GROUP):
            write(table)
            n_edges += table.num_rows
    rows = [row for number in numbers for row in json.loads(job.making.path(_rows_name(number)).read_text(encoding="utf-8"))]
    job.making.write_table("contexts.parquet", rows)
    return n_edges, rows


def drop_parts(job: JacobianJob) -> None:
    """Delete the parts, once all that is made of them stands."""
    for path in job.making.folder.glob("part-*"):
        path.unlink()


def _sums_name(number: int) -> str:
    return f"part-{number:05d}.safetensors"


def _rows_name(number: int) -> str:
    return f"part-{number:05d}.json"
