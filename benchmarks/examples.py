"""CPU milliseconds per latent to choose its examples, 16k latents of 2k to 30k activations, beside one Python object per window.

The corpus and the store are made up: words at random in documents of 720 tokens, and latents that fire at random tokens,
256 of them drawn and the others these moved on by whole documents, so that the store takes no disk. Times are
medians over blocks of latents: drawing, checks and table, without writing (`write_ms`) and without what is done once
(`grid_s`; for neighbours the sparse matrices are part of `neighbours_ms`). The reference is timed on a few of the
same latents. With QUICK=1: 512 latents, 2M tokens.

A second line is of the whole choice by `choose_examples` in two processes, with checks, writing, and all that is made once:
minutes, and the most memory of one process, corpus and store included. N_LATENTS=100000 takes another number of latents.
"""

import os
import random
import resource
import statistics
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from latentry.registry import ContrastConfig, variant
from latentry.sampling.choose import LATENTS_PER_BLOCK, BlockMaker, Corpus, choose_examples
from latentry.sampling.disjoint import verify_disjoint
from latentry.sampling.grid import Grid, grid_of
from latentry.sampling.sample import sample_of_latents
from latentry.sampling.tables import SCHEMA
from latentry.sections import ExampleSettings

QUICK = bool(os.environ.get("QUICK"))
N_LATENTS, N_TOKENS = int(os.environ.get("N_LATENTS", 512 if QUICK else 16_384)), 2_000_000 if QUICK else 10_000_000
PROCESSES = 2
N_REFERENCE = 16 if QUICK else 64
FEWEST, MOST = 2_000, 30_000
CONTEXT, DOCUMENT, WORD, DRAWN = 256, 720, 7, 256


@dataclass(frozen=True)
class MadeUpTokens:
    """A corpus of words of six letters and a space, one token each."""

    tokens: np.ndarray
    document: np.ndarray
    text_start: np.ndarray
    text_end: np.ndarray
    special: np.ndarray
    texts: list[str]


def made_up_tokens(n_tokens: int) -> MadeUpTokens:
    """Documents of equal length with a special token after each."""
    shape = (n_tokens // CONTEXT, CONTEXT)
    n, rng = shape[0] * CONTEXT, np.random.default_rng(0)
    place, document = np.arange(n) % (DOCUMENT + 1), np.arange(n) // (DOCUMENT + 1)
    special = place == DOCUMENT
    tokens = np.where(special, 0, rng.integers(1, 50_000, n))
    words = np.array([f"w{token:05d}" for token in range(50_000)])
    n_documents = int(document[-1]) + 1
    return MadeUpTokens(
        tokens=tokens.astype(np.uint32).reshape(shape),
        document=np.where(special, -1, document).astype(np.int32).reshape(shape),
        text_start=(place * WORD).astype(np.uint32).reshape(shape),
        text_end=(place * WORD + WORD - 1).astype(np.uint32).reshape(shape),
        special=special.reshape(shape),
        texts=[" ".join(words[tokens[first : first + DOCUMENT]]) for first in range(0, n_documents * (DOCUMENT + 1), DOCUMENT + 1)],
    )


class MadeUpStore:
    """Latents that fire at random tokens that are not special: some are drawn, the others are these, moved on by whole documents."""

    def __init__(self, token_set: MadeUpTokens, width: int) -> None:
        rng = np.random.default_rng(1)
        self.width = width
        self._n = token_set.tokens.size // (DOCUMENT + 1) * (DOCUMENT + 1)
        allowed = np.flatnonzero(~token_set.special.reshape(-1)[: self._n]).astype(np.uint32)
        sizes = rng.integers(FEWEST, MOST, min(DRAWN, width))
        self._position = [np.sort(rng.choice(allowed, size, replace=False, shuffle=False)) for size in sizes.tolist()]
        self._activation = [(rng.gamma(2, 1, size=size) + 0.01).astype(np.float16) for size in sizes.tolist()]
        self._shift = rng.integers(self._n // (DOCUMENT + 1), size=width) * (DOCUMENT + 1)
        self.counts = sizes[np.arange(width) % len(sizes)]

    def read(self, latent: int) -> tuple[np.ndarray, np.ndarray]:
        """As the latent-major store gives it: positions u64, activations f32."""
        position, activation = self._position[latent % len(self._position)], self._activation[latent % len(self._position)]
        shift = int(self._shift[latent])
        end = int(np.searchsorted(position, np.uint32(self._n - shift)))
        moved = np.concatenate([position[end:].astype(np.int64) + (shift - self._n), position[:end].astype(np.int64) + shift])
        return moved.view(np.uint64), np.concatenate([activation[end:], activation[:end]]).astype(np.float32)


def corpus_of(token_set: MadeUpTokens, store: MadeUpStore) -> Corpus:
    """With what the sources of this benchmark read."""
    return Corpus(
        token_set=token_set,
        kept=(~token_set.special).astype(np.uint8),
        store=store,
        signed=False,
        statistics=pa.table(
            {
                "latent": np.arange(store.width),
                "firing_count": store.counts,
                "firing_frequency": store.counts / token_set.tokens.size,
                "peak": np.ones(store.width, dtype=np.float32),
            }
        ),
        decoder=lambda: np.zeros((0, 0), dtype=np.float32),
        embedded=lambda model, texts: np.zeros((len(texts), 0), dtype=np.float32),  # noqa: ARG005
    )


def timed_blocks(maker: BlockMaker, latents: list[int], write: Callable[[pa.Table], object]) -> Iterator[tuple[float, float]]:
    """CPU milliseconds per latent of each block: choosing, and writing."""
    for first in range(0, len(latents), LATENTS_PER_BLOCK):
        start = time.process_time()
        block = maker.block(latents[first : first + LATENTS_PER_BLOCK])
        verify_disjoint(block.table)
        chosen = time.process_time()
        write(block.table)
        yield 1e3 * (chosen - start) / len(block.outcomes), 1e3 * (time.process_time() - chosen) / len(block.outcomes)


def chosen_ms(corpus: Corpus, store: MadeUpStore, grid: Grid, contrast: ContrastConfig) -> tuple[float, float, float]:
    """Median milliseconds per latent of choosing and of writing, and those of what is made once, spread over the latents."""
    settings = ExampleSettings(contrasts={"only": contrast})
    start = time.process_time()
    maker = BlockMaker(0, settings, corpus, grid, store.counts)
    once = 1e3 * (time.process_time() - start) / store.width
    with tempfile.TemporaryDirectory() as folder:
        latents = sample_of_latents(0, "all", store.width).latents.tolist()
        schema = maker.block(latents[:1]).table.schema
        with pq.ParquetWriter(Path(folder, "examples.parquet"), schema, compression="zstd") as writer:
            times = [*timed_blocks(maker, latents, writer.write_table)]
    choosing, writing = (statistics.median(column) for column in zip(*times, strict=True))
    return choosing, writing, once


@dataclass
class WindowObject:
    """A window as one would write it down first."""

    start: int
    document: int
    text: str
    peak: float
    decile: int = 0


def reference(token_set: MadeUpTokens, store: MadeUpStore, grid: Grid, latent: int) -> list[tuple[str, list[float]]]:
    """The same examples by the same rules, one Python object per window, without a table; other draws."""
    position, activation = (array.tolist() for array in store.read(latent))
    drawn, of_text = random.Random(latent), {}
    for window in windows_of(token_set, grid, position, activation):
        of_text.setdefault(window.text, window)
    ordered = sorted(of_text.values(), key=lambda window: (window.peak, window.start))
    for rank, window in enumerate(ordered):
        window.decile = 10 * rank // len(ordered) + 1
    documents = sorted({window.document for window in ordered})
    held_out = set(drawn.sample(documents, len(documents) * 5 // 9))
    chosen = []
    for side, share in ((True, 5), (False, 4)):
        for decile in range(1, 11):
            candidates = [window for window in ordered if window.decile == decile and (window.document in held_out) == side]
            chosen += drawn.sample(candidates, share)
        chosen += silent_windows(token_set, grid, position, lambda document, side=side: (document in held_out) == side, 10 * share, drawn)
    return [(window.text, dense(window.start, grid.window, position, activation)) for window in chosen]


def windows_of(token_set: MadeUpTokens, grid: Grid, position: list[int], activation: list[float]) -> list[WindowObject]:
    """The grid windows with an activation in them."""
    found: dict[int, WindowObject] = {}
    for place, strength in zip(position, activation, strict=True):
        number = int(grid.window_of[place])
        if number < 0:
            continue
        if number in found:
            found[number].peak = max(found[number].peak, strength)
        else:
            found[number] = window_at(token_set, grid, number, strength)
    return list(found.values())


def window_at(token_set: MadeUpTokens, grid: Grid, number: int, peak: float) -> WindowObject:
    """One window of the grid with its text."""
    start, document = int(grid.starts[number]), int(grid.document[number])
    begin = token_set.text_start.reshape(-1)[start]
    end = token_set.text_end.reshape(-1)[start + grid.window - 1]
    return WindowObject(start, document, token_set.texts[document][begin:end], peak)


def silent_windows(
    token_set: MadeUpTokens, grid: Grid, position: list[int], in_split: Callable[[int], bool], n: int, drawn: random.Random
) -> list[WindowObject]:
    """Random windows of the split without an activation in them."""
    found: dict[str, WindowObject] = {}
    while len(found) < n:
        window = window_at(token_set, grid, drawn.randrange(grid.n_windows), 0.0)
        after = bisect_left(position, window.start)
        is_silent = after == len(position) or position[after] >= window.start + grid.window
        if is_silent and in_split(window.document):
            found[window.text] = window
    return list(found.values())


def dense(start: int, window: int, position: list[int], activation: list[float]) -> list[float]:
    """The window's activations, token by token."""
    first = bisect_left(position, start)
    at = {}
    while first < len(position) and position[first] < start + window:
        at[position[first] - start] = activation[first]
        first += 1
    return [at.get(place, 0.0) for place in range(window)]


def reference_ms(token_set: MadeUpTokens, store: MadeUpStore, grid: Grid) -> float:
    """Median CPU milliseconds of the reference."""
    times = []
    for latent in range(N_REFERENCE):
        start = time.process_time()
        reference(token_set, store, grid, latent)
        times.append(1e3 * (time.process_time() - start))
    return statistics.median(times)


def whole_minutes(corpus: Corpus) -> tuple[float, int]:
    """Minutes of the whole choice with random contrasts, and examples written."""
    settings = ExampleSettings(contrasts={"only": variant("sampling", "random").Config(kind="random")})
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        with pq.ParquetWriter(Path(folder, "examples.parquet"), SCHEMA, compression="zstd") as writer:
            chosen = choose_examples(0, settings, corpus, writer.write_table, PROCESSES)
        return (time.perf_counter() - start) / 60, chosen.n_examples


def peak_gb(who: int = resource.RUSAGE_SELF) -> float:
    """The most memory this process, or one of those it made, has had."""
    return resource.getrusage(who).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9


def main() -> None:
    """Make the corpus and the store, time the whole choice, both kinds of contrasts and the reference."""
    token_set = made_up_tokens(N_TOKENS)
    store = MadeUpStore(token_set, N_LATENTS)
    corpus, start = corpus_of(token_set, store), time.process_time()
    grid = grid_of(token_set, 32)
    grid_s = time.process_time() - start
    before = peak_gb()
    minutes, n_examples = whole_minutes(corpus)
    print(  # noqa: T201
        f"examples n={N_LATENTS} tokens={N_TOKENS} processes={PROCESSES} minutes={minutes:.2f} examples={n_examples}"
        f" corpus_gb={before:.2f} peak_gb={peak_gb():.2f} process_peak_gb={peak_gb(resource.RUSAGE_CHILDREN):.2f}",
        flush=True,
    )
    ms, write_ms, _ = chosen_ms(corpus, store, grid, variant("sampling", "random").Config(kind="random"))
    peak = peak_gb()
    plain_ms = reference_ms(token_set, store, grid)
    near_ms, _, once_ms = chosen_ms(corpus, store, grid, variant("sampling", "neighbours").Config(kind="neighbours"))
    print(  # noqa: T201
        f"examples n={N_LATENTS} tokens={N_TOKENS} ms={ms:.2f} reference_ms={plain_ms:.1f} neighbours_ms={near_ms + once_ms:.2f}"
        f" write_ms={write_ms:.2f} grid_s={grid_s:.2f} corpus_gb={before:.2f} peak_gb={peak:.2f} neighbours_peak_gb={peak_gb():.2f}"
    )


if __name__ == "__main__":
    main()
