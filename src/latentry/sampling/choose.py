"""All that is chosen of one SAE, in blocks of latents: examples go out block by block, so memory does not grow with the latents.

Blocks may be made in several processes. What is chosen of a latent depends on that latent alone, so that neither
blocks nor processes change a row.
"""

import dataclasses
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, UInt8

from latentry.records import Status
from latentry.registry import variant
from latentry.sampling.base import Activations, ContrastSource, SourceInputs, Tokens
from latentry.sampling.chooser import Chooser, ExamplesParams, Outcome
from latentry.sampling.disjoint import verify_disjoint
from latentry.sampling.grid import Grid, grid_of
from latentry.sampling.processes import in_order
from latentry.sampling.sample import LatentSample, sample_of_latents
from latentry.sampling.tables import examples_table

LATENTS_PER_BLOCK = 64


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What examples are chosen from."""

    token_set: Tokens
    kept: UInt8[np.ndarray, "context position"]
    """Positions whose activations were encoded."""
    store: Activations
    statistics: pa.Table
    """Columns latent, firing_count, firing_frequency and peak, one row per latent, ascending."""
    decoder: Callable[[], Float32[np.ndarray, "latent d_in"]]
    """Reads the SAE's decoder rows, for contrasts by their cosine."""
    embedded: Callable[[str, Sequence[str]], Float32[np.ndarray, "text d_embedding"]]
    """Unit vectors of texts by a model named under `models`, for semantic contrasts."""
    signed: bool = False
    """Whether the SAE is signed: a latent and the one half the width away are two signs of one; a contrast is silent for both."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What was chosen, besides the examples themselves."""

    rows: list[dict[str, Any]]
    """Of latents.parquet."""
    n_ok: int
    n_examples: int
    n_windows: int
    """Windows of the grid."""
    n_dropped_tokens: int
    """Tokens in ends of documents that are shorter than a window."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Some latents looked at, and their examples."""

    outcomes: tuple[Outcome, ...]
    """Without what was drawn, which is in the table."""
    n_rows: tuple[int, ...]
    """Rows of the table of each, in order."""
    table: pa.Table

    def until(self, n_ok: int | None) -> "Block":
        """The block up to its `n_ok`th latent that is OK; all of it where there are no more, or where it is None."""
        ok = np.cumsum([outcome.status is Status.OK for outcome in self.outcomes])
        n = len(self.outcomes) if n_ok is None else int(np.searchsorted(ok, n_ok)) + 1
        return Block(outcomes=self.outcomes[:n], n_rows=self.n_rows[:n], table=self.table.slice(0, sum(self.n_rows[:n])))


def choose_examples(seed: int, examples: ExamplesParams, corpus: Corpus, write: Callable[[pa.Table], object], processes: int = 1) -> Chosen:
    """Choose; the rows of examples.parquet go to `write` in parts.

    Latents are looked at in a seeded permutation until `n_latents` are OK (all of them where it is None), or none is
    left; every one looked at has a row. `rank` counts the OK ones in that order from 0, then the others.

    Raises:
        ParamsError: a latent asked for is not in the SAE.
        CorpusError: no document is as long as a window.
        ContractError: a latent fires where there is no token or one was left out, or a check on the result fails.
    """
    grid = grid_of(corpus.token_set, examples.window)
    counts = corpus.statistics["firing_count"].to_numpy().astype(np.int64)
    sample = sample_of_latents(seed, examples.latents, corpus.store.width, examples.strata, counts)
    maker = BlockMaker(seed, examples, corpus, grid, counts)
    outcomes: list[Outcome] = []
    n_ok = n_examples = 0
    for block in _until_enough(in_order(maker.block, _blocks(sample), processes), examples.n_latents):
        verify_disjoint(block.table, examples.split_by)
        write(block.table)
        outcomes += block.outcomes
        n_ok += sum(outcome.status is Status.OK for outcome in block.outcomes)
        n_examples += block.table.num_rows
    return Chosen(
        rows=_rows(outcomes, sample, corpus.statistics, grid),
        n_ok=n_ok,
        n_examples=n_examples,
        n_windows=grid.n_windows,
        n_dropped_tokens=grid.n_dropped_tokens,
    )


class BlockMaker:
    """Makes blocks; what they share is made once, before other processes are."""

    def __init__(self, seed: int, examples: ExamplesParams, corpus: Corpus, grid: Grid, firing_counts: np.ndarray) -> None:
        self._grid, self._token_set = grid, corpus.token_set
        inputs = SourceInputs(
            seed=seed,
            grid=grid,
            token_set=corpus.token_set,
            store=corpus.store,
            signed=corpus.signed,
            firing_counts=firing_counts,
            decoder=corpus.decoder,
            embedded=corpus.embedded,
            contrasts=examples.contrasts,
            source=self._source,
        )
        self._contrasts, self._inputs = examples.contrasts, inputs
        self._sources: dict[str, ContrastSource] = {}
        sources = {name: self._source(name) for name in examples.contrasts}
        self._chooser = Chooser(seed, examples, corpus.kept, inputs, sources)

    def _source(self, name: str) -> ContrastSource:
        if name not in self._sources:
            config = self._contrasts[name]
            self._sources[name] = variant("sampling", config.kind).build(config, self._inputs)
        return self._sources[name]

    def block(self, latents: Sequence[int]) -> Block:
        """One block, from its latents alone."""
        outcomes = self._chooser.outcomes(latents)
        return Block(
            outcomes=tuple(dataclasses.replace(outcome, drawn=()) for outcome in outcomes),
            n_rows=tuple(sum(group.starts.size for group in outcome.drawn) for outcome in outcomes),
            table=examples_table([group for outcome in outcomes for group in outcome.drawn], self._grid, self._token_set),
        )


def _blocks(sample: LatentSample) -> list[list[int]]:
    latents = sample.latents.tolist()
    return [latents[first : first + LATENTS_PER_BLOCK] for first in range(0, len(latents), LATENTS_PER_BLOCK)]


def _until_enough(blocks: Generator[Block, None, None], n_latents: int | None) -> Iterator[Block]:
    missing = n_latents
    with closing(blocks):
        for whole in blocks:
            block = whole.until(missing)
            yield block
            if missing is not None:
                missing -= sum(outcome.status is Status.OK for outcome in block.outcomes)
                if not missing:
                    return


def _rows(outcomes: Sequence[Outcome], sample: LatentSample, statistics: pa.Table, grid: Grid) -> list[dict[str, Any]]:
    """OK latents first, each kind in the order in which they were looked at."""
    order = sorted(range(len(outcomes)), key=lambda place: outcomes[place].status is not Status.OK)
    probability = sample.inclusion_probability(len(outcomes))[order].tolist()
    stratum = sample.stratum[order].tolist()
    columns = ["firing_count", "firing_frequency", "peak"]
    measured = statistics.select(columns).take(sample.latents[order]).to_pylist()
    return [
        {
            "latent": outcomes[place].latent,
            "rank": rank,
            "status": outcomes[place].status.value,
            "detail": outcomes[place].detail,
            "n_windows": outcomes[place].n_windows,
            "n_distinct_windows": outcomes[place].n_distinct_windows,
            "activating_window_fraction": outcomes[place].n_windows / grid.n_windows,
            "stratum": stratum[rank],
            "inclusion_probability": probability[rank],
            "shortfall": outcomes[place].shortfall,
            **measured[rank],
        }
        for rank, place in enumerate(order)
    ]
