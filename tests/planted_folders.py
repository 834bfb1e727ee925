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
        making.write_arrays("shard-00000.safetensors", arrays | {"special": special.astype(np.uint8)})
        making.counts["begins_with_bos"] = False
        making.write_table("documents.parquet", [{"document": i, "name": str(i), "text": text} for i, text in enumerate(texts)])

    return finish(out, TOKENS, fill)


def activation_folder(out: Path, x: torch.Tensor, kept: np.ndarray, shard_contexts: int) -> Path:
    """`data/activations/<hookpoint>` of x [context, position, d_in]."""

    described = {"hookpoint": out.name, "module": "layers.0", "side": "output", "subject": "planted", "subject_dtype": "float32"}
    described |= {"d_in": x.shape[-1], "dtype": str(x.dtype).removeprefix("torch."), "stored": True, "attention": "sdpa"}
    described |= {"quantisation": None, "median_norm": 1.0, "n_special": 0, "n_attention_sinks": 0, "n_dropped_contexts": 0}

    def fill(making: Work) -> None:
        for number, first in enumerate(range(0, len(x), shard_contexts)):
            part = x[first : first + shard_contexts].flatten(0, 1)
            shard = {"activations": part.contiguous(), "norm": part.float().norm(dim=-1)}
            making.write_file(f"shard-{number:05d}.safetensors", lambda path, shard=shard: save_file(shard, path))
        making.write_arrays("positions.safetensors", {"kept": kept.astype(np.uint8)})
        making.write_json("hookpoint.json", described)

    return finish(out, ACTIVATIONS, fill)


def latent_work(folder: Path) -> Work:
    """A folder of latents in the making."""
    folder.mkdir(parents=True, exist_ok=True)
    return Work(folder, folder, LATENTS)
