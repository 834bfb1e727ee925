"""A training step of a JSAE pair against the same two SAEs' plain steps: two of sae-lens's TopK SAEs by the same trainer, on the same rows.

`ratio` is the median pair step over the median of the two plain steps, in turn on one machine. `growth` is what the Jacobian's part
takes at width 32k over 4k, in memory besides the gradients of decoder and encoder, and `time_growth` in processor seconds; its
latents are drawn with frequencies like those of trained SAEs. Each width is a process of its own.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from peak import Peak
from sae_lens.saes.topk_sae import TopKTrainingSAE, TopKTrainingSAEConfig
from synthetic import line
from torch import Tensor

from latentry.mlp_jacobian import Mlp, jacobian_loss
from latentry.runtime import device_of, use_threads
from latentry.saes.checkpoint import Checkpoint
from latentry.saes.jsae_training import JsaePair, PairTrainer
from latentry.saes.recipe import Jsae
from latentry.saes.trainer import Trainer
from latentry.saes.training import settings_of

QUICK = bool(os.environ.get("QUICK"))
DEVICE = os.environ.get("DEVICE", "cpu")
D_IN, D_MLP, K, WIDTH, WIDE = 576, 1536, 32, 4096, 32768
BATCH = int(os.environ.get("BATCH", "1024"))
ROUNDS = 5 if QUICK else 15
DIRECTIONS, ACTIVE = 3000, 24
"""Of what the rows are made of: some of many directions, rare ones the more."""


def planted_mlp(drawn: torch.Generator) -> Mlp:
    """As the example's subject has it: gated, without biases."""
    shapes = {"up": (D_MLP, D_IN), "gate": (D_MLP, D_IN), "down": (D_IN, D_MLP)}
    weights: dict[str, Any] = {name: torch.randn(shape, generator=drawn) / shape[1] ** 0.5 for name, shape in shapes.items()}
    mlp = Mlp(up_bias=None, gate_bias=None, down_bias=None, activation=torch.nn.functional.silu, **weights)
    return mlp.to(device=DEVICE)


def frequent(n: int, n_rows: int, n_each: int, drawn: torch.Generator) -> Tensor:
    """Some different numbers below n for each row, number r with a frequency that falls as 1 / (r + 20), in a fixed order of their own."""
    frequencies = 1 / (torch.arange(n) + 20.0)
    return torch.randperm(n, generator=drawn)[torch.multinomial(frequencies.expand(n_rows, n), n_each, generator=drawn)]


class Rows(Iterator[Tensor]):
    """Batches of what the MLP reads, and after it what it writes."""

    def __init__(self, mlp: Mlp, drawn: torch.Generator) -> None:
        directions = torch.nn.functional.normalize(torch.randn(DIRECTIONS, D_IN, generator=drawn), dim=-1)
        self._mlp, self._directions, self._drawn = mlp, directions, drawn

    def __next__(self) -> Tensor:
        chosen = frequent(DIRECTIONS, BATCH, ACTIVE, self._drawn)
        strengths = 3 + 3 * torch.rand(BATCH, ACTIVE, generator=self._drawn)
        x = (self._directions[chosen] * strengths.unsqueeze(-1)).sum(dim=1) + torch.randn(BATCH, D_IN, generator=self._drawn) / 4
        x = x.to(DEVICE)
        written = self._mlp(x)
        return torch.cat([x, written * (x.norm(dim=-1).mean() / written.norm(dim=-1).mean())], dim=-1)


def sae_settings(width: int) -> TopKTrainingSAEConfig:
    """Of one half, as the stage has it."""
    return TopKTrainingSAEConfig(d_in=D_IN, d_sae=width, k=K, device=DEVICE, normalize_activations="none", decoder_init_norm=0.1)


def trainers(mlp: Mlp, folder: Path) -> tuple[Callable[[Tensor], object], Callable[[Tensor], object], JsaePair]:
    """One step of two SAEs apart, and one of them as a pair."""
    recipe = Jsae(epochs=1, batch=BATCH, lr=0.003, k=K, partner="the other", jacobian_coefficient=1.0)
    settings, kept = (
        settings_of(recipe, 10**6, DEVICE),
        {"checkpoint": Checkpoint(path=folder / "none", every=10**12), "curve_every": 10**6},
    )
    nothing: Any = iter(())
    plain = [Trainer(settings, TopKTrainingSAE(sae_settings(WIDTH)), nothing, **kept) for _ in range(2)]
    pair = JsaePair(sae_settings(WIDTH), mlp, recipe, 10**6)
    together = PairTrainer(settings, pair, nothing, **kept)
    for trainer in (*plain, together):
        trainer.activation_scaler.scaling_factor = 1.0

    def apart(rows: Tensor) -> None:
        for trainer, half in zip(plain, rows.chunk(2, dim=-1), strict=True):
            trainer.step(half)

    return apart, together.step, pair


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """On the clock, and of the processor."""
    start, used = time.perf_counter(), time.process_time()
    work()
    if DEVICE.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start, time.process_time() - used


def steps(mlp: Mlp, drawn: torch.Generator) -> dict[str, object]:
    """Both steps in turn, on the same rows; the first two of each warm up."""
    rows, taken = Rows(mlp, drawn), {"plain": [], "pair": []}
    with TemporaryDirectory() as folder:
        apart, together, pair = trainers(mlp, Path(folder))
        for number in range(ROUNDS + 2):
            batch = next(rows)
            for name, step in (("plain", apart), ("pair", together)):
                found = seconds(lambda step=step, batch=batch: step(batch))
                taken[name] += [found] * (number >= 2)
        active = [len(sae.latents.unique()) for sae in pair.halves.values()]  # type: ignore[union-attr]
    (plain_s, plain_cpu), (pair_s, pair_cpu) = (np.median(np.array(taken[name]), axis=0).tolist() for name in ("plain", "pair"))
    shown = {"ratio": pair_s / plain_s, "cpu_ratio": pair_cpu / plain_cpu, "plain_s": plain_s, "pair_s": pair_s}
    return {**shown, "latents": f"{active[0]}+{active[1]}"}


def jacobian_at(width: int) -> tuple[float, int]:
    """Seconds of the Jacobian's part of a step at a width, and bytes besides its gradients, in a process of its own."""
    found = subprocess.run([sys.executable, __file__, str(width)], check=True, stdout=subprocess.PIPE, text=True)
    taken, n_bytes = found.stdout.split()[-2:]
    return float(taken), int(n_bytes)


def run_jacobian(width: int) -> None:
    """In that process: the first run is watched, the others are timed."""
    drawn = torch.Generator().manual_seed(0)
    mlp, x = planted_mlp(drawn), torch.randn(BATCH, D_IN, generator=drawn).to(DEVICE)
    chosen = [frequent(width, BATCH, K, drawn).to(DEVICE) for _ in range(2)]
    active = torch.ones(BATCH, K, dtype=torch.bool, device=DEVICE)
    rows = [(torch.randn(width, D_IN, generator=drawn) / D_IN**0.5).to(DEVICE).requires_grad_() for _ in range(2)]

    def loss() -> Tensor:
        return jacobian_loss(mlp, x, *chosen, active, active, rows[0], rows[1])

    n_bytes = peak_of(loss) - 2 * rows[0].numel() * rows[0].element_size()
    print(statistics.median(seconds(loss)[1] for _ in range(3 if QUICK else 7)), n_bytes)  # noqa: T201


def peak_of(work: Callable[[], object]) -> int:
    """Most bytes that are held besides those held before."""
    if DEVICE.startswith("cuda"):
        before = torch.cuda.memory_allocated()
        work()
        return torch.cuda.max_memory_allocated() - before
    with Peak.watched() as peak:
        while not peak.n_bytes:
            time.sleep(0.01)
        before = peak.n_bytes
        work()
    return peak.n_bytes - before


def main() -> None:
    """The steps, then the Jacobian's part at two widths."""
    device_of(DEVICE)
    drawn = torch.Generator().manual_seed(0)
    mlp = planted_mlp(drawn)
    found = steps(mlp, drawn)
    narrow, wide = jacobian_at(WIDTH), jacobian_at(WIDE)
    grown = {"growth": wide[1] / narrow[1], "time_growth": wide[0] / narrow[0], "jacobian_gb": narrow[1] / 1e9}
    sizes = {"n": BATCH, "width": WIDTH, "k": K, "d_in": D_IN, "d_mlp": D_MLP, "device": DEVICE, "rounds": ROUNDS}
    print(line("jacobian", {**sizes, **found, **grown}))  # noqa: T201


if __name__ == "__main__":
    use_threads(None)
    run_jacobian(int(sys.argv[1])) if len(sys.argv) > 1 else main()
