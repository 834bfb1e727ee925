"""One half of a JSAE pair (Farnik et al., ICML 2025): two SAEs in one file, on an MLP's input and on its output.

Each half is an ordinary SAE of its own hookpoint: the same width and k, its own matrices. The input is the MLP's true input, after
the normalisation's scale and shift: the output of `post_attention_layernorm`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from latentry.errors import UnsupportedError
from latentry.saes.base import Sae
from latentry.saes.encoders import linear, relu, unchanged
from latentry.saes.pinned import Format, PinnedConfig, written_hookpoint
from latentry.saes.tensors import check_width, checked, dtype_of, read_json, read_safetensors, whole_number

CONFIG_FILE, WEIGHTS_FILE = "cfg.json", "sae_weights.safetensors"
FORMAT = Format(name="jsae", files=((CONFIG_FILE, WEIGHTS_FILE),))
make, origin_digest, is_copy = FORMAT.make, FORMAT.origin_digest, FORMAT.is_copy

_ENDINGS = {"input": "", "output": "_out"}
_ACTIVATIONS = ("topk", "relu")


class Config(PinnedConfig):
    """One half of a pair; the other is an entry of its own."""

    half: Literal["input", "output"]
    """Which SAE of the pair: that of the MLP's input, or of its output."""


def build(config: Config, name: str, folder: Path, device: str = "cpu") -> Sae:
    """The half that params name, checked against its entry in params.

    Raises:
        SourceError: a file is missing, or is no safetensors file.
        ContractError: keys, shapes, width or k are not those wanted.
        NumericsError: a weight is NaN or infinite.
        UnsupportedError: another architecture, activation function or normalisation.
    """
    FORMAT.names_in(folder)
    described, path = _described(config, folder), folder / WEIGHTS_FILE
    weights = _weights(config, described, path, device)
    k = (described.get("activation_fn_kwargs") or {}).get("k") if described["activation_fn_str"] == "topk" else None
    shift = weights["b_dec"] if described.get("apply_b_dec_to_input", True) else None
    return Sae(
        name=name,
        hookpoint=config.hookpoint,
        writes=written_hookpoint(config, path, is_transcoder=False),
        loss="jsae",
        d_in=described["d_in"],
        encode_block=linear(weights["W_enc"], weights["b_enc"], relu if k is None else unchanged, shift=shift),
        k=k,
        decoder=weights["W_dec"],
        decoder_bias=weights["b_dec"],
        encoder=weights["W_enc"].T,
        provenance=FORMAT.provenance(folder, architecture=f"jsae {config.half}", k=k, metadata=_metadata(config, described)),
    )


def check_folder(config: Config) -> dict[str, Any] | None:
    """Look at a SAE in a local folder without reading its weights; returns what is said of its training, None where it is not here.

    Raises:
        SourceError, ContractError, UnsupportedError: as `build`.
    """
    if config.folder is None:
        return None
    return FORMAT.metadata(config.folder, _metadata(config, _described(config, FORMAT.opened(config))))


def _described(config: Config, folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    described = {"activation_fn_str": "relu", **read_json(path)}
    allowed = {
        "architecture": ("standard",),
        "activation_fn_str": _ACTIVATIONS,
        "normalize_activations": ("none", None, False),
        "finetuning_scaling_factor": (False, None),
    }
    for key, values in allowed.items():
        if described.get(key) not in values:
            raise UnsupportedError(
                f"{path}: {key} {described.get(key)!r}; supported are {', '.join(map(str, values))}: use a pair of those"
            )
    whole_number(path, "d_in", described.get("d_in"))
    check_width(path, "d_sae", described.get("d_sae"), config.width)
    if described["activation_fn_str"] == "topk":
        whole_number(path, "activation_fn_kwargs.k", (described.get("activation_fn_kwargs") or {}).get("k"), most=config.width)
    return described


def _weights(config: Config, described: dict[str, Any], path: Path, device: str) -> dict[str, Any]:
    """The half's tensors, by their names without the underscore; the file also holds the other half, and may hold the MLP."""
    found, d_in = read_safetensors(path, device), described["d_in"]
    plain: dict[str, tuple[int, ...]] = {
        "W_enc": (d_in, config.width),
        "W_dec": (config.width, d_in),
        "b_enc": (config.width,),
        "b_dec": (d_in,),
    }
    named = {half: {f"_{key}{ending}": shape for key, shape in plain.items()} for half, ending in _ENDINGS.items()}
    besides = {key for shapes in named.values() for key in shapes} | {key for key in found if "mlp" in key}
    weights = checked(path, found, named[config.half], dtype_of(path, described.get("dtype", "float32")), besides=besides)
    return {key: weights[f"_{key}{_ENDINGS[config.half]}"] for key in plain}


def _metadata(config: Config, described: dict[str, Any]) -> dict[str, Any]:
    """What the configuration names, with the module that this half reads where it tells the layer."""
    found = {key: described.get(key) for key in ("model_name", "context_size", "prepend_bos", "dataset_path")}
    layer, site = described.get("hook_layer"), "post_attention_layernorm" if config.half == "input" else "mlp"
    return found | {
        "hf_hook_name": f"layers.{layer}.{site}" if isinstance(layer, int) else None,
        "pair_hook_name": described.get("hook_name"),
    }
