"""The SAELens layout (`cfg.json`, `sae_weights.safetensors`), of SAELens 6 and before: read, checked, and computed as sae-lens computes it.

Without sae-lens's import of 5 s; it is the oracle of the tests. Computes in the dtype that the configuration names, as sae-lens does.
What a row alone does not decide it refuses by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentry.errors import ContractError, UnsupportedError
from latentry.saes.base import signed_blocks
from latentry.saes.encoders import EncodeBlock, gated, jump, linear, relu, scaled, unchanged
from latentry.saes.tensors import (
    check_shapes,
    check_width,
    checked,
    dtype_of,
    read_json,
    read_safetensors,
    read_shapes,
    section,
    whole_number,
)

if TYPE_CHECKING:
    from torch import Tensor

CONFIG_FILE, WEIGHTS_FILE, RUN_FILE = "cfg.json", "sae_weights.safetensors", "runner_cfg.json"

ARCHITECTURE_OF = {
    "standard": "standard",
    "topk": "topk",
    "jumprelu": "jumprelu",
    "gated": "gated",
    "abstopk": "abstopk",
    "batchtopk": "jumprelu",
    "matryoshka_batchtopk": "jumprelu",
    "transcoder": "transcoder",
    "skip_transcoder": "skip_transcoder",
    "batchtopk_transcoder": "jumprelu_transcoder",
    "batchtopk_skip_transcoder": "jumprelu_skip_transcoder",
    "jumprelu_transcoder": "jumprelu_transcoder",
    "jumprelu_skip_transcoder": "jumprelu_skip_transcoder",
}
"""How sae-lens stores a SAE of each training loss."""

_ENCODER_KEYS = {
    "standard": ("b_enc",),
    "gated": ("b_gate", "b_mag", "r_mag"),
    "topk": ("b_enc",),
    "abstopk": ("b_enc",),
    "jumprelu": ("b_enc", "threshold"),
    "transcoder": ("b_enc",),
    "skip_transcoder": ("b_enc",),
    "jumprelu_transcoder": ("b_enc", "threshold"),
    "jumprelu_skip_transcoder": ("b_enc", "threshold"),
}
NOT_BY_ROW = {
    "temporal": "its latents depend on the tokens before, not on one row alone",
    "matching_pursuit": "each latent it takes depends on those taken before, over the whole width at once",
}
_NORMALISATIONS = ("none", "layer_norm", "constant_norm_rescale")
_LAYER_NORM_EPSILON = 1e-5
_OLD_NAMES = {"hook_point": "hook_name", "hook_point_head_index": "hook_head_index"}
_OLD_METADATA = (
    "model_name",
    "hook_name",
    "hook_head_index",
    "context_size",
    "prepend_bos",
    "dataset_path",
    "hook_name_out",
    "hf_hook_name",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a folder holds, ready to be a `Sae`; of a signed SAE already in its two directions."""

    architecture: str
    d_in: int
    encode_block: EncodeBlock
    k: int | None
    decoder: Tensor
    decoder_bias: Tensor
    encoder: Tensor | None
    """As `Sae.encoder`."""
    skip: Tensor | None
    restore: Callable[[Tensor, Tensor], Tensor] | None
    signed: bool
    is_transcoder: bool
    declared_k: int | None
    """As its configuration says, also where it is no TopK: how many latents should fire."""
    metadata: Mapping[str, Any]


def read_parts(folder: Path, width: int, loss: str, device: str) -> Parts:
    """The SAE of a folder, checked against the width and the loss that params name.

    Raises:
        SourceError: the weights are no safetensors file.
        ContractError: keys, shapes, width or loss are not those wanted.
        NumericsError: a weight is NaN or infinite.
        UnsupportedError: an architecture or option that cannot be computed row by row.
    """
    described = read_described(folder, width, loss)
    weights = _weights(folder / WEIGHTS_FILE, described, width, device)
    architecture, rows, into = described["architecture"], weights["W_dec"], _normalisation(described)
    encoder = weights["W_enc"].T if into is None and architecture != "gated" else None
    encode_block = _encoder(architecture, weights, described)
    if described.get("rescale_acts_by_decoder_norm"):
        norms = rows.norm(dim=-1)
        encode_block, rows = scaled(encode_block, norms), rows / norms.unsqueeze(-1)
        encoder = None if encoder is None else encoder * norms.unsqueeze(-1)
    if into is not None:
        encode_block = _of_normalised(encode_block, into)
    signed, is_transcoder = architecture == "abstopk", architecture.endswith("transcoder")
    if signed:
        import torch

        encode_block, rows = signed_blocks(encode_block, width), torch.cat([rows, -rows])
        encoder = None if encoder is None else torch.cat([encoder, -encoder])
    return Parts(
        architecture=architecture,
        d_in=described["d_in"],
        encode_block=encode_block,
        k=described["k"] if architecture in ("topk", "abstopk") else None,
        decoder=rows,
        decoder_bias=weights["b_dec"],
        encoder=encoder,
        skip=weights.get("W_skip"),
        # sae-lens leaves a transcoder's output in the scale of the normalised input
        restore=None if into is None or is_transcoder else _restoring(described),
        signed=signed,
        is_transcoder=is_transcoder,
        declared_k=described.get("k"),
        metadata=described["metadata"],
    )


def read_described(folder: Path, width: int, loss: str) -> dict[str, Any]:
    """The configuration as SAELens 6 writes it, checked; of one written before 6, its equal.

    Raises:
        ContractError, UnsupportedError: as `read_parts`.
    """
    path = folder / CONFIG_FILE
    described = _as_6(path, read_json(path))
    architecture = str(described.get("architecture"))
    if architecture not in _ENCODER_KEYS:
        why = f" ({NOT_BY_ROW[architecture]})" if architecture in NOT_BY_ROW else ""
        raise UnsupportedError(
            f"{path}: architecture {architecture!r}{why}; supported are {', '.join(sorted(_ENCODER_KEYS))}: use a SAE of those"
        )
    _check_options(path, described)
    _check_loss(folder, described, loss)
    whole_number(path, "d_in", described.get("d_in"))
    check_width(path, "d_sae", described.get("d_sae"), width)
    if architecture.endswith("transcoder"):
        whole_number(path, "d_out", described.get("d_out"))
    if architecture in ("topk", "abstopk"):
        whole_number(path, "k", described.get("k"), most=width)
    return described


def _as_6(path: Path, described: Mapping[str, Any]) -> dict[str, Any]:
    """Before SAELens 6 there was no `metadata`, TopK was an activation function of `standard`, and hookpoints had other names."""
    if "metadata" in described:
        return {**described, "metadata": dict(section(path, described, "metadata"))}
    named = {_OLD_NAMES.get(key, key): value for key, value in described.items()}
    function, options = named.get("activation_fn_str", named.get("activation_fn", "relu")), section(path, named, "activation_fn_kwargs")
    if function not in ("relu", "topk"):
        raise UnsupportedError(f"{path}: activation_fn_str {function!r}; supported are relu, topk: use a SAE of those")
    if named.get("finetuning_scaling_factor"):
        raise UnsupportedError(
            f"{path}: finetuning_scaling_factor is {named['finetuning_scaling_factor']}; supported is false: fold it into W_dec"
        )
    named["architecture"] = "topk" if function == "topk" else named.get("architecture", "standard")
    if function == "topk":
        named["k"] = options.get("k", named.get("k"))
    normalised = named.get("normalize_activations")
    named["normalize_activations"] = "expected_average_only_in" if normalised is True else normalised or "none"
    return {**named, "metadata": {key: named[key] for key in _OLD_METADATA if key in named}}


def _check_options(path: Path, described: Mapping[str, Any]) -> None:
    normalised, reshaped = described.get("normalize_activations", "none"), described.get("reshape_activations", "none")
    if normalised not in _NORMALISATIONS:
        how = "its factor is not in the file: fold it with sae-lens (`fold_activation_norm_scaling_factor`) and save the SAE again"
        raise UnsupportedError(
            f"{path}: normalize_activations {normalised!r}; supported are {', '.join(map(repr, _NORMALISATIONS))};"
            f" {how if normalised == 'expected_average_only_in' else 'fold it into the weights with sae-lens and save the SAE again'}"
        )
    if reshaped not in ("none", "hook_z"):
        raise UnsupportedError(f"{path}: reshape_activations {reshaped!r}; supported are 'none', 'hook_z': use a SAE of those")


def _check_loss(folder: Path, described: Mapping[str, Any], loss: str) -> None:
    """BatchTopK and Matryoshka are stored as JumpReLU: where no file says what was trained, the label in params is all there is."""
    architecture = described["architecture"]
    trained_as = described["metadata"].get("training_architecture") or _run_architecture(folder / RUN_FILE)
    if architecture != ARCHITECTURE_OF[loss] or trained_as not in (None, loss):
        fitting = [label for label, stored in ARCHITECTURE_OF.items() if stored == architecture and trained_as in (None, label)]
        raise ContractError(
            f"{folder / CONFIG_FILE}: trained as {trained_as or architecture!r}, stored as {architecture!r}, but params say loss {loss!r};"
            f" allowed is {' or '.join(fitting) or 'none that is known'}: correct `loss`"
        )


def _run_architecture(path: Path) -> str | None:
    """What the file of the training run names, which lies beside checkpoints of sae-lens."""
    run = read_json(path) if path.is_file() else {}
    sae = run.get("sae")
    return sae.get("architecture") if isinstance(sae, dict) else run.get("architecture")


def _weights(path: Path, described: Mapping[str, Any], width: int, device: str) -> dict[str, Tensor]:
    found, shapes = _current(path, read_safetensors(path, device)), _shapes(described, width)
    named = described.get("dtype")
    dtype = dtype_of(path.with_name(CONFIG_FILE), named) if named else next(iter(found.values())).dtype
    return checked(path, found, shapes, dtype)


def check_weights(path: Path, described: Mapping[str, Any], width: int) -> None:
    """See that a file holds the tensors that its configuration speaks of, without reading them.

    Raises:
        SourceError, ContractError: as `read_parts`.
    """
    found = {_NAME_NOW.get(name, name): shape for name, shape in (read_shapes(path) or {}).items()}
    check_shapes(path, found, _shapes(described, width), besides=("scaling_factor",))


def _shapes(described: Mapping[str, Any], width: int) -> dict[str, tuple[int, ...]]:
    architecture, d_in = described["architecture"], described["d_in"]
    d_out = described["d_out"] if architecture.endswith("transcoder") else d_in
    shapes: dict[str, tuple[int, ...]] = {"W_enc": (d_in, width), "W_dec": (width, d_out), "b_dec": (d_out,)}
    shapes |= dict.fromkeys(_ENCODER_KEYS[architecture], (width,))
    return shapes | ({"W_skip": (d_out, d_in)} if "skip" in architecture else {})


_NAME_NOW = {"log_threshold": "threshold"}
"""What tensors were called once."""


def _current(path: Path, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under the names of today: a scaling factor of ones is none, and a threshold was once kept as its logarithm."""
    factor = found.pop("scaling_factor", None)
    if factor is not None and not bool((factor == 1).all()):
        raise UnsupportedError(f"{path}: scaling_factor is not 1 everywhere; supported is 1: fold it into W_dec and save the SAE again")
    if "log_threshold" in found:
        found["threshold"] = found.pop("log_threshold").exp()
    return found


def _encoder(architecture: str, weights: Mapping[str, Tensor], described: Mapping[str, Any]) -> EncodeBlock:
    centred = described.get("apply_b_dec_to_input", True) and not architecture.endswith("transcoder")
    shift = weights["b_dec"] if centred else None
    if architecture == "gated":
        biases = {"gate_bias": weights["b_gate"], "magnitude_bias": weights["b_mag"]}
        return gated(weights["W_enc"], scale=weights["r_mag"].exp(), shift=shift, **biases)
    if architecture.startswith("jumprelu"):
        activate = jump(weights["threshold"])
    else:
        activate = unchanged if architecture in ("topk", "abstopk") else relu
    return linear(weights["W_enc"], weights["b_enc"], activate, shift=shift)


def _normalisation(described: Mapping[str, Any]) -> Callable[[Tensor], Tensor] | None:
    """What is done to each row before it is encoded."""
    kind = described.get("normalize_activations", "none")
    if kind == "none":
        return None
    return _layer_normed if kind == "layer_norm" else lambda x: x * (x.shape[-1] ** 0.5 / x.norm(dim=-1, keepdim=True))


def _layer_normed(x: Tensor) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / (centred.std(dim=-1, keepdim=True) + _LAYER_NORM_EPSILON)


def _of_normalised(encode_block: EncodeBlock, into: Callable[[Tensor], Tensor]) -> EncodeBlock:
    return lambda x, block: encode_block(into(x), block)


def _restoring(described: Mapping[str, Any]) -> Callable[[Tensor, Tensor], Tensor]:
    """From a reconstruction and its row to one in the row's scale."""
    if described["normalize_activations"] == "layer_norm":
        return lambda rebuilt, x: rebuilt * x.std(dim=-1, keepdim=True) + x.mean(dim=-1, keepdim=True)
    return lambda rebuilt, x: rebuilt / (x.shape[-1] ** 0.5 / x.norm(dim=-1, keepdim=True))
