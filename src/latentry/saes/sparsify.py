"""SAEs and transcoders of sparsify: `cfg.json` and `sae.safetensors`, a folder for each hookpoint.

Computes what sparsify computes: relu, then the k largest, or the largest of each of k groups; b_dec is subtracted from what a SAE
reads, and from what a transcoder reads it is not. The folder's name is the hookpoint it was trained at.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentry.errors import ContractError, UnsupportedError
from latentry.saes.base import Sae
from latentry.saes.encoders import groupmax, linear_layer, relu
from latentry.saes.pinned import Format, PinnedConfig, written_hookpoint
from latentry.saes.tensors import check_shapes, check_width, checked, read_json, read_safetensors, read_shapes, whole_number

if TYPE_CHECKING:
    from torch import Tensor

CONFIG_FILE, WEIGHTS_FILE, RUN_FILE = "cfg.json", "sae.safetensors", "../config.json"
ACTIVATIONS = ("topk", "groupmax")


class Config(PinnedConfig):
    """One SAE or transcoder that sparsify trained."""


def _told(folder: Path, place: str) -> dict[str, Any]:
    """The hookpoint, from the folder's name, and what the run's own file beside it says."""
    hookpoint = place.rsplit("/", 1)[-1]
    run = read_json(folder.resolve() / RUN_FILE) if (folder.resolve() / RUN_FILE).is_file() else {}
    found = {"model_name": run.get("model"), "dataset_path": run.get("dataset"), "context_size": run.get("ctx_len")}
    if "." in hookpoint:
        found |= {"hf_hook_name": hookpoint, "hook_side": "output"}
        if read_json(folder / CONFIG_FILE).get("transcode"):  # from the module's input to its output
            found |= {"hook_side": "input", "hf_hook_name_out": hookpoint, "hook_side_out": "output"}
    return {key: value for key, value in found.items() if value is not None}


FORMAT = Format(name="sparsify", files=((CONFIG_FILE, WEIGHTS_FILE),), around=(RUN_FILE,), told=_told)
make, origin_digest, is_copy = FORMAT.make, FORMAT.origin_digest, FORMAT.is_copy


def build(config: Config, name: str, folder: Path, device: str = "cpu") -> Sae:
    """The SAE that the folder holds, checked against its entry in params.

    Raises:
        SourceError: a file is missing, or is no safetensors file.
        ContractError: keys, shapes, width, k or `writes` are not those wanted.
        NumericsError: a weight is NaN or infinite.
        UnsupportedError: an activation function other than sparsify's two.
    """
    FORMAT.names_in(folder)
    path, described = folder / CONFIG_FILE, _described(config, folder)
    weights = _weights(folder / WEIGHTS_FILE, described, device)
    transcodes, k = bool(described.get("transcode")), described["k"]
    encode_block = linear_layer(weights["encoder.weight"], weights["encoder.bias"], relu, shift=None if transcodes else weights["b_dec"])
    grouped = described["activation"] == "groupmax"
    return Sae(
        name=name,
        hookpoint=config.hookpoint,
        writes=written_hookpoint(config, path, is_transcoder=transcodes),
        loss=described["activation"],
        d_in=described["d_in"],
        encode_block=groupmax(encode_block, config.width, k) if grouped else encode_block,
        k=None if grouped else k,
        decoder=weights["W_dec"],
        decoder_bias=weights["b_dec"],
        encoder=weights["encoder.weight"],
        skip=weights.get("W_skip"),
        provenance=FORMAT.provenance(folder, architecture=_architecture(described), k=k),
    )


def check_folder(config: Config) -> dict[str, Any] | None:
    """Look at a SAE in a local folder without reading its weights; returns what is said of its training, None where it is not here.

    Raises:
        SourceError, ContractError, UnsupportedError: as `build`.
    """
    if config.folder is None:
        return None
    folder = FORMAT.opened(config)
    described, path = _described(config, folder), folder / WEIGHTS_FILE
    found = read_shapes(path)
    if found is not None:
        check_shapes(path, found, _shapes(described, found))
    return FORMAT.metadata(config.folder) | {"d_in": described["d_in"]}


def _described(config: Config, folder: Path) -> dict[str, Any]:
    """The configuration, its width and k worked out and checked."""
    path = folder / CONFIG_FILE
    described = {"activation": "topk", **read_json(path)}
    if described["activation"] not in ACTIVATIONS:
        raise UnsupportedError(
            f"{path}: activation {described['activation']!r}; supported are {', '.join(ACTIVATIONS)}: use a SAE of those"
        )
    d_in = whole_number(path, "d_in", described.get("d_in"))
    width = _width(path, described, d_in)
    check_width(path, "num_latents (else d_in times expansion_factor)", width, config.width)
    k = whole_number(path, "k", described.get("k"), most=config.width)
    if described["activation"] == "groupmax" and config.width % k:
        raise ContractError(f"{path}: k is {k}, which does not divide the width {config.width} into groups; save the SAE again")
    return described | {"width": width}


def _width(path: Path, described: Mapping[str, Any], d_in: int) -> int:
    """As it is told, or as a multiple of what is read."""
    if described.get("num_latents"):
        return whole_number(path, "num_latents", described["num_latents"])
    factor = described.get("expansion_factor")
    return d_in * whole_number(path, "expansion_factor", factor) if factor else 0


def _weights(path: Path, described: Mapping[str, Any], device: str) -> dict[str, Tensor]:
    found = read_safetensors(path, device)
    shapes = _shapes(described, {name: tuple(tensor.shape) for name, tensor in found.items()})
    dtype = found["encoder.weight"].dtype if "encoder.weight" in found else None
    return checked(path, found, shapes, dtype or next(iter(found.values())).dtype)


def _shapes(described: Mapping[str, Any], found: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Of the tensors wanted; the decoder's bias says how long a transcoder's output is."""
    d_in, width = described["d_in"], described["width"]
    d_out = found["b_dec"][0] if described.get("transcode") and found.get("b_dec") else d_in
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.weight": (width, d_in),
        "encoder.bias": (width,),
        "W_dec": (width, d_out),
        "b_dec": (d_out,),
    }
    return shapes | ({"W_skip": (d_out, d_in)} if described.get("skip_connection") else {})


def _architecture(described: Mapping[str, Any]) -> str:
    role = "transcoder" if described.get("transcode") else "SAE"
    return f"{described['activation']} {'skip ' if described.get('skip_connection') else ''}{role}"
