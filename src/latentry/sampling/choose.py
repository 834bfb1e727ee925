"""Which latents are looked at, and all that was chosen for them as two tables.

Latents are walked in a seeded permutation; memory is bounded by a block of latents and by what was chosen.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import UInt8

from latentry.errors import ParamsError
from latentry.randomness import rng_for
from latentry.records import Status
from latentry.sampling.base import Activations, Tokens
from latentry.sampling.chooser import Chooser, ExamplesParams, Outcome
from latentry.sampling.disjoint import verify_disjoint
from latentry.sampling.grid import Grid, grid_of
from latentry.sampling.tables import SCHEMA, examples_table

LATENTS_PER_BLOCK = 64


def choose_examples(
    seed: int,
    examples: ExamplesParams,
    token_set: Tokens,
    kept: UInt8[np.ndarray, "context position"],
    store: Activations,
    statistics: pa.Table,
    grid: Grid | None = None,
) -> tuple[list[dict[str, Any]], pa.Table]:
    """Rows of latents.parquet, and the table of examples.parquet.

    Latents are looked at in a seeded permutation until `n_latents` are OK (all of them where it is None), or none is
    left; every one looked at has a row. `rank` counts the OK ones in that order from 0, then the others.
    A caller that wants the grid's counts makes the grid itself and passes it.

    Raises:
        ParamsError: a latent asked for is not in the SAE.
        CorpusError: no document is as long as a window.
        ContractError: a latent fires at a position that was left out, or a check on the result fails.
    """
    grid = grid_of(token_set, examples.window) if grid is None else grid
    chooser = Chooser(seed, examples, grid, kept, store)
    permutation = sample_of_latents(seed, examples.latents, store.width)
    outcomes: list[Outcome] = []
    blocks = [SCHEMA.empty_table()]
    for block in _blocks(_until_enough(chooser, permutation, examples.n_latents)):
        blocks.append(examples_table([group for outcome in block for group in outcome.drawn], grid, token_set))
        outcomes += [dataclasses.replace(outcome, drawn=()) for outcome in block]
    table = pa.concat_tables(blocks).combine_chunks()
    verify_disjoint(table, examples.split_by)
    return _rows(outcomes, statistics, grid), table


def sample_of_latents(seed: int, latents: Any, width: int) -> list[int]:
    """A seeded permutation of the latents asked for: `all`, or a list, in whatever order it is given.

    Raises:
        ParamsError: the list names latents that the SAE does not have.
    """
    asked = np.arange(width) if latents == "all" else np.unique(np.array(latents, dtype=np.int64))
    outside = asked[(asked < 0) | (asked >= width)].tolist()
    if outside:
        raise ParamsError("examples.latents", [f"{outside[:5]}: the SAE has latents 0 to {width - 1}; take these out"])
    return rng_for(seed, "latents").permutation(asked).tolist()


def _until_enough(chooser: Chooser, permutation: Sequence[int], n_latents: int | None) -> Iterator[Outcome]:
    n_ok = 0
    for latent in permutation:
        if n_ok == n_latents:
            return
        outcome = chooser.outcome(latent)
        n_ok += outcome.status is Status.OK
        yield outcome


def _blocks(outcomes: Iterator[Outcome]) -> Iterator[list[Outcome]]:
    block: list[Outcome] = []
    for outcome in outcomes:
        block.append(outcome)
        if len(block) == LATENTS_PER_BLOCK:
            yield block
            block = []
    yield block


def _rows(outcomes: Sequence[Outcome], statistics: pa.Table, grid: Grid) -> list[dict[str, Any]]:
    ordered = sorted(outcomes, key=lambda outcome: outcome.status is not Status.OK)
    row_of = {latent: row for row, latent in enumerate(statistics["latent"].to_pylist())}
    columns = ["firing_count", "firing_frequency", "peak"]
    measured = statistics.select(columns).take([row_of[outcome.latent] for outcome in ordered]).to_pylist()
    return [
        {
            "latent": outcome.latent,
            "rank": rank,
            "status": outcome.status.value,
            "detail": outcome.detail,
            "n_windows": outcome.n_windows,
            "n_distinct_windows": outcome.n_distinct_windows,
            "activating_window_fraction": outcome.n_windows / grid.n_windows,
            "shortfall": outcome.shortfall,
            **of_latent,
        }
        for rank, (outcome, of_latent) in enumerate(zip(ordered, measured, strict=True))
    ]
