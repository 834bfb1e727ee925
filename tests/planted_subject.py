"""A subject whose activations the test knows, and a pass over planted tokens with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import LlamaConfig

from latentry.activations.cache import Caching
from latentry.contracts import ACTIVATIONS
from latentry.corpora.token_set import TokenSet
from latentry.store import Work
from latentry.subjects.causal_lm import Subject
from latentry.subjects.hooks import Hookpoint
from planted_folders import token_folder

D_IN = 4
IDS = np.random.default_rng(0).integers(1, 90, size=(10, 6))
POINTS = tuple(Hookpoint(name=f"at-{number}", module=f"layers.{number}", side="output") for number in (0, 1))


class Layer(nn.Module):
    """Applies a function of the test."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, x: Tensor) -> Tensor:
        return self._function(x)


class Counting(nn.Module):
    """A model of two layers: token t becomes t * (1, 2, 3, 4), then the layers' functions; it notes every context that it is given."""

    def __init__(self, first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.config = LlamaConfig()
        self.layers = nn.ModuleList([Layer(first), Layer(second)])
        self.seen: list[int] = []

    def forward(self, input_ids: Tensor, use_cache: bool) -> Tensor:  # noqa: ARG002
        self.seen += input_ids[:, 0].tolist()
        return self.layers[1](self.layers[0](base(input_ids)))


def base(ids: Tensor) -> Tensor:
    return ids.unsqueeze(-1) * torch.arange(1.0, 1 + D_IN)


def add_one(x: Tensor) -> Tensor:
    return x + 1


def pass_over(
    root: Path,
    caching: Callable[..., Caching],
    *,
    tokens: np.ndarray = IDS,
    first: Callable[[Tensor], Tensor] = add_one,
    second: Callable[[Tensor], Tensor] = torch.neg,
    **changed: Any,
) -> tuple[dict[str, Path], Counting, Caching]:
    """Every missing shard of two hookpoints, made by a model of the test's."""
    token_set = TokenSet(token_folder(root / "planted", tokens))
    folders = {point.name: root / "passes" / point.name for point in POINTS}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    making = {name: Work(folder, folder, ACTIVATIONS) for name, folder in folders.items()}
    sizes = {"n_contexts": token_set.n_contexts, "context": token_set.context, "hookpoints": POINTS}
    job = caching(making, **({"batch_contexts": 3} | sizes | changed))
    model = Counting(first, second)
    for shard in job.missing():
        job.make(Subject(model, POINTS, torch.device("cpu")), token_set, shard, lambda _n: None)
    return folders, model, job


def stored(folder: Path, name: str = "activations") -> Tensor:
    return torch.cat([load_file(path)[name] for path in sorted(folder.glob("shard-*.safetensors"))])
