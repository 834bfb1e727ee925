"""The baseline `random`: a TopK SAE whose decoder is noise and whose encoder is its transpose; nothing is learned but the mean.

It says what explanations are worth of directions that nobody trained. `k` is the rounded L0 of the SAE that it stands beside
(`evaluation.json` has it). Its files are in the SAELens layout.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float, Int
from pydantic import Field, model_validator

from latentry.atomic import write_atomic
from latentry.errors import ContractError, NumericsError
from latentry.randomness import rng_for
from latentry.registry import SaeConfig, Width
from latentry.saes.base import Activations, Sae
from latentry.saes.checkpoint import Checkpoint
from latentry.store import file_digest

CONFIG_FILE, WEIGHTS_FILE, CHECKPOINT_FILE = "cfg.json", "sae_weights.safetensors", "mean.safetensors"

_READ_CONTEXTS = 16


class Config(SaeConfig):
    """A random SAE of the grid; three of other seeds tell its own noise."""

    width: Width
    """Number of latents: that of the SAE beside it."""
    k: Annotated[int, Field(ge=1)]
    """Latents that fire at a token: the rounded L0 of the SAE beside it."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of its directions, joined to the run's seed."""

    @model_validator(mode="after")
    def _fits(self) -> Config:
        if self.k > self.width:
            raise ValueError(f"k is {self.k}, above the width; allowed are 1 to {self.width}")
        if self.writes is not None:
            raise ValueError("`writes` is for transcoders; a random SAE rebuilds what it reads, leave it out")
        return self


def build(config: Config, name: str, folder: Path, device: str = "cpu") -> Sae:
    """The SAE that the folder holds.

    Raises:
        ContractError: the folder holds another width or k than its entry in params.
    """
    from safetensors.torch import load_file

    described = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    if (described["d_sae"], described["k"]) != (config.width, config.k):
        raise ContractError(
            f"{folder / CONFIG_FILE}: d_sae {described['d_sae']} and k {described['k']}, wanted width {config.width} and k {config.k};"
            f" rerun `dvc repro sae@{name}`"
        )
    weights = load_file(folder / WEIGHTS_FILE, device=device)
    encoder, mean = weights["W_enc"], weights["b_dec"]
    return Sae(
        name=name,
        hookpoint=config.hookpoint,
        writes=config.hookpoint,
        loss="topk",
        d_in=described["d_in"],
        encode_block=lambda x, block: (x - mean) @ encoder[:, block],
        k=config.k,
        decoder=weights["W_dec"],
        decoder_bias=mean,
        encoder=encoder.T,
        provenance={
            "format": "random",
            "source": f"drawn here, seed {config.seed}",
            "digest": file_digest(folder / WEIGHTS_FILE),
            "architecture": described["architecture"],
            "k": config.k,
            "metadata": described["metadata"],
        },
        baseline="random",
    )


def make(
    config: Config,
    activations: Activations,
    contexts: Int[np.ndarray, " context"],
    *,
    seed: int,
    folder: Path,
    metadata: Mapping[str, Any],
    checkpoint_tokens: int,
    device: str = "cpu",  # noqa: ARG001 (its files are the same on any)
) -> None:
    """Write the SAE's files to the folder, its decoder bias the mean activation over those contexts. After a kill it goes on, at
    most `checkpoint_tokens` tokens back.

    Raises:
        NumericsError: an activation is NaN or infinite.
    """
    import torch
    from safetensors.torch import save_file

    checkpoint = Checkpoint(path=folder / CHECKPOINT_FILE, every=checkpoint_tokens)
    if not (folder / WEIGHTS_FILE).exists():
        rows = unit_rows(rng_for(seed, f"random sae {config.seed}"), config.width, activations.d_in)
        decoder, mean = torch.from_numpy(rows), torch.from_numpy(_mean(activations, contexts, checkpoint))
        weights = {"W_enc": decoder.T.contiguous(), "W_dec": decoder, "b_enc": torch.zeros(config.width), "b_dec": mean}
        text = json.dumps(_described(config, activations.d_in, metadata), indent=1, sort_keys=True) + "\n"
        write_atomic(folder / CONFIG_FILE, lambda path: path.write_text(text, encoding="utf-8"))
        write_atomic(folder / WEIGHTS_FILE, lambda path: save_file(weights, path))
    checkpoint.remove()


def check_folder(config: Config) -> None:
    """Nothing from elsewhere is read."""


def origin_digest(config: Config) -> None:
    """None: nothing is copied."""


def is_copy(config: Config, folder: Path) -> bool:  # noqa: ARG001
    """True: nothing is copied that could have changed."""
    return True


def unit_rows(rng: np.random.Generator, width: int, d_in: int) -> Float[np.ndarray, "width d_in"]:
    """Directions drawn evenly over the sphere."""
    rows = rng.standard_normal((width, d_in), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _described(config: Config, d_in: int, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """As sae-lens describes a TopK SAE."""
    shape = {"architecture": "topk", "d_in": d_in, "d_sae": config.width, "k": config.k, "dtype": "float32", "device": "cpu"}
    return shape | {"apply_b_dec_to_input": True, "normalize_activations": "none", "metadata": dict(metadata)}


def _mean(activations: Activations, contexts: Int[np.ndarray, " context"], checkpoint: Checkpoint) -> Float[np.ndarray, " d_in"]:
    import torch

    sums, so_far = checkpoint.load() or ({"total": torch.zeros(activations.d_in, dtype=torch.float64)}, {"n": 0, "next": 0})
    total, n, n_kept = sums["total"], so_far["n"], so_far["n"]
    for start in range(so_far["next"], len(contexts), _READ_CONTEXTS):
        rows = activations.rows(contexts[start : start + _READ_CONTEXTS]).double().cpu()
        total, n = total + rows.sum(dim=0), n + len(rows)
        if n - n_kept >= checkpoint.every:
            checkpoint.save({"total": total}, {"n": n, "next": start + _READ_CONTEXTS})
            n_kept = n
    if not bool(total.isfinite().all()):
        raise NumericsError("random: NaN or infinity among the activations; check `subject.dtype`, or set `activations.non_finite`")
    return (total / n).float().numpy()
