"""The baseline `neurons`: an MLP's own neurons as latents, those of largest size at each token; nothing is trained.

Its hookpoint is the input of the MLP's down projection (`{module: model.layers.15.mlp.down_proj, side: input}`). A neuron fires in
both directions, so that n neurons are 2n latents; what is left out is the error, so FVU is that of keeping k.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from jaxtyping import Float, Int
from pydantic import Field, model_validator

from latentry.atomic import write_atomic
from latentry.errors import ContractError
from latentry.randomness import rng_for
from latentry.registry import SaeConfig
from latentry.saes.base import Activations, Sae, signed_blocks
from latentry.store import digest_of, file_digest

if TYPE_CHECKING:
    from torch import Tensor

CONFIG_FILE, ROTATION_FILE = "neurons.json", "rotation.safetensors"


class Config(SaeConfig):
    """The neurons of one MLP, or directions at random among them."""

    k: Annotated[int, Field(ge=1)]
    """Neurons that fire at a token: the rounded L0 of the SAE beside them."""
    rotate: bool = False
    """Turn the neurons' space by a random rotation first: the same information without the neurons' own directions."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the rotation, joined to the run's seed."""

    @model_validator(mode="after")
    def _fits(self) -> Config:
        if self.seed and not self.rotate:
            raise ValueError(f"seed is {self.seed}; only with `rotate: true` is anything drawn")
        if self.writes is not None:
            raise ValueError("`writes` is for transcoders; neurons rebuild what they are, leave it out")
        return self


def build(config: Config, name: str, folder: Path, device: str = "cpu") -> Sae:
    """The neurons that the folder describes.

    Raises:
        ContractError: the folder holds other neurons than its entry in params.
    """
    import torch

    described = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    if (described["k"], described["rotate"]) != (config.k, config.rotate):
        raise ContractError(
            f"{folder / CONFIG_FILE}: k {described['k']}, rotate {described['rotate']}; wanted {config.k}, {config.rotate};"
            f" rerun `dvc repro sae@{name}`"
        )
    n = described["d_in"]
    rows = _rotation(folder, device) if config.rotate else torch.eye(n, device=device)

    def encode_block(x: Tensor, block: slice) -> Tensor:
        return x @ rows[block].T if config.rotate else x[:, block]

    both = torch.cat([rows, -rows])
    return Sae(
        name=name,
        hookpoint=config.hookpoint,
        writes=config.hookpoint,
        loss="none",
        d_in=n,
        encode_block=signed_blocks(encode_block, n),
        k=config.k,
        decoder=both,
        encoder=both,
        decoder_bias=torch.zeros(n, device=device),
        signed=True,
        provenance={
            "format": "neurons",
            "source": f"the subject's own, rotated by seed {config.seed}" if config.rotate else "the subject's own",
            "digest": file_digest(folder / ROTATION_FILE) if config.rotate else digest_of(described),
            "architecture": "neurons",
            "k": config.k,
            "metadata": described["metadata"],
        },
        baseline="neurons",
    )


def make(
    config: Config,
    activations: Activations,
    contexts: Int[np.ndarray, " context"],  # noqa: ARG001 (nothing is learned of them)
    *,
    seed: int,
    folder: Path,
    metadata: Mapping[str, Any],
    checkpoint_tokens: int,  # noqa: ARG001
    device: str = "cpu",  # noqa: ARG001 (its files are the same on any)
) -> None:
    """Write what describes the neurons to the folder, and their rotation.

    Raises:
        ContractError: there are fewer neurons than k.
    """
    from safetensors.numpy import save_file

    n = activations.d_in
    if config.k > n:
        raise ContractError(f"neurons: k is {config.k}, the hookpoint {config.hookpoint!r} has {n}; lower `k`, or name an MLP's neurons")
    if config.rotate:
        rows = rotation(rng_for(seed, f"rotated neurons {config.seed}"), n)
        write_atomic(folder / ROTATION_FILE, lambda path: save_file({"rotation": rows}, path))
    described = {"d_in": n, "k": config.k, "rotate": config.rotate, "metadata": dict(metadata)}
    text = json.dumps(described, indent=1, sort_keys=True) + "\n"
    write_atomic(folder / CONFIG_FILE, lambda path: path.write_text(text, encoding="utf-8"))


def check_folder(config: Config) -> None:
    """Nothing from elsewhere is read."""


def origin_digest(config: Config) -> None:
    """None: nothing is copied."""


def is_copy(config: Config, folder: Path) -> bool:  # noqa: ARG001
    """True: nothing is copied that could have changed."""
    return True


def rotation(rng: np.random.Generator, n: int) -> Float[np.ndarray, "width d_in"]:
    """An orthogonal matrix drawn evenly from all: the Q of Gaussian noise, with the signs that make it unique (Mezzadri 2007)."""
    q, r = np.linalg.qr(rng.standard_normal((n, n)))
    return np.ascontiguousarray((q * np.sign(np.diag(r))).T, dtype=np.float32)


def _rotation(folder: Path, device: str) -> Tensor:
    from safetensors.torch import load_file

    return load_file(folder / ROTATION_FILE, device=device)["rotation"]
