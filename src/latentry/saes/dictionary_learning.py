"""SAEs of dictionary_learning: `config.json` and `ae.pt` (tensors only), or the same tensors as `ae.safetensors`.

Computes what its `load_dictionary` and `encode` compute: in float32; BatchTopK and Matryoshka by the threshold that training learned;
an AutoEncoder's decoder at unit norm, its latents in that unit; b_dec not subtracted for JumpReLU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentry.errors import ContractError, NumericsError, UnsupportedError
from latentry.saes.base import Sae
from latentry.saes.encoders import EncodeBlock, gated, jump, linear, linear_layer, relu
from latentry.saes.pinned import Format, PinnedConfig, written_hookpoint
from latentry.saes.tensors import (
    check_shapes,
    check_width,
    checked,
    read_json,
    read_safetensors,
    read_shapes,
    read_torch,
    section,
    whole_number,
)

if TYPE_CHECKING:
    from torch import Tensor

CONFIG_FILE, TORCH_FILE, SAFE_FILE = "config.json", "ae.pt", "ae.safetensors"
FORMAT = Format(name="dictionary_learning", files=((CONFIG_FILE, SAFE_FILE), (CONFIG_FILE, TORCH_FILE)))
make, origin_digest, is_copy = FORMAT.make, FORMAT.origin_digest, FORMAT.is_copy


class Config(PinnedConfig):
    """One SAE that dictionary_learning trained."""


Parts = tuple[EncodeBlock, "Tensor | None", "Tensor", "Tensor"]
"""Encoder, its rows (`Sae.encoder`), decoder rows and decoder bias."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Class:
    """One of its classes."""

    loss: str
    shapes: Callable[[int, int], dict[str, tuple[int, ...]]]
    """From d_in and width to the tensors it is made of."""
    parts: Callable[[Path, Mapping[str, Tensor]], Parts]
    numbers: tuple[str, ...] = ()
    """Saved beside the weights: `k`, `threshold`, `group_sizes`."""

    @property
    def besides(self) -> tuple[str, ...]:
        """What may stand beside the weights; a TopK keeps a threshold that it has no use for."""
        return (*self.numbers, "threshold") if self.loss == "topk" else self.numbers


def build(config: Config, name: str, folder: Path, device: str = "cpu") -> Sae:
    """The SAE that the folder holds, checked against its entry in params.

    Raises:
        SourceError: a file is missing, or holds more than tensors.
        ContractError: keys, shapes, width, k or threshold are not those wanted.
        NumericsError: a weight is NaN or infinite.
        UnsupportedError: a class that has no latents of its own, or that is not known.
    """
    import torch

    names = FORMAT.names_in(folder)
    trainer = _trainer(config, folder)
    kind, path = _CLASSES[trainer["dict_class"]], folder / names[1]
    found = read_safetensors(path, device) if path.name == SAFE_FILE else read_torch(path, device)
    shapes = kind.shapes(trainer["activation_dim"], config.width)
    weights = checked(path, found, shapes, torch.float32, besides=kind.besides)
    _check_numbers(path, kind, found, trainer)
    encode_block, encoder, rows, bias = kind.parts(path, weights | {name: found[name] for name in kind.numbers if name in found})
    k = trainer.get("k")
    return Sae(
        name=name,
        hookpoint=config.hookpoint,
        writes=written_hookpoint(config, folder / CONFIG_FILE, is_transcoder=False),
        loss=kind.loss,
        d_in=trainer["activation_dim"],
        encode_block=encode_block,
        k=k if kind.loss == "topk" else None,
        decoder=rows,
        decoder_bias=bias,
        encoder=encoder,
        provenance=FORMAT.provenance(folder, architecture=trainer["dict_class"], k=k, metadata=_metadata(folder, trainer)),
    )


def check_folder(config: Config) -> dict[str, Any] | None:
    """Look at a SAE in a local folder without reading its weights; returns what is said of its training, None where it is not here.

    Raises:
        SourceError, ContractError, UnsupportedError: as `build`.
    """
    if config.folder is None:
        return None
    folder = FORMAT.opened(config)
    trainer, path = _trainer(config, folder), folder / FORMAT.names_in(folder)[1]
    found = read_shapes(path)
    if found is not None:
        kind = _CLASSES[trainer["dict_class"]]
        check_shapes(path, found, kind.shapes(trainer["activation_dim"], config.width), besides=kind.besides)
    return FORMAT.metadata(config.folder, _metadata(folder, trainer)) | {"d_in": trainer["activation_dim"]}


def _trainer(config: Config, folder: Path) -> dict[str, Any]:
    """What the configuration says of the SAE, checked."""
    path = folder / CONFIG_FILE
    trainer = read_json(path).get("trainer")
    if not isinstance(trainer, dict):
        raise ContractError(
            f"{path}: trainer is {trainer!r}, wanted an object with dict_class, activation_dim and dict_size; save the SAE again"
        )
    if str(trainer.get("dict_class")) not in _CLASSES:
        raise UnsupportedError(f"{path}: dict_class {trainer.get('dict_class')!r}; supported are {', '.join(_CLASSES)}: use a SAE of those")
    whole_number(path, "activation_dim", trainer.get("activation_dim"))
    check_width(path, "dict_size", trainer.get("dict_size"), config.width)
    if "k" in _CLASSES[trainer["dict_class"]].numbers:
        whole_number(path, "k", trainer.get("k"), most=config.width)
    return trainer


def _check_numbers(path: Path, kind: _Class, found: Mapping[str, Tensor], trainer: Mapping[str, Any]) -> None:
    """What the file saves beside its weights, against the configuration."""
    k, threshold = (found[key].item() if key in found and found[key].numel() == 1 else None for key in ("k", "threshold"))
    if "k" in found and k != trainer.get("k"):
        raise ContractError(f"{path}: k is {k}, but {CONFIG_FILE} says {trainer.get('k')!r}, wanted the same; is it that of another SAE?")
    if "threshold" not in kind.numbers:
        return
    if threshold is None:
        raise ContractError(f"{path}: lacks ['threshold'], one number; found {sorted(found)}; save the SAE with a version that keeps it")
    if not threshold >= 0:
        raise ContractError(
            f"{path}: threshold is {threshold:g}, which means that training never set it; wanted 0 or more, without it every latent above 0"
            " would fire: train past `threshold_start_step`, or set it from the least activation that a batch takes"
        )


def _metadata(folder: Path, trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Subject, hookpoint and context as the configuration names them."""
    buffer = section(folder / CONFIG_FILE, read_json(folder / CONFIG_FILE), "buffer")
    submodule, layer = trainer.get("submodule_name"), trainer.get("layer")
    site = next((ending for word, ending in _SITES.items() if submodule is None or str(submodule).startswith(word)), None)
    named = f"layers.{layer}{site}" if site is not None and isinstance(layer, int) else None
    return {
        "model_name": trainer.get("lm_name"),
        "hf_hook_name": named,
        "submodule_name": submodule,
        "context_size": buffer.get("ctx_len"),
    }


_SITES = {"resid_post": "", "mlp_out": ".mlp", "attention_out": ".attention", "attn_out": ".attention"}
"""How its scripts name what they train on, and the module whose output that is; without a name it is the block's."""


def _linear_shapes(vectors: Mapping[str, str]) -> Callable[[int, int], dict[str, tuple[int, ...]]]:
    """An encoder and a decoder that are linear layers, and vectors as long as the input (`in`) or the width."""

    def shapes(d_in: int, width: int) -> dict[str, tuple[int, ...]]:
        lengths: dict[str, tuple[int, ...]] = {name: (d_in if length == "in" else width,) for name, length in vectors.items()}
        return {"encoder.weight": (width, d_in), "decoder.weight": (d_in, width), **lengths}

    return shapes


def _matrix_shapes(*more: str) -> Callable[[int, int], dict[str, tuple[int, ...]]]:
    def shapes(d_in: int, width: int) -> dict[str, tuple[int, ...]]:
        vectors: dict[str, tuple[int, ...]] = dict.fromkeys(("b_enc", *more), (width,))
        return {"W_enc": (d_in, width), "W_dec": (width, d_in), "b_dec": (d_in,), **vectors}

    return shapes


def _auto_encoder(path: Path, held: Mapping[str, Tensor]) -> Parts:
    """Its decoder at unit norm, unless it nearly is already: the latents are then in that unit."""
    import torch

    norms, encoder, bias = held["decoder.weight"].norm(dim=0), held["encoder.weight"], held["encoder.bias"]
    rows = held["decoder.weight"].T
    if not bool((norms > 0).all()):
        raise NumericsError(
            f"{path}: {int((norms == 0).sum())} decoder columns are 0, wanted unit norm or what can be brought to it; drop those latents"
        )
    if not torch.allclose(norms, torch.ones_like(norms)):
        rows, encoder, bias = rows / norms.unsqueeze(-1), encoder * norms.unsqueeze(-1), bias * norms
    return linear_layer(encoder, bias, relu, shift=held["bias"]), encoder, rows.contiguous(), held["bias"]


def _auto_encoder_new(path: Path, held: Mapping[str, Tensor]) -> Parts:  # noqa: ARG001
    encode_block = linear_layer(held["encoder.weight"], held["encoder.bias"], relu)
    return encode_block, held["encoder.weight"], held["decoder.weight"].T.contiguous(), held["decoder.bias"]


def _gated_auto_encoder(path: Path, held: Mapping[str, Tensor]) -> Parts:  # noqa: ARG001
    encode_block = gated(
        held["encoder.weight"].T,
        scale=held["r_mag"].exp(),
        gate_bias=held["gate_bias"],
        magnitude_bias=held["mag_bias"],
        shift=held["decoder_bias"],
    )
    return encode_block, None, held["decoder.weight"].T.contiguous(), held["decoder_bias"]


def _top_k(path: Path, held: Mapping[str, Tensor]) -> Parts:  # noqa: ARG001
    encode_block = linear_layer(held["encoder.weight"], held["encoder.bias"], relu, shift=held["b_dec"])
    return encode_block, held["encoder.weight"], held["decoder.weight"].T.contiguous(), held["b_dec"]


def _batch_top_k(path: Path, held: Mapping[str, Tensor]) -> Parts:  # noqa: ARG001
    activate = jump(held["threshold"].float().expand(len(held["encoder.bias"])))
    encode_block = linear_layer(held["encoder.weight"], held["encoder.bias"], activate, shift=held["b_dec"])
    return encode_block, held["encoder.weight"], held["decoder.weight"].T.contiguous(), held["b_dec"]


def _matryoshka(path: Path, held: Mapping[str, Tensor]) -> Parts:  # noqa: ARG001
    activate = jump(held["threshold"].float().expand(len(held["b_enc"])))
    return linear(held["W_enc"], held["b_enc"], activate, shift=held["b_dec"]), held["W_enc"].T, held["W_dec"], held["b_dec"]


def _jump_relu(path: Path, held: Mapping[str, Tensor]) -> Parts:  # noqa: ARG001
    return linear(held["W_enc"], held["b_enc"], jump(held["threshold"])), held["W_enc"].T, held["W_dec"], held["b_dec"]


_BIAS = {"encoder.bias": "width"}
_GATES = {"decoder_bias": "in", "r_mag": "width", "gate_bias": "width", "mag_bias": "width"}
_CLASSES = {
    "AutoEncoder": _Class(loss="standard", shapes=_linear_shapes({"bias": "in"} | _BIAS), parts=_auto_encoder),
    "AutoEncoderNew": _Class(loss="standard", shapes=_linear_shapes({"decoder.bias": "in"} | _BIAS), parts=_auto_encoder_new),
    "GatedAutoEncoder": _Class(loss="gated", shapes=_linear_shapes(_GATES), parts=_gated_auto_encoder),
    "AutoEncoderTopK": _Class(loss="topk", shapes=_linear_shapes({"b_dec": "in"} | _BIAS), parts=_top_k, numbers=("k",)),
    "BatchTopKSAE": _Class(
        loss="batchtopk", shapes=_linear_shapes({"b_dec": "in"} | _BIAS), parts=_batch_top_k, numbers=("k", "threshold")
    ),
    "MatryoshkaBatchTopKSAE": _Class(
        loss="matryoshka_batchtopk", shapes=_matrix_shapes(), parts=_matryoshka, numbers=("k", "threshold", "group_sizes")
    ),
    "JumpReluAutoEncoder": _Class(loss="jumprelu", shapes=_matrix_shapes("threshold"), parts=_jump_relu),
}
