"""The gate on what each format's own files say: they fit where their libraries trained them, and neither a layer on nor on another model."""

from dataclasses import replace

import numpy as np
import pytest

from latentry.errors import GateError
from latentry.saes.evaluation import Reconstruction
from latentry.saes.gate import InUse, gate
from latentry.saes.hook_names import place_of
from native_saes import ALL

SILENT = {"gemma_scope-1"}
"""Says what it is by its place on the hub alone."""


def places(name: str, sae, layer: int) -> tuple[tuple[str, str], tuple[str, str]]:
    """Where a transformers user would hang a SAE of that file, by hand."""
    module = f"model.layers.{layer}"
    if name.startswith("sparsify"):
        mlp = (f"{module}.mlp", "output")
        return ((f"{module}.mlp", "input"), mlp) if "transcoder" in name else (mlp, mlp)
    if name.startswith("gemma_scope-2-transcoder"):
        return (f"{module}.pre_feedforward_layernorm", "output"), (f"{module}.post_feedforward_layernorm", "output")
    if name.startswith("jsae"):
        at = (f"{module}.post_attention_layernorm", "output") if name.endswith("input") else (f"{module}.mlp", "output")
        return at, at
    if name.endswith("hook_z"):
        return ((f"{module}.self_attn.o_proj", "input"),) * 2
    here = (module, "output")
    return (here, (f"{module}.mlp", "output")) if sae.writes != sae.hookpoint else (here, here)


def judged(name: str, *, layer: int = 1, **changed):
    sae = ALL[name].built()
    metadata = sae.provenance["metadata"]
    reads, writes = places(name, sae, layer)
    in_use = InUse(
        subject=(str(metadata.get("model_name", "none")),),
        subject_digest=None,
        reads=place_of(*reads),
        writes=place_of(*writes),
        begins_with_bos=metadata.get("prepend_bos") is True,
        context=64,
    )
    l0 = float(sae.provenance.get("k") or metadata.get("l0") or 5)
    figures = Reconstruction(l0=l0, fvu=0.3, n_tokens=100, firing_counts=np.ones(sae.width, dtype=np.int64))
    return gate(sae, figures, replace(in_use, **changed))


@pytest.mark.parametrize("name", ALL)
def test_a_file_passes_where_it_was_trained(name):
    report = judged(name)
    assert report["passed"]
    if name not in SILENT:
        assert not [check for check in report["not_checked"] if check.startswith(("name of the subject", "hookpoint:"))]


@pytest.mark.parametrize("name", sorted(set(ALL) - SILENT))
def test_a_file_is_stopped_a_layer_on_and_on_a_model_of_another_name(name):
    with pytest.raises(GateError, match="names hookpoint"):
        judged(name, layer=2)
    with pytest.raises(GateError, match="names subject"):
        judged(name, subject=("some-model-chat",))


def test_a_transcoder_of_sparsify_reads_the_input_of_the_module_that_its_folder_names_and_writes_its_output():
    at = {side: place_of("model.layers.1.mlp", side) for side in ("input", "output")}
    for name in ("sparsify-transcoder", "sparsify-skip-transcoder"):
        assert not [check for check in judged(name)["not_checked"] if "hookpoint" in check]
        for reads, writes in (("output", "output"), ("input", "input")):
            with pytest.raises(GateError, match="hookpoint"):
                judged(name, reads=at[reads], writes=at[writes])
