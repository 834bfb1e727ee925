"""Gemma Scope 1 (`params.npz`) and 2 (`config.json`, `params.safetensors`, names in lower case): JumpReLU SAEs and transcoders.

f = relu(x W_enc + b_enc) where that is above the threshold; no bias is subtracted from what is read. They were not trained on BOS.
Gemma Scope 1 says nothing of itself but by its place on the hub, from which subject, hookpoint and L0 are taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentry.errors import ContractError, UnsupportedError
from latentry.saes.base import Sae
from latentry.saes.encoders import jump, linear
from latentry.saes.pinned import Format, PinnedConfig, written_hookpoint
from latentry.saes.tensors import check_shapes, checked, read_json, read_npz, read_safetensors, read_shapes

if TYPE_CHECKING:
    from torch import Tensor

ARRAYS_FILE, CONFIG_FILE, WEIGHTS_FILE = "params.npz", "config.json", "params.safetensors"
SKIP = "affine_skip_connection"
CONTEXT = 1024


class Config(PinnedConfig):
    """One SAE or transcoder of Gemma Scope."""


def _told(folder: Path, place: str) -> dict[str, Any]:
    """What the names of folders say: of Gemma Scope 1 its subject, hookpoint and L0; of both the contexts they were trained on."""
    path = place if "/" in place else folder.resolve().as_posix()
    release = re.search(r"gemma-scope-(2b|9b|27b)-(pt|it)-(res|mlp|att)\b", path)
    layer, l0 = re.search(r"layer_(\d+)(?:/|$)", path), re.search(r"average_l0_(\d+)", path)
    found: dict[str, Any] = {"context_size": CONTEXT, "prepend_bos": True}
    if release:
        found["model_name"] = f"gemma-2-{release[1]}" + ("-it" if release[2] == "it" else "")
        if layer:
            module, side = _SITES[release[3]]
            found |= {"hf_hook_name": f"model.layers.{layer[1]}{module}", "hook_side": side}
    found |= {"role": "transcoder"} if "transcoder" in path else {}
    return found | ({"l0": int(l0[1])} if l0 else {})


_SITES = {"res": ("", "output"), "mlp": (".post_feedforward_layernorm", "output"), "att": (".self_attn.o_proj", "input")}
"""Module and side of each of its sites in Gemma 2."""

FORMAT = Format(name="gemma_scope", files=((CONFIG_FILE, WEIGHTS_FILE), (ARRAYS_FILE,)), told=_told)
make, origin_digest, is_copy = FORMAT.make, FORMAT.origin_digest, FORMAT.is_copy


def build(config: Config, name: str, folder: Path, device: str = "cpu") -> Sae:
    """The SAE that the folder holds, checked against its entry in params.

    Raises:
        SourceError: a file is missing, or none of its format.
        ContractError: keys, shapes, width or `writes` are not those wanted.
        NumericsError: a weight is NaN or infinite.
        UnsupportedError: an architecture other than JumpReLU.
    """
    path = folder / FORMAT.names_in(folder)[-1]
    described = _described(folder)
    weights = _weights(path, described, config.width, device)
    known = FORMAT.provenance(folder, architecture="jumprelu", metadata=_metadata(described))
    is_transcoder = _is_transcoder(config, known["metadata"], weights)
    return Sae(
        name=name,
        hookpoint=config.hookpoint,
        writes=written_hookpoint(config, path, is_transcoder=is_transcoder),
        loss="jumprelu",
        d_in=weights["w_enc"].shape[0],
        encode_block=linear(weights["w_enc"], weights["b_enc"], jump(weights["threshold"])),
        decoder=weights["w_dec"],
        decoder_bias=weights["b_dec"],
        encoder=weights["w_enc"].T,
        skip=weights[SKIP].T if SKIP in weights else None,
        provenance=known | ({"architecture": "jumprelu transcoder"} if is_transcoder else {}),
    )


def check_folder(config: Config) -> dict[str, Any] | None:
    """Look at a SAE in a local folder without reading its weights; returns what is said of its training, None where it is not here.

    Raises:
        SourceError, ContractError, UnsupportedError: as `build`.
    """
    if config.folder is None:
        return None
    folder = FORMAT.opened(config)
    described, path = _described(folder), folder / FORMAT.names_in(folder)[-1]
    found = {name.lower(): shape for name, shape in (read_shapes(path) or {}).items()}
    shapes = _shapes(path, described, config.width, found)
    check_shapes(path, found, shapes)
    return FORMAT.metadata(config.folder, _metadata(described)) | {"d_in": shapes["w_enc"][0]}


def _described(folder: Path) -> dict[str, Any]:
    """What the configuration says; Gemma Scope 1 has none."""
    path = folder / CONFIG_FILE
    if FORMAT.names_in(folder)[0] == ARRAYS_FILE:
        return {}
    described = read_json(path)
    if described.get("architecture") != "jump_relu":
        raise UnsupportedError(f"{path}: architecture {described.get('architecture')!r}; supported is jump_relu: use a SAE of that")
    return described


def _is_transcoder(config: Config, known: dict[str, Any], weights: dict[str, Tensor]) -> bool:
    """What place, configuration and shapes tell; where they do not, as of arrays in a folder of another name, what params say."""
    reads, writes = known.get("hf_hook_name"), known.get("hf_hook_name_out")
    if known.get("role") == "transcoder" or SKIP in weights or weights["w_enc"].shape[0] != weights["w_dec"].shape[1]:
        return True
    return writes not in (None, reads) or (reads is None and config.writes not in (None, config.hookpoint))


def _weights(path: Path, described: dict[str, Any], width: int, device: str) -> dict[str, Tensor]:
    """The tensors by their names in lower case, in float32; no file states d_in and d_out, the encoder and the decoder's bias show them."""
    import torch

    found = {name.lower(): tensor for name, tensor in (read_npz if path.name == ARRAYS_FILE else read_safetensors)(path, device).items()}
    shapes = _shapes(path, described, width, {name: tuple(tensor.shape) for name, tensor in found.items()})
    return checked(path, found, shapes, torch.float32)


def _shapes(path: Path, described: dict[str, Any], width: int, found: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Of the tensors wanted, given those that are there."""
    matrix, bias = found.get("w_enc"), found.get("b_dec", ())
    d_in = matrix[0 if matrix[1] == width else 1] if matrix is not None and len(matrix) == 2 else 0
    d_out = bias[0] if len(bias) == 1 else d_in
    if matrix is not None and width not in matrix:
        raise ContractError(f"{path}: w_enc has shape {matrix}, but params say width {width}; correct `width`")
    shapes: dict[str, tuple[int, ...]] = {"w_enc": (d_in, width), "w_dec": (width, d_out), "b_enc": (width,), "b_dec": (d_out,)}
    shapes["threshold"] = (width,)
    return shapes | ({SKIP: (d_in, d_out)} if described.get("affine_connection", SKIP in found) else {})


def _metadata(described: dict[str, Any]) -> dict[str, Any]:
    """Subject and hookpoints as Gemma Scope 2's configuration names them; `gemma-v3` is Gemma 3."""
    found: dict[str, Any] = {"model_name": str(described["model_name"]).replace("-v3-", "-3-") if "model_name" in described else None}
    for key, ending in (("hf_hook_point_in", ""), ("hf_hook_point_out", "_out")):
        named = re.fullmatch(r"(.*)\.(input|output)", str(described.get(key, "")))
        if named:
            found |= {f"hf_hook_name{ending}": named[1], f"hook_side{ending}": named[2]}
    return found
