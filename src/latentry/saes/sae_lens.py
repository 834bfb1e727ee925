"""SAEs in the SAELens 6 layout (`cfg.json`, `sae_weights.safetensors`), trained here or copied from a folder.

Computes what sae-lens computes, without its 5 s import; sae-lens itself is the oracle of the tests. What it cannot
reproduce exactly (normalised or reshaped activations, other architectures) it refuses.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from jaxtyping import Int
from pydantic import Field, model_validator

from latentry.errors import ContractError, NumericsError, SourceError, UnsupportedError
from latentry.registry import SaeConfig
from latentry.saes.base import Activations, Sae
from latentry.saes.recipe import TrainConfig
from latentry.store import digest_of, file_digest

if TYPE_CHECKING:
    from torch import Tensor

CONFIG_FILE, WEIGHTS_FILE = "cfg.json", "sae_weights.safetensors"

ARCHITECTURE_OF = {
    "standard": "standard",
    "topk": "topk",
    "jumprelu": "jumprelu",
    "gated": "gated",
    "batchtopk": "jumprelu",
    "matryoshka_batchtopk": "jumprelu",
}
"""How sae-lens stores a SAE of each training loss."""

_ENCODER_KEYS = {
    "standard": ("b_enc",),
    "topk": ("b_enc",),
    "jumprelu": ("b_enc", "threshold"),
    "gated": ("b_gate", "b_mag", "r_mag"),
}


class Config(SaeConfig):
    """One SAE of the grid: trained in the DAG (`train`), or read from a folder (`folder`)."""

    width: Annotated[int, Field(ge=1)]
    """Number of latents."""
    loss: Literal["topk", "jumprelu", "standard", "gated", "batchtopk", "matryoshka_batchtopk"]
    """Training loss, and the label of the SAE in every comparison; `standard` is L1. The first three can be trained here."""
    train: TrainConfig | None = None
    """The recipe; exactly one of `train` and `folder`."""
    folder: Path | None = None
    """A folder in the SAELens layout; it is copied, and the copy is what is read."""

    @model_validator(mode="after")
    def _one_origin(self) -> Config:
        if (self.train is None) == (self.folder is None):
            found = "neither" if self.train is None else "both"
            raise ValueError(f"found {found} of `train` and `folder`; name exactly one")
        if self.train is not None:
            self.train.check(self.loss, self.width)
        return self


def build(config: Config, name: str, folder: Path, device: str = "cpu") -> Sae:
    """The SAE that the folder holds, checked against its entry in params.

    Raises:
        SourceError: a file is missing, or holds a pickle.
        ContractError: keys, shapes, width or loss are not those wanted.
        NumericsError: a weight is NaN or infinite.
        UnsupportedError: an architecture or option whose result sae-lens alone computes.
    """
    described = _read_config(folder)
    architecture = _architecture(folder, described, config.loss)
    _check_sizes(folder, architecture, described, config.width)
    weights = _read_weights(folder, architecture, described["d_in"], config.width, device)
    rows, scale = weights["W_dec"], None
    if described.get("rescale_acts_by_decoder_norm"):
        scale = rows.norm(dim=-1)
        rows = rows / scale.unsqueeze(-1)
    return Sae(
        name=name,
        hookpoint=config.hookpoint,
        writes=config.writes or config.hookpoint,
        loss=config.loss,
        d_in=described["d_in"],
        encode_block=_encoder(architecture, weights, described, scale),
        k=described["k"] if architecture == "topk" else None,
        decoder=rows,
        decoder_bias=weights["b_dec"],
        provenance={key: described[key] for key in ("architecture", "k", "metadata") if key in described},
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
    device: str = "cpu",
) -> int | None:
    """Write the SAE's files to the folder: trained on those contexts, or copied. Returns on how many tokens it was
    trained here, None where others trained it. After a kill it goes on, at most `checkpoint_tokens` tokens back."""
    if config.folder is not None:
        check_folder(config)
        copy_weights(config.folder, folder)
        return None
    if config.train is None:
        raise UnsupportedError("a SAE has `train` or `folder`; params.yaml's check lets no other pass")
    from latentry.saes.training import train

    return train(
        config.train,
        loss=config.loss,
        width=config.width,
        activations=activations,
        contexts=contexts,
        seed=seed,
        folder=folder,
        metadata=metadata,
        checkpoint_tokens=checkpoint_tokens,
        device=device,
    )


def check_folder(config: Config) -> None:
    """Look at a SAE from elsewhere without reading its weights.

    Raises:
        SourceError, ContractError, UnsupportedError: as `build`.
    """
    if config.folder is not None:
        described = _read_config(config.folder)
        _check_sizes(config.folder, _architecture(config.folder, described, config.loss), described, config.width)
        origin_digest(config)


def origin_digest(config: Config) -> str | None:
    """Digest of the files that are copied, so that others in their place are noticed; None for a SAE that is trained here.

    Raises:
        SourceError: a file is missing.
    """
    return None if config.folder is None else _digest(config.folder)


def is_copy(config: Config, folder: Path) -> bool:
    """Whether a folder holds what would be copied now."""
    return config.folder is None or _digest(config.folder) == _digest(folder)


def _digest(folder: Path) -> str:
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise SourceError(_missing(folder, name))
    return digest_of([file_digest(folder / name) for name in (CONFIG_FILE, WEIGHTS_FILE)])


def copy_weights(source: Path, folder: Path) -> None:
    """Pin a SAE from elsewhere: its two files, and nothing else of its folder."""
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        shutil.copyfile(source / name, folder / name)


def _missing(folder: Path, name: str) -> str:
    there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else "no such folder"
    return f"{folder}: no {name} (found: {there}); a SAELens folder holds {CONFIG_FILE} and {WEIGHTS_FILE}, and pickles are never read"


def _read_config(folder: Path) -> Mapping[str, Any]:
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise SourceError(_missing(folder, CONFIG_FILE))
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ContractError(f"{path}: unreadable JSON ({error}); save the SAE again") from error
    if not isinstance(described, dict):
        raise ContractError(f"{path}: holds a {type(described).__name__}, wanted an object; save the SAE again")
    return described


def _architecture(folder: Path, described: Mapping[str, Any], loss: str) -> str:
    path, architecture = folder / CONFIG_FILE, described.get("architecture")
    if architecture not in _ENCODER_KEYS:
        raise UnsupportedError(f"{path}: architecture {architecture!r}; supported are {', '.join(sorted(_ENCODER_KEYS))}")
    for option in ("normalize_activations", "reshape_activations"):
        if described.get(option, "none") != "none":
            raise UnsupportedError(f"{path}: {option} {described[option]!r}; supported is 'none' (fold it into the weights with sae-lens)")
    trained_as = (described.get("metadata") or {}).get("training_architecture") or architecture
    if ARCHITECTURE_OF[loss] != architecture or (trained_as != architecture and trained_as != loss):
        raise ContractError(f"{path}: trained as {trained_as!r}, stored as {architecture!r}, but params say loss {loss!r}; correct `loss`")
    return architecture


def _read_weights(folder: Path, architecture: str, d_in: int, width: int, device: str) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / WEIGHTS_FILE
    if not path.is_file():
        raise SourceError(_missing(folder, WEIGHTS_FILE))
    try:
        weights = load_file(path, device=device)
    except SafetensorError as error:
        raise SourceError(f"{path}: no safetensors file ({error}); pickles are never read, convert it with sae-lens") from error
    shapes = {"W_enc": (d_in, width), "W_dec": (width, d_in), "b_dec": (d_in,)} | dict.fromkeys(_ENCODER_KEYS[architecture], (width,))
    _check_tensors(path, weights, shapes)
    dtype = weights["W_dec"].dtype
    return {key: weights[key].to(dtype) for key in shapes}


def _check_sizes(folder: Path, architecture: str, described: Mapping[str, Any], width: int) -> None:
    path, d_in, k = folder / CONFIG_FILE, described.get("d_in"), described.get("k")
    if not isinstance(d_in, int):
        raise ContractError(f"{path}: d_in is {d_in!r}, wanted a whole number; save the SAE again")
    if described.get("d_sae") != width:
        raise ContractError(f"{path}: d_sae is {described.get('d_sae')!r}, but params say width {width}; correct `width`")
    if architecture == "topk" and not (isinstance(k, int) and 1 <= k <= width):
        raise ContractError(f"{path}: k is {k!r}, wanted a whole number from 1 to the width {width}; save the SAE again")


def _check_tensors(path: Path, weights: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    missing = sorted(set(shapes) - set(weights))
    if missing:
        raise ContractError(f"{path}: lacks {missing}; found {sorted(weights)}, wanted {sorted(shapes)}; is `architecture` the right one?")
    for key, wanted in shapes.items():
        found = tuple(weights[key].shape)
        if found != wanted:
            hint = "it is stored transposed" if found == wanted[::-1] else "is this the file of another SAE?"
            raise ContractError(f"{path}: {key} has shape {found}, wanted {wanted}; {hint}")
        if not weights[key].is_floating_point():
            raise ContractError(f"{path}: {key} is {weights[key].dtype}, wanted a floating-point tensor; save the SAE again")
        if not bool(weights[key].isfinite().all()):
            raise NumericsError(f"{path}: {key} holds NaN or infinity; its training diverged, or the file is damaged")


def _encoder(
    architecture: str, weights: Mapping[str, Tensor], described: Mapping[str, Any], scale: Tensor | None
) -> Callable[[Tensor, slice], Tensor]:
    shift = weights["b_dec"] if described.get("apply_b_dec_to_input", True) else weights["b_dec"] * 0
    if architecture == "gated":
        return _gated(weights, shift)
    matrix, bias = weights["W_enc"], weights["b_enc"]
    activate = {"topk": lambda pre, _: pre, "jumprelu": _jump(weights), "standard": lambda pre, _: pre.relu_()}[architecture]

    def encode_block(x: Tensor, block: slice) -> Tensor:
        # in place: a block takes its memory once
        pre = ((x - shift) @ matrix[:, block]).add_(bias[block])
        return activate(pre if scale is None else pre.mul_(scale[block]), block)

    return encode_block


def _jump(weights: Mapping[str, Tensor]) -> Callable[[Tensor, slice], Tensor]:
    def activate(pre: Tensor, block: slice) -> Tensor:
        silent = pre <= weights["threshold"][block]
        return pre.relu_().masked_fill_(silent, 0)

    return activate


def _gated(weights: Mapping[str, Tensor], shift: Tensor) -> Callable[[Tensor, slice], Tensor]:
    matrix, scale = weights["W_enc"], weights["r_mag"].exp()

    def encode_block(x: Tensor, block: slice) -> Tensor:
        shared = (x - shift) @ matrix[:, block]
        shut = shared <= -weights["b_gate"][block]
        return shared.mul_(scale[block]).add_(weights["b_mag"][block]).relu_().masked_fill_(shut, 0)

    return encode_block
