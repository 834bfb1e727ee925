"""The latent-major store built and read: seconds, peak memory, microseconds a latent; with QUICK=1 a fiftieth of the activations.

The firings are random, drawn segment by segment and written to the temporary folder as the encoder's would be: drawing is not
timed. Latents fire by a power law (rank^-0.7). Memory is RssAnon, sampled: what files
are mapped or cached is the kernel's to drop.
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
from peak import Peak

from latentry.contracts import LATENTS
from latentry.latents.latent_store import LatentStore, merge_segments, segment_name, write_segment
from latentry.store import Work

QUICK = bool(os.environ.get("QUICK"))
N_TOKENS, L0, WIDTH = 188_500 if QUICK else 9_425_000, 32, 1_000_000
"""6 and 300 million activations, after ties."""
SEGMENT_TOKENS = 65_536
"""`run.shard_contexts` of 512 contexts of 128 tokens."""
N_READ, N_REPEATS = 1_000, 5
ROOT = Path(__file__).parents[1]


def firings(rng: np.random.Generator, first: int, n_tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position, latent and activation of L0 latents a token, drawn by a power law; ties of one token count once."""
    rank = (rng.random((n_tokens, L0)) ** (1 / 0.3) * WIDTH).astype(np.int32)
    latent = np.sort(rank, axis=1)
    distinct = np.ones_like(latent, dtype=bool)
    distinct[:, 1:] = latent[:, 1:] != latent[:, :-1]
    token, place = np.nonzero(distinct)
    shuffled = (latent[token, place].astype(np.int64) * 700_001) % WIDTH  # the common ones lie anywhere
    return (token + first).astype(np.uint32), shuffled.astype(np.int32), rng.lognormal(size=len(token)).astype(np.float32)


def build(making: Work) -> tuple[float, int]:
    """Seconds without those of drawing, and the number of activations."""
    rng, spent, names = np.random.default_rng(0), 0.0, []
    for number, first in enumerate(range(0, N_TOKENS, SEGMENT_TOKENS)):
        drawn = firings(rng, first, min(SEGMENT_TOKENS, N_TOKENS - first))
        names.append(segment_name(number))
        start = time.perf_counter()
        write_segment(making, names[-1], *drawn, WIDTH, "float16")
        spent += time.perf_counter() - start
    start = time.perf_counter()
    n_activations = merge_segments(making, names)
    return spent + time.perf_counter() - start, n_activations


def read_us(folder: Path) -> float:
    """Median over repeats of the mean microseconds to read a random latent of an opened store."""
    store, rng, means = LatentStore(folder), np.random.default_rng(1), []
    for _ in range(N_REPEATS):
        latents = rng.integers(WIDTH, size=N_READ).tolist()
        start = time.perf_counter()
        for latent in latents:
            store.read(latent)
        means.append((time.perf_counter() - start) / N_READ * 1e6)
    return float(np.median(means))


def main() -> None:
    """Build in a folder that is deleted, read, report."""
    (ROOT / ".cache").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / ".cache") as name, Peak.watched() as peak:
        making = Work(Path(name), Path(name), LATENTS)
        build_s, n_activations = build(making)
        us = read_us(making.folder)
        disk_gb = sum(path.stat().st_size for path in making.folder.iterdir()) / 1e9
    print(  # noqa: T201
        f"store n={n_activations} width={WIDTH} peak_gb={peak.n_bytes / 1e9:.2f} build_s={build_s:.1f} read_us={us:.1f} disk_gb={disk_gb:.2f}"
    )


if __name__ == "__main__":
    main()
