"""One half of a JSAE pair (Farnik et al., ICML 2025): two SAEs in one file, on an MLP's input and on its output.

Each half is an ordinary SAE of its own hookpoint: the same width and k, its own matrices. The input is the MLP's true input, after
the normalisation's scale and shift: the output of `post_attention_layernorm`. A pair that is trained here is trained once for both of
its halves; that two halves are one pair is seen by their files, which are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Int
from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator, model_validator

from latentry.errors import ContractError, UnsupportedError
from latentry.registry import SaeConfig
from latentry.saes.base import Activations, PairInputs, Sae
from latentry.saes.encoders import linear, relu, unchanged
from latentry.saes.pinned import Format, HubFolder, written_hookpoint
from latentry.saes.recipe import Jsae, recipe_of
from latentry.saes.tensors import check_width, checked, dtype_of, read_json, read_safetensors, section, whole_number

CONFIG_FILE, WEIGHTS_FILE = "cfg.json", "sae_weights.safetensors"
FORMAT = Format(name="jsae", files=((CONFIG_FILE, WEIGHTS_FILE),))

_ENDINGS = {"input": "", "output": "_out"}
_ACTIVATIONS = ("topk", "relu")


class Config(SaeConfig):
    """One half of a pair, trained in the DAG (`train`) or from elsewhere (`folder`, `hub`); the other is an entry of its own."""

    width: Annotated[int, Field(ge=1)]
    """Number of latents; the other half has as many."""
    half: Literal["input", "output"]
    """Which SAE of the pair: that of the MLP's input, or of its output."""
    train: SerializeAsAny[Jsae] | None = None
    """How the pair is trained here, the same in both entries but for `partner`; exactly one of `train`, `folder` and `hub`."""
    folder: Path | None = None
    """A folder on this machine with the pair's files; they are copied, and the copy is what is read."""
    hub: HubFolder | None = None
    """The same on the hub."""

    @field_validator("train", mode="before")
    @classmethod
    def _of_a_pair(cls, knobs: Any, info: ValidationInfo) -> Any:
        return recipe_of("jsae", info.data["width"], knobs) if "width" in info.data and knobs is not None else None

    @model_validator(mode="after")
    def _one_origin(self) -> Config:
        named = [name for name in ("train", "folder", "hub") if getattr(self, name) is not None]
        if len(named) != 1:
            raise ValueError(f"found {' and '.join(named) or 'none'} of `train`, `folder` and `hub`; name exactly one")
        if self.train is not None and self.writes not in (None, self.hookpoint):
            raise ValueError(f"writes {self.writes!r}; each half rebuilds what it reads: leave `writes` out, and name `train.partner`")
        return self

    @property
    def pair(self) -> tuple[str, str] | None:
        """As `SaeConfig`."""
        if self.train is None:
            return None
        mine, other = self.hookpoint, self.train.partner
        return (mine, other) if self.half == "input" else (other, mine)


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
    k = described["activation_fn_kwargs"].get("k") if described["activation_fn_str"] == "topk" else None
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
        provenance=FORMAT.provenance(folder, architecture=f"jsae {config.half}", k=k, metadata=_metadata(config, described))
        | ({"source": "trained here"} if config.train is not None else {}),
    )


def make(
    config: Config,
    activations: Activations,  # noqa: ARG001 (of this half alone; the pair's are in `pair`)
    contexts: Int[np.ndarray, " context"],
    *,
    seed: int,
    folder: Path,
    metadata: Mapping[str, Any],
    checkpoint_tokens: int,
    device: str = "cpu",
    pair: PairInputs | None = None,
) -> int | None:
    """Write the pair's files to the folder: trained on those contexts (once for both halves), or copied. Returns on how many tokens
    it was trained here, None where others trained it. After a kill it goes on, at most `checkpoint_tokens` tokens back.

    Raises:
        ContractError: it is to be trained, and `pair` is not given.
    """
    if config.train is None:
        return FORMAT.make(config, folder=folder)
    if pair is None:
        raise ContractError(f"{folder}: a pair is trained from the activations of both hookpoints, found one; give `pair`")
    from latentry.saes.jsae_training import half_of_pair

    common = {name: value for name, value in metadata.items() if name in ("model_name", "subject_digest", "context_size", "prepend_bos")}
    return half_of_pair(
        config.train,
        half=config.half,
        width=config.width,
        pair=pair,
        contexts=contexts,
        seed=seed,
        folder=folder,
        metadata=common,
        checkpoint_tokens=checkpoint_tokens,
        device=device,
    )


def origin_digest(config: Config) -> str | None:
    """Digest of what is copied, so that others in its place are noticed; None for a pair that is trained here.

    Raises:
        SourceError: a file is missing.
    """
    return FORMAT.origin_digest(config) if config.train is None else None


def is_copy(config: Config, folder: Path) -> bool:
    """Whether a folder holds what would be copied now."""
    return config.train is not None or FORMAT.is_copy(config, folder)


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
    described["activation_fn_kwargs"] = section(path, described, "activation_fn_kwargs")
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
        whole_number(path, "activation_fn_kwargs.k", described["activation_fn_kwargs"].get("k"), most=config.width)
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
    """What the configuration names, with the module that this half reads where it tells the layer; of a pair that was trained here,
    the MLP itself."""
    found = {key: described.get(key) for key in ("model_name", "subject_digest", "context_size", "prepend_bos", "dataset_path")}
    if "hf_mlp_name" in described:
        return found | {"hf_hook_name": described["hf_mlp_name"], "hook_side": config.half}
    layer, site = described.get("hook_layer"), "post_attention_layernorm" if config.half == "input" else "mlp"
    return found | {
        "hf_hook_name": f"layers.{layer}.{site}" if isinstance(layer, int) else None,
        "pair_hook_name": described.get("hook_name"),
    }
