"""What the gate stops, what it lets pass, and what it says that it could not check."""

from dataclasses import replace

import numpy as np
import pytest

from latentry.errors import GateError
from latentry.saes.evaluation import Reconstruction
from latentry.saes.gate import InUse, gate
from latentry.saes.hook_names import place_of
from planted_saes import identity_sae

HERE = InUse(
    subject=("smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct"),
    subject_digest="a" * 64,
    reads=place_of("model.layers.15", "output"),
    writes=place_of("model.layers.15", "output"),
    begins_with_bos=False,
    context=128,
)
OURS = {"model_name": "smollm2", "subject_digest": "a" * 64, "hf_hook_name": "model.layers.15", "prepend_bos": False, "context_size": 128}
RECORDED = {"fvu": 0.2, "l0": 32.0, "n_training_tokens": 1000}


def measured(fvu: float = 0.2, l0: float = 32.0) -> Reconstruction:
    return Reconstruction(l0=l0, fvu=fvu, n_tokens=100, firing_counts=np.ones(4, dtype=np.int64))


def sae_of(metadata: dict, *, baseline: str | None = None, **provenance):
    return identity_sae(2, baseline=baseline, provenance={"metadata": metadata, **provenance})


def test_a_sae_on_its_own_activations_passes_with_every_check_made():
    report = gate(sae_of(OURS), measured(), HERE, recorded=RECORDED)
    assert report["passed"]
    assert report["not_checked"] == []
    assert (report["fvu"], report["recorded_fvu"], report["declared_l0"]) == (0.2, 0.2, 32.0)


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"fvu": 0.95}, r"FVU is 0\.950, allowed is at most max_fvu = 0\.9"),
        ({"fvu": 0.31}, r"FVU is 0\.310, recorded is 0\.200"),
        ({"fvu": float("nan")}, "FVU is nan"),
        ({"l0": 65.0}, r"L0 is 65\.0, declared is 32\.0, allowed is 16\.0 to 64\.0"),
        ({"l0": 15.0}, r"L0 is 15\.0"),
    ],
)
def test_figures_out_of_bounds_stop_it_with_the_figures_and_the_bounds(figures, said):
    with pytest.raises(GateError, match=said):
        gate(sae_of(OURS), measured(**figures), HERE, recorded=RECORDED)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({**OURS, "subject_digest": "b" * 64}, "trained on subject weights bbbbbbbbbbbb"),
        ({**OURS, "prepend_bos": True}, "contexts with BOS: set `tokens.prepend_bos` to true"),
        ({**OURS, "context_size": 64}, "contexts have 128 tokens, the SAE was trained on 64: lower `tokens.context`"),
        ({"model_name": "SmolLM2-135M", "hf_hook_name": "model.layers.15"}, "names subject 'SmolLM2-135M'"),
        ({**OURS, "hf_hook_name": "model.layers.16"}, r"names hookpoint 'model\.layers\.16'"),
        ({**OURS, "hf_hook_name": None, "hook_name": "blocks.15.hook_resid_pre"}, "hook_resid_pre"),
        ({**OURS, "hf_hook_name": None, "hook_name": "blocks.15.hook_mlp_out"}, "hook_mlp_out"),
    ],
)
def test_another_subject_or_hookpoint_stops_it_though_the_figures_are_good(metadata, said):
    with pytest.raises(GateError, match=said):
        gate(sae_of(metadata), measured(), HERE, recorded=RECORDED)


def test_names_of_the_same_place_in_other_conventions_pass():
    for metadata in (
        {"model_name": "HuggingFaceTB/SmolLM2-135M-Instruct", "hook_name": "blocks.15.hook_resid_post"},
        {"model_name": "smollm2-135m-instruct", "hook_name": "blocks.16.hook_resid_pre"},
    ):
        assert gate(sae_of(metadata), measured(), HERE, recorded=RECORDED)["passed"]


def test_a_models_name_is_known_in_params_letters_and_as_transformer_lens_calls_it():
    for named, in_use in (("Qwen/Qwen2.5-7B", "qwen2-5-7b"), ("gpt2-small", "openai-community/gpt2"), ("some/Model/", "model")):
        assert gate(sae_of({"model_name": named}), measured(), replace(HERE, subject=("x", in_use)))["passed"]
    with pytest.raises(GateError, match=r"give it that name under `models` \(qwen2-5-7b\)"):
        gate(sae_of({"model_name": "Qwen/Qwen2.5-7B"}), measured(), HERE)


TRANSCODER = {**OURS, "hf_hook_name": "model.layers.15.mlp", "hook_side": "input", "hf_hook_name_out": "model.layers.15.mlp"}
MLP = replace(HERE, reads=place_of("model.layers.15.mlp", "input"), writes=place_of("model.layers.15.mlp", "output"))


@pytest.mark.parametrize(
    ("metadata", "in_use", "said"),
    [
        (TRANSCODER, replace(MLP, reads=place_of("model.layers.14.mlp", "input")), "names hookpoint 'model.layers.15.mlp'"),
        (
            TRANSCODER,
            replace(MLP, writes=place_of("model.layers.16.mlp", "output")),
            "hookpoint written 'model.layers.15.mlp', in use is output",
        ),
        (TRANSCODER, replace(MLP, writes=MLP.reads), "hookpoint written 'model.layers.15.mlp', in use is input of .*: correct `writes`"),
        (
            {**OURS, "hook_name": "blocks.15.hook_mlp_in", "hook_name_out": "blocks.14.hook_mlp_out", "hf_hook_name": None},
            MLP,
            "hookpoint written",
        ),
    ],
)
def test_a_transcoder_is_stopped_by_either_of_its_hookpoints(metadata, in_use, said):
    with pytest.raises(GateError, match=said):
        gate(sae_of(metadata), measured(), in_use, recorded=RECORDED)


def test_a_transcoder_at_its_own_hookpoints_passes_and_one_that_names_no_second_says_so():
    assert gate(sae_of(TRANSCODER), measured(), MLP, recorded=RECORDED)["not_checked"] == []
    one = {**TRANSCODER, "hf_hook_name_out": None}
    assert gate(sae_of(one), measured(), MLP, recorded=RECORDED)["not_checked"] == ["hookpoint written: the SAE's file names none"]
    lens = {"hook_name": "blocks.15.ln2.hook_normalized", "hook_name_out": "blocks.15.hook_mlp_out"}
    (said,) = (line for line in gate(sae_of(lens), measured(), MLP, recorded=RECORDED)["not_checked"] if line.startswith("hookpoint"))
    assert "does not translate" in said


def test_figures_out_of_bounds_name_the_causes_that_no_name_has_ruled_out():
    with pytest.raises(GateError) as unnamed:
        gate(sae_of({}), measured(fvu=0.95), HERE)
    for cause in ("hookpoint off by one", "another subject", "activation function", "another scale", "BOS"):
        assert cause in str(unnamed.value).partition("likely causes")[2].partition("not checked")[0]
    assert "FVU against the recorded one" in str(unnamed.value).partition("not checked")[2]
    with pytest.raises(GateError) as named:
        gate(sae_of(OURS), measured(fvu=0.95), HERE, recorded=RECORDED)
    assert "activation function" in str(named.value)
    assert not any(cause in str(named.value) for cause in ("off by one", "another subject", "not checked"))


def test_with_nothing_recorded_it_says_which_checks_it_could_not_make():
    report = gate(sae_of({}), measured(), HERE)
    assert report["passed"]
    assert [line.split(":")[0] for line in report["not_checked"]] == [
        "digest of the subject's weights",
        "name of the subject",
        "hookpoint",
        "BOS",
        "context length",
        "FVU against the recorded one",
        "L0 against the declared one",
    ]


def test_k_is_the_declared_l0_where_nothing_else_is():
    with pytest.raises(GateError, match=r"declared is 8\.0"):
        gate(sae_of(OURS, k=8), measured(), HERE)


def test_the_recipe_in_its_file_declares_the_l0_of_a_batchtopk_that_is_stored_as_jumprelu():
    recipe = {**OURS, "training_architecture": "batchtopk", "training_architecture_details": {"k": 8}}
    with pytest.raises(GateError, match=r"declared is 8\.0"):
        gate(sae_of(recipe), measured(), HERE)


def test_what_was_measured_of_a_sae_from_elsewhere_on_these_activations_declares_nothing():
    """Its evaluation.json was made by `sae@S` from the very activations of the gate, and would always agree with it."""
    here = RECORDED | {"l0": 4.0, "n_training_tokens": None}
    with pytest.raises(GateError, match=r"L0 is 4\.0, declared is 32\.0"):
        gate(sae_of(OURS, k=32), measured(l0=4.0), HERE, recorded=here)
    with pytest.raises(GateError, match=r"L0 is 4\.0, declared is 31\.5"):
        gate(sae_of({**OURS, "l0": 31.5}, k=32), measured(l0=4.0), HERE, recorded=here)
    report = gate(sae_of(OURS, k=4), measured(fvu=0.5, l0=4.0), HERE, recorded=here)
    assert report["not_checked"] == ["FVU against the recorded one: the SAE's files record none"]


def test_a_baseline_is_measured_and_labelled_but_never_stopped():
    report = gate(sae_of({}, baseline="random"), measured(fvu=1.4), HERE)
    assert not report["passed"]
    assert report["baseline"] == "random"
    assert "FVU is 1.400" in report["faults"][0]
