"""One place under many names."""

import pytest

from latentry.saes.hook_names import compared, place_of

SAME = [
    (("blocks.15.hook_resid_post",), ("model.layers.15", "output")),
    (("blocks.16.hook_resid_pre",), ("model.layers.15", "output")),
    (("blocks.0.hook_resid_pre",), ("transformer.h.0", "input")),
    (("layers.5",), ("model.layers.5", "output")),
    (("gpt_neox.layers.5", "output"), ("gpt_neox.layers.6", "input")),
    (("model.layers.1.output",), ("model.layers.1", "output")),
    (("model.layers.1.mlp.input",), ("model.layers.1.mlp", "input")),
    (("resid_post_layer_3",), ("gpt_neox.layers.3", "output")),
    (("blocks.2.hook_mlp_out",), ("transformer.h.2.mlp", "output")),
    (("blocks.2.hook_mlp_out",), ("model.layers.2.mlp.down_proj", "output")),
    (("blocks.2.hook_attn_out",), ("model.layers.2.self_attn", "output")),
    (("blocks.2.mlp.hook_post",), ("model.layers.2.mlp.down_proj", "input")),
    (("blocks.2.attn.hook_z",), ("model.layers.2.self_attn.o_proj", "input")),
    (("layers.2.mlp", "input"), ("model.layers.2.pre_feedforward_layernorm", "output")),
    (("blocks.2.hook_resid_mid",), ("model.layers.2.pre_feedforward_layernorm", "input")),
    (("layers.2.post_attention_layernorm",), ("model.layers.2.post_attention_layernorm", "output")),
    (("encoder.stage_3", "input"), ("encoder.stage_3", "input")),
]
DIFFERENT = [
    (("blocks.15.hook_resid_post",), ("model.layers.16", "output")),
    (("blocks.15.hook_resid_pre",), ("model.layers.15", "output")),
    (("blocks.15.hook_mlp_out",), ("model.layers.15", "output")),
    (("layers.5.mlp", "input"), ("model.layers.5.mlp", "output")),
    (("blocks.2.ln2.hook_normalized",), ("model.layers.3.mlp", "input")),
    (("blocks.2.mlp.hook_unheard",), ("model.layers.3.mlp", "output")),
    (("encoder.stage_3", "input"), ("encoder.stage_4", "input")),
    (("encoder.stage_3", "input"), ("encoder.stage_3", "output")),
]
NOT_KNOWN = [
    (("blocks.2.ln2.hook_normalized",), ("model.layers.2.mlp", "input")),
    (("blocks.2.mlp.hook_unheard",), ("model.layers.2.mlp", "output")),
    (("blocks.3.mlp.hook_unheard",), ("model.layers.2", "output")),
    (("resid.3",), ("model.layers.3", "output")),
    (("blocks.2.hook_mlp_out",), ("model.layers.2.post_attention_layernorm", "output")),
]


@pytest.mark.parametrize(
    ("outcome", "one", "other"),
    [(outcome, *pair) for outcome, pairs in {"same": SAME, "different": DIFFERENT, "not known": NOT_KNOWN}.items() for pair in pairs],
)
def test_names_are_compared_by_the_place_that_they_mean(outcome, one, other):
    assert compared(place_of(*one), place_of(*other)) == outcome
    assert compared(place_of(*other), place_of(*one)) == outcome
