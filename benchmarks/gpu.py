"""Tokens per second, share of the least time that would do, and memory of `activations` and `latents`: one command on a machine with a GPU.

    python benchmarks/gpu.py
    DEVICE=cpu QUICK=1 python benchmarks/gpu.py     # small, anywhere

A line per figure; each is a median over the rounds, bare and ours in turn after one round that warms up. Weights are loaded before:
in so short a run that would be most of it. `share` is the bare time over ours: 1 is the limit.
"""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from synthetic import Study, activations, bare_model, caching, encoding, latents, lay_out, lay_out_sae, line, scratch

from latentry.contracts import ACTIVATIONS, LATENTS
from latentry.corpora.token_set import TokenSet
from latentry.engines.base import Job
from latentry.runtime import device_of
from latentry.store import Work

QUICK = bool(os.environ.get("QUICK"))
DEVICE = os.environ.get("DEVICE", "auto")
WIDTHS = (4096, 16384) if QUICK else (16384, 131072)
ROUNDS = 2 if QUICK else 5
SMALL: dict[str, Any] = {"d_in": 64, "n_layers": 2, "n_contexts": 64, "context": 64, "vocabulary": 4096, "batch_tokens": 1024}
LARGE: dict[str, Any] = {"d_in": 2048, "n_layers": 16, "n_contexts": 1024, "context": 256, "vocabulary": 49152, "batch_contexts": 64}
"""Sixteen layers of a model of a billion parameters."""


def seconds(device: torch.device, *runs: Callable[[], object]) -> list[float]:
    """Median seconds of each, taken in turn, until the device is done."""
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS + 1):
        for times, run in zip(found, runs, strict=True):
            start = time.perf_counter()
            run()
            if device.type != "cpu":
                torch.accelerator.synchronize(device)
            times.append(time.perf_counter() - start)
    return [statistics.median(times[1:]) for times in found]


def peak_gb(device: torch.device, run: Callable[[], object]) -> float | str:
    """Largest memory that tensors take on the GPU during a run, weights among them."""
    if device.type != "cuda":
        return "unknown"
    torch.cuda.reset_peak_memory_stats(device)
    run()
    return torch.cuda.max_memory_allocated(device) / 1e9


def again(job: Job, folder: Path) -> Callable[[], None]:
    """The opened job, which makes all its shards each time it is called."""
    make, numbers = job.open(), list(job.missing())

    def run() -> None:
        for shard in folder.glob("s*-*.safetensors"):
            shard.unlink()
        for number in numbers:
            make(number, lambda _tokens: None)

    return run


def figures(device: torch.device, n_tokens: int, bare: Callable[[], object], ours: Callable[[], object]) -> dict[str, object]:
    """What both lines show."""
    bare_s, ours_s = seconds(device, bare, ours)
    shown: dict[str, object] = {"n": n_tokens, "tokens_per_s": n_tokens / ours_s, "bare_tokens_per_s": n_tokens / bare_s}
    return shown | {"share": bare_s / ours_s, "peak_gb": peak_gb(device, ours), "bare_peak_gb": peak_gb(device, bare)}


def forward(study: Study, device: torch.device, folder: Path) -> str:
    """The pass over all contexts: transformers alone, against ours, which checks and writes the activations."""
    tokens, model = TokenSet(study.out("tokens")), bare_model(study)

    @torch.inference_mode()
    def bare() -> None:
        for first in range(0, study.n_contexts, study.batch_contexts):
            ids = torch.from_numpy(tokens.rows(first, first + study.batch_contexts).astype(np.int64)).to(device)
            model(input_ids=ids, use_cache=False).last_hidden_state.cpu()

    ours = again(caching(study, Work(folder, folder, ACTIVATIONS)), folder)
    return line("gpu activations", figures(device, study.n_tokens, bare, ours))


def encode(study: Study, device: torch.device, folder: Path, width: int) -> str:
    """Stored activations through a SAE: the bare product with top-k, against ours, which sorts and writes the segments."""
    job = encoding(study, width, Work(folder, folder, LATENTS))
    encoder, x = job.load_sae().decoder.T.contiguous(), job.load_activations().rows(np.arange(study.n_contexts))

    @torch.inference_mode()
    def bare() -> None:
        for rows in x.split(study.batch_tokens):
            found = (rows.to(device).to(encoder.dtype) @ encoder).topk(study.k, dim=-1)
            _ = found.values.cpu(), found.indices.cpu()

    return line(f"gpu encode width={width}", figures(device, study.n_tokens, bare, again(job, folder)))


def main() -> None:
    """A line per figure."""
    device = device_of(DEVICE)
    named = torch.cuda.get_device_name(device).replace(" ", "-") if device.type == "cuda" else device.type
    with scratch() as root:
        study = Study(folder=root, device=DEVICE, **(SMALL if QUICK else LARGE))
        lay_out(study)
        print(line(f"gpu device={named}", {"d_in": study.d_in, "layers": study.n_layers, "rounds": ROUNDS}))  # noqa: T201
        print(forward(study, device, _empty(root / "shards")))  # noqa: T201
        print(line("gpu activations stage", {"s": activations(study)}))  # noqa: T201
        for width in WIDTHS:
            lay_out_sae(study, width)
            print(encode(study, device, _empty(root / f"segments-{width}"), width))  # noqa: T201
            print(line(f"gpu latents stage width={width}", {f"{part}_s": took for part, took in latents(study, width).items()}))  # noqa: T201


def _empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main()
