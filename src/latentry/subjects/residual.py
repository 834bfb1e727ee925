"""What of a subject writes to its residual stream, and the norm between the stream's end and the unembedding.

Read off transformers' module names: GPT-2, GPT-NeoX, Llama, Gemma, Qwen and whoever names alike. Where the names say nothing,
the answer is "no" and never a guess.
"""

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from latentry.subjects.hooks import Hookpoint

_LAYER = re.compile(r"(?P<layer>(?:.*\.)?(?:layers|h|blocks)\.\d+)(?:\.(?P<part>.+))?")
_PARTS = {"self_attn", "attn", "attention", "mlp"}
_LAST_PROJECTIONS = {"self_attn.o_proj", "attn.c_proj", "attention.dense", "mlp.down_proj", "mlp.c_proj", "mlp.dense_4h_to_h"}
_POST_NORMS = {"post_feedforward_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm"}
_FINAL_NORMS = ("norm", "final_layer_norm", "ln_f", "final_layernorm", "norm_f", "final_norm")


def writes_to_residual(modules: Mapping[str, nn.Module], point: Hookpoint) -> bool:
    """Whether what stands at a hookpoint is the residual stream or is added to it unchanged.

    The stream is the input or output of a layer; attention and MLP, or their last projections, add their output to it, unless
    the layer norms that output first (Gemma 2 and 3, OLMo 2): then only the output of that norm is what is added.
    """
    found = _LAYER.fullmatch(point.module)
    if found is None:
        return False
    part = found["part"]
    if part is None:
        return True
    norms = {name for name in _POST_NORMS if f"{found['layer']}.{name}" in modules}
    if "post_feedforward_layernorm" in norms:  # beside it, that of Llama's name is of attention's output too
        norms.add("post_attention_layernorm")
    return point.side == "output" and part in (norms or _PARTS | _LAST_PROJECTIONS)


def final_norm_of(model: Any) -> nn.Module | None:
    """The norm that stands before the unembedding; None where the model has none by a known name."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else getattr(model, model.base_model_prefix)
    return next((norm for name in _FINAL_NORMS if isinstance(norm := getattr(decoder, name, None), nn.Module)), None)
