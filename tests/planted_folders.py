"""Finished folders of the first stages, written through the store as the stages write them, with contents that the test knows."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from latentry.contracts import ACTIVATIONS, LATENTS, TOKENS, Contract
from latentry.store import Work, work


def finish(out: Path, contract: Contract, fill: Callable[[Work], Any], params: Mapping[str, Any] | None = None) -> Path:
    """One finished folder, filled by the test, in place of any that stands there."""
    shutil.rmtree(out, ignore_errors=True)
    with work(out, contract, cell=out.name, params={"out": str(out), **(params or {})}) as making:
        assert making is not None
        fill(making)
    return out


def token_folder(out: Path, tokens: np.ndarray, special: np.ndarray | None = None, texts: Sequence[str] = ("",)) -> Path:
    """`data/tokens` in which every position is of document 0 and spans no characters."""
    zeros = np.zeros(tokens.shape, dtype=np.uint32)
    special = np.zeros(tokens.shape) if special is None else special

    def fill(making: Work) -> None:
        arrays = {"tokens": tokens.astype(np.uint32), "document": zeros.astype(np.int32), "text_start": zeros, "text_end": zeros}
        making.write_arrays("tokens.safetensors", arrays | {"special": special.astype(np.uint8)})
        making.write_table("documents.parquet", [{"document": i, "name": str(i), "text": text} for i, text in enumerate(texts)])

    return finish(out, TOKENS, fill)


def activation_folder(out: Path, x: torch.Tensor, kept: np.ndarray, shard_contexts: int) -> Path:
    """`data/activations/<hookpoint>` of x [context, position, d_in]."""

    def fill(making: Work) -> None:
        for number, first in enumerate(range(0, len(x), shard_contexts)):
            shard = {"activations": x[first : first + shard_contexts].flatten(0, 1).contiguous()}
            making.write_file(f"shard-{number:05d}.safetensors", lambda path, shard=shard: save_file(shard, path))
        norm = x.float().norm(dim=-1).numpy()
        making.write_arrays("positions.safetensors", {"kept": kept.astype(np.uint8), "norm": norm})
        making.write_json("hookpoint.json", {"d_in": x.shape[-1], "module": "layers.0", "side": "output", "subject": "planted"})
        making.counts["shard_contexts"] = shard_contexts

    return finish(out, ACTIVATIONS, fill)


def latent_work(folder: Path) -> Work:
    """A folder of latents in the making."""
    folder.mkdir(parents=True, exist_ok=True)
    return Work(folder, folder, LATENTS)
