"""What the names of hookpoints mean: transformers' modules and sides, TransformerLens's hooks, and those of dictionary_learning, as one place.

Read off the names alone. Where they do not tell, the answer is "not known" and never a guess.
"""

import re
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a transformer activations are."""

    what: str | None
    """Such as `residual stream` or `mlp output`; None where the name does not tell."""
    layer: int | None
    """Of the residual stream: the layer whose output it is, -1 for the embeddings."""
    name: str
    side: str


def place_of(name: str, side: str | None = None) -> Place:
    """The place that a name means; where no side is given, it may end with one (`model.layers.3.output`), else it is the output."""
    name, side = (name, side) if side else _with_side(name)
    found = _lens(name) or _module(name, side) or _dictionary_learning(name) or (None, None)
    return Place(what=found[0], layer=found[1], name=name, side=side)


def compared(one: Place, other: Place) -> Literal["same", "different", "not known"]:
    """Whether two names mean one place."""
    if one.what is not None and other.what is not None:
        if (one.what, one.layer) == (other.what, other.layer):
            return "same"
        return "not known" if {one.what, other.what} == _BY_LIBRARY and one.layer == other.layer else "different"
    if one.side == other.side and (_ends_with(one.name, other.name) or _ends_with(other.name, one.name)):
        return "same"
    if one.what is other.what is one.layer is other.layer is None:  # the names of one library
        return "different"
    layers = {place.layer for place in (one, other)}
    in_one_layer = len(layers) == 1 or None in layers or "residual stream" in (one.what, other.what)
    return "not known" if in_one_layer else "different"


_NORMED = "normalised mlp input before the norm's scale"
_BY_LIBRARY = {_NORMED, "mlp input"}
"""TransformerLens's normalised input lies before or after the norm's scale and shift, depending on how its model was loaded."""

_LENS_HOOKS = {
    "hook_resid_mid": "residual stream after attention",
    "hook_attn_out": "attention output",
    "hook_mlp_out": "mlp output",
    "mlp.hook_post": "mlp hidden",
    "attn.hook_z": "attention heads",
    "ln2.hook_normalized": _NORMED,
}

_ATTENTION = ("self_attn", "attn", "attention")
_MODULES = {
    **dict.fromkeys(((part, "output") for part in _ATTENTION), "attention output"),
    **dict.fromkeys(((f"{part}.{last}", "output") for part in _ATTENTION for last in ("o_proj", "c_proj", "dense")), "attention output"),
    **dict.fromkeys(((f"{part}.{last}", "input") for part in _ATTENTION for last in ("o_proj", "c_proj", "dense")), "attention heads"),
    **dict.fromkeys((("mlp", "output"), ("post_feedforward_layernorm", "output")), "mlp output"),
    **dict.fromkeys(((f"mlp.{last}", "output") for last in ("down_proj", "c_proj", "dense_4h_to_h")), "mlp output"),
    **dict.fromkeys(((f"mlp.{last}", "input") for last in ("down_proj", "c_proj", "dense_4h_to_h")), "mlp hidden"),
    **dict.fromkeys((("mlp", "input"), ("pre_feedforward_layernorm", "output"), ("ln_2", "output")), "mlp input"),
    **dict.fromkeys((("pre_feedforward_layernorm", "input"), ("ln_2", "input")), "residual stream after attention"),
}
"""Modules of a layer by name and side. The norm after attention is left out: in Llama it gives the MLP its input, in Gemma 2 it is
the end of attention."""

_DICTIONARY_LEARNING = {"resid_post": "residual stream", "mlp_out": "mlp output", "attn_out": "attention output"}

_SIDED = re.compile(r"(.+)\.(input|output)")
_LENS = re.compile(r"blocks\.(\d+)\.((?:\w+\.)?hook_\w+)")
_LAYER = re.compile(r"(?:.*\.)?(?:layers|h|blocks)\.(\d+)(?:\.(.+))?")
_SUBMODULE = re.compile(r"(resid_pre|resid_post|mlp_out|attn_out)_layer_(\d+)")


def _with_side(name: str) -> tuple[str, str]:
    sided = _SIDED.fullmatch(name)
    return (sided[1], sided[2]) if sided else (name, "output")


def _lens(name: str) -> tuple[str | None, int] | None:
    found = _LENS.fullmatch(name)
    return found and _stream(found[2].removeprefix("hook_"), int(found[1]), _LENS_HOOKS.get(found[2]))


def _module(name: str, side: str) -> tuple[str | None, int] | None:
    found = _LAYER.fullmatch(name)
    if not found:
        return None
    layer, part = int(found[1]), found[2]
    if part is None:
        return "residual stream", layer - (side == "input")
    return _MODULES.get((part, side)), layer


def _dictionary_learning(name: str) -> tuple[str | None, int] | None:
    found = _SUBMODULE.fullmatch(name)
    return found and _stream(found[1], int(found[2]), _DICTIONARY_LEARNING.get(found[1]))


def _stream(word: str, layer: int, otherwise: str | None) -> tuple[str | None, int]:
    return ("residual stream", layer - (word == "resid_pre")) if word in ("resid_pre", "resid_post") else (otherwise, layer)


def _ends_with(name: str, end: str) -> bool:
    return name == end or name.endswith(f".{end}")
