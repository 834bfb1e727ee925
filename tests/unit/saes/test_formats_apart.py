"""What one format has and others do not: thresholds that were never set, labels that files know better, places that tell."""

import json
import pickle

import pytest
import torch
from safetensors.torch import save_file

from latentry.errors import ContractError, NumericsError, SourceError, UnsupportedError
from latentry.saes import gemma_scope
from native_saes import ALL, WIDTH, dense_in_file_order, rewrite


@pytest.mark.parametrize("name", ["BatchTopKSAE", "MatryoshkaBatchTopKSAE"])
def test_a_threshold_that_training_never_set_is_refused(tmp_path, name):
    specimen = ALL[f"dictionary_learning-{name}"]
    folder = specimen.copied(tmp_path)
    rewrite(folder / "ae.pt", lambda held: held["threshold"].fill_(-1.0))
    with pytest.raises(ContractError, match=r"ae\.pt: threshold is -1, which means that training never set it; wanted 0 or more"):
        specimen.built(folder)
    rewrite(folder / "ae.pt", lambda held: held.pop("threshold"))
    with pytest.raises(ContractError, match=r"lacks \['threshold'\]"):
        specimen.built(folder)


def test_a_topk_has_no_use_for_the_threshold(tmp_path):
    specimen = ALL["dictionary_learning-AutoEncoderTopK"]
    folder = specimen.copied(tmp_path)
    rewrite(folder / "ae.pt", lambda held: held.pop("threshold"))
    assert specimen.built(folder).k == 5


def test_the_same_tensors_as_safetensors_load_alike(tmp_path):
    specimen = ALL["dictionary_learning-GatedAutoEncoder"]
    folder = specimen.copied(tmp_path)
    held = torch.load(folder / "ae.pt", weights_only=True)
    save_file({name: tensor.contiguous() for name, tensor in held.items()}, folder / "ae.safetensors")
    (folder / "ae.pt").unlink()
    sae, x = specimen.built(folder), specimen.x
    torch.testing.assert_close(dense_in_file_order(sae, sae.firings(x, WIDTH), len(x)), specimen.native["latents"], rtol=1e-5, atol=1e-5)


class Code:
    """A class that a file would bring along."""


@pytest.mark.parametrize("held", [Code(), {"W": Code()}])
def test_a_torch_file_that_holds_code_is_refused_with_how_to_convert_it(tmp_path, held):
    specimen = ALL["dictionary_learning-AutoEncoder"]
    folder = specimen.copied(tmp_path)
    torch.save(held, folder / "ae.pt")
    with pytest.raises(SourceError, match=r"ae\.pt: holds more than tensors .* never read; .* save its `state_dict\(\)`"):
        specimen.built(folder)


def test_a_torch_file_of_one_tensor_is_refused(tmp_path):
    specimen = ALL["dictionary_learning-AutoEncoder"]
    folder = specimen.copied(tmp_path)
    torch.save(torch.ones(3), folder / "ae.pt")
    with pytest.raises(ContractError, match="holds a Tensor, wanted tensors by name"):
        specimen.built(folder)


def test_a_decoder_column_of_0_cannot_be_brought_to_unit_norm(tmp_path):
    specimen = ALL["dictionary_learning-AutoEncoder"]
    folder = specimen.copied(tmp_path)
    rewrite(folder / "ae.pt", lambda held: held["decoder.weight"][:, 3].zero_())
    with pytest.raises(NumericsError, match="1 decoder columns are 0"):
        specimen.built(folder)


def test_arrays_of_objects_are_refused(tmp_path):
    import numpy as np

    specimen = ALL["gemma_scope-1"]
    folder = specimen.copied(tmp_path)
    np.savez(folder / "params.npz", W_enc=np.array([{"a": 1}], dtype=object))
    with pytest.raises(SourceError, match=r"no npz file of arrays .*, and pickles are never read"):
        specimen.built(folder)
    np.savez(folder / "params.npz", W_enc=np.ones((8, WIDTH), dtype=np.int32))
    with pytest.raises(ContractError, match="W_enc is int32, wanted floating-point numbers"):
        specimen.built(folder)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (
            "google/gemma-scope-2b-pt-res/layer_20/width_16k/average_l0_71",
            {"model_name": "gemma-2-2b", "hf_hook_name": "model.layers.20", "hook_side": "output", "l0": 71},
        ),
        (
            "google/gemma-scope-9b-it-att/layer_3/width_16k/average_l0_10",
            {"model_name": "gemma-2-9b-it", "hf_hook_name": "model.layers.3.self_attn.o_proj", "hook_side": "input", "l0": 10},
        ),
        (
            "google/gemma-scope-2b-pt-mlp/layer_3/width_16k/average_l0_10",
            {"model_name": "gemma-2-2b", "hf_hook_name": "model.layers.3.post_feedforward_layernorm", "hook_side": "output", "l0": 10},
        ),
        ("google/gemma-scope-2b-pt-transcoders/layer_3/width_16k/average_l0_10", {"role": "transcoder", "l0": 10}),
        ("mine", {}),
    ],
)
def test_gemma_scope_1_is_known_by_its_place(tmp_path, place, told):
    assert gemma_scope.FORMAT.told(tmp_path, place) == {"context_size": 1024, "prepend_bos": True, **told}


def test_what_its_place_says_is_kept_with_the_copy(tmp_path):
    specimen = ALL["gemma_scope-1"]
    source = tmp_path / "gemma-scope-2b-pt-transcoders" / "layer_1" / "average_l0_9"
    source.parent.mkdir(parents=True)
    specimen.copied(tmp_path).rename(source)
    config, copy = specimen.config(folder=source, writes="written"), tmp_path / "copy"
    copy.mkdir()
    gemma_scope.make(config, folder=copy)
    assert gemma_scope.build(config, "x", copy).provenance["metadata"] == {
        "context_size": 1024,
        "prepend_bos": True,
        "role": "transcoder",
        "l0": 9,
    }
    with pytest.raises(ContractError, match="is a transcoder, and params name no `writes`"):
        gemma_scope.build(specimen.config(folder=source), "x", copy)


def test_where_nothing_tells_a_transcoder_params_do_and_where_the_place_tells_they_do_not(tmp_path):
    specimen = ALL["gemma_scope-1"]
    assert (specimen.built().writes, specimen.built(writes="written").writes) == ("read", "written")
    source = tmp_path / "gemma-scope-2b-pt-res" / "layer_1"
    source.parent.mkdir()
    specimen.copied(tmp_path).rename(source)
    with pytest.raises(ContractError, match="is no transcoder, but params say it writes 'written'"):
        specimen.built(source, writes="written")


def test_a_label_is_refused_where_a_file_knows_better(tmp_path):
    specimen = ALL["sae_lens-jumprelu"]
    folder = specimen.copied(tmp_path)
    assert specimen.built(folder, loss="batchtopk").loss == "batchtopk"  # stored alike, and no file says what it was
    with pytest.raises(
        ContractError, match="but params say loss 'topk'; allowed is jumprelu or batchtopk or matryoshka_batchtopk: correct `loss`"
    ):
        specimen.built(folder, loss="topk")
    (folder / "runner_cfg.json").write_text(json.dumps({"sae": {"architecture": "matryoshka_batchtopk"}}))
    assert specimen.built(folder, loss="matryoshka_batchtopk").loss == "matryoshka_batchtopk"
    for wrong in ("batchtopk", "jumprelu"):
        with pytest.raises(ContractError, match=f"trained as 'matryoshka_batchtopk', .* but params say loss '{wrong}'"):
            specimen.built(folder, loss=wrong)


def test_a_saelens_file_is_computed_in_the_dtype_that_its_configuration_names(tmp_path):
    specimen = ALL["sae_lens-standard"]
    folder = specimen.copied(tmp_path)
    path = folder / "cfg.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dtype": "torch.float64"}))
    sae, x = specimen.built(folder), specimen.x
    assert sae.firings(x, WIDTH).activation.dtype == sae.rebuild(sae.firings(x, WIDTH), x).dtype == torch.float64


def test_older_saelens_files_load_or_say_what_to_fold(tmp_path):
    specimen = ALL["sae_lens-pre-6"]
    folder = specimen.copied(tmp_path)
    assert specimen.built().provenance["metadata"]["hook_name"] == "blocks.1.hook_resid_post"
    rewrite(folder / "sae_weights.safetensors", lambda held: held["scaling_factor"].fill_(2.0))
    with pytest.raises(UnsupportedError, match="scaling_factor is not 1 everywhere; supported is 1: fold it into W_dec"):
        specimen.built(folder)
    jump = ALL["sae_lens-jumprelu"]
    folder = jump.copied(tmp_path)
    rewrite(folder / "sae_weights.safetensors", lambda held: held.update(log_threshold=held.pop("threshold").log()))
    sae, x = jump.built(folder), jump.x
    assert torch.equal(dense_in_file_order(sae, sae.firings(x, 5), len(x)) != 0, jump.native["latents"] != 0)


def test_a_saelens_pickle_of_before_6_is_refused(tmp_path):
    specimen = ALL["sae_lens-pre-6"]
    folder = specimen.copied(tmp_path)
    (folder / "sae_weights.safetensors").write_bytes(pickle.dumps({"W_enc": [1.0]}))
    with pytest.raises(SourceError, match="pickles are never read"):
        specimen.built(folder)
