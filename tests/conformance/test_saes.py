"""Every SAE format: its configuration refuses unknown keys, and what it loads computes what the library of its format computes.

The answers of the native libraries are in `tests/specimens`, with the scripts that took them.
"""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from latentry.errors import ContractError, NumericsError, SourceError, UnsupportedError
from latentry.registry import kinds, variant
from native_saes import ALL, D_IN, ONE_OF_EACH_FILE, WIDTH, Specimen, dense_in_file_order, rewrite

specimens = pytest.mark.parametrize("specimen", ALL.values(), ids=ALL)
of_each_file = pytest.mark.parametrize("specimen", [ALL[name] for name in ONE_OF_EACH_FILE], ids=ONE_OF_EACH_FILE)


@pytest.mark.parametrize("kind", kinds("saes"))
def test_every_kind_refuses_unknown_keys(kind):
    with pytest.raises(ValidationError, match="no_such_knob"):
        variant("saes", kind).Config(kind=kind, no_such_knob=1)


@pytest.mark.parametrize("kind", sorted({specimen.kind for specimen in ALL.values()}))
def test_every_format_has_one_origin_a_width_and_a_whole_commit(kind):
    wanted = next(specimen for specimen in ALL.values() if specimen.kind == kind)
    hub = {"id": "some/saes", "revision": "0" * 40, "path": "layers.1"}
    assert wanted.config(folder=None, hub=hub).hub.path == "layers.1"
    for change, said in (
        ({"folder": None}, "name exactly one"),
        ({"hub": hub}, "name exactly one"),
        ({"width": 0}, "greater than or equal to 1"),
        ({"folder": None, "hub": hub | {"revision": "main"}}, "revision"),
        ({"folder": None, "hub": hub | {"path": "../others"}}, "no folder inside the repository"),
    ):
        with pytest.raises(ValidationError, match=said):
            wanted.config(**change)


@pytest.mark.parametrize("block", [1, 7, WIDTH - 1, 10 * WIDTH])
@specimens
def test_it_computes_what_the_native_library_computes_at_any_block_size(specimen: Specimen, block):
    sae, x, native = specimen.built(), specimen.x, specimen.native
    firings = sae.firings(x, block)
    found = dense_in_file_order(sae, firings, len(x))
    assert torch.equal(found != 0, native["latents"] != 0)
    # sums of 8 products, and of up to 24, in another order; bfloat16 has 8 bits
    exact = {"rtol": 1e-5, "atol": 1e-5} if x.dtype == torch.float32 else {"rtol": 2**-7, "atol": 2**-7}
    torch.testing.assert_close(found, native["latents"], **exact)
    torch.testing.assert_close(sae.rebuild(firings, x), native["reconstruction"], rtol=exact["rtol"], atol=10 * exact["atol"])
    assert (sae.d_in, sae.width, sae.dtype) == (D_IN, WIDTH * (2 if sae.signed else 1), x.dtype)


@specimens
def test_firings_are_ordered_by_token_and_latent_and_none_is_there_twice(specimen: Specimen):
    sae = specimen.built()
    firings = sae.firings(specimen.x, 7)
    assert ((firings.token * sae.width + firings.latent).diff() > 0).all()
    assert (firings.activation != 0).all()


@pytest.mark.parametrize("batch", [1, 2])
@specimens
def test_a_row_gives_the_same_latents_in_any_batch(specimen: Specimen, batch):
    sae, x = specimen.built(), specimen.x
    together = dense_in_file_order(sae, sae.firings(x, 16), len(x))
    apart = torch.cat([dense_in_file_order(sae, sae.firings(rows, 16), len(rows)) for rows in x.split(batch)])
    assert torch.equal(apart != 0, together != 0)
    torch.testing.assert_close(apart, together, rtol=1e-5, atol=1e-5)


@specimens
def test_a_copy_is_its_own_files_and_a_record_and_loads_alike(specimen: Specimen, tmp_path):
    room, config, copy, source = variant("saes", specimen.kind), specimen.config(), tmp_path / "copy", specimen.copied(tmp_path)
    (source / "notes.txt").write_text("mine")
    copy.mkdir()
    assert room.make(specimen.config(folder=source), None, None, seed=0, folder=copy, metadata={}, checkpoint_tokens=1) is None
    assert {path.name for path in copy.iterdir()} <= {"source.json", "cfg.json", "config.json", specimen.weights_file}
    ours, theirs = specimen.built(copy), specimen.built()
    assert torch.equal(ours.decoder, theirs.decoder)
    assert ours.provenance == theirs.provenance | {"source": source.name}
    assert (room.is_copy(config, copy), room.origin_digest(config)) == (True, ours.provenance["digest"])
    rewrite(source / specimen.weights_file, lambda held: next(iter(held.values())).add_(1))
    assert not room.is_copy(specimen.config(folder=source), copy)


@specimens
def test_it_says_where_it_came_from_and_names_no_path_of_this_machine(specimen: Specimen):
    provenance = specimen.built().provenance
    assert {"format", "source", "revision", "digest", "licence", "architecture", "metadata"} <= set(provenance)
    assert str(Path.home()) not in json.dumps(provenance)
    assert str(specimen.folder.parent) not in json.dumps(provenance)


@of_each_file
def test_weights_in_bfloat16_give_a_decoder_that_numpy_can_hold(specimen: Specimen, tmp_path):
    folder = specimen.copied(tmp_path)
    if specimen.weights_file.endswith("npz"):
        pytest.skip("numpy has no bfloat16")
    rewrite(folder / specimen.weights_file, lambda held: held.update({name: half(tensor) for name, tensor in held.items()}))
    exact = specimen.built().decoder
    found = specimen.built(folder).decoder.float().numpy()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact.numpy(), rtol=2**-7)


def half(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.bfloat16() if tensor.is_floating_point() else tensor


class Spoiler:
    """Written to a file when a pickle of it is opened."""

    def __reduce__(self):
        return exec, ("open('opened', 'w').close()",)


def decoder_key(held: dict[str, torch.Tensor]) -> str:
    return next(name for name in held if name.lower().lstrip("_") in ("w_dec", "decoder.weight"))


def encoder_key(held: dict[str, torch.Tensor]) -> str:
    return next(name for name in held if name.lower().lstrip("_") in ("w_enc", "encoder.weight"))


@of_each_file
def test_a_pickle_is_refused_and_never_opened(specimen: Specimen, tmp_path, monkeypatch):
    folder = specimen.copied(tmp_path)
    monkeypatch.chdir(tmp_path)
    (folder / specimen.weights_file).write_bytes(pickle.dumps(Spoiler(), protocol=2))
    with pytest.raises(SourceError, match=rf"{specimen.weights_file}: .*(never read|cut short)"):
        specimen.built(folder)
    assert not (tmp_path / "opened").exists()


@of_each_file
def test_a_file_that_is_cut_short_is_named(specimen: Specimen, tmp_path):
    folder = specimen.copied(tmp_path)
    path = folder / specimen.weights_file
    for share in (0.0, 0.3, 0.9):
        path.write_bytes((specimen.folder / path.name).read_bytes()[: int(share * path.stat().st_size)])
        with pytest.raises(SourceError, match=rf"{path.name}: .*download it again"):
            specimen.built(folder)


@of_each_file
def test_a_missing_tensor_is_named_with_those_that_are_there_and_those_wanted(specimen: Specimen, tmp_path):
    folder = specimen.copied(tmp_path)
    rewrite(folder / specimen.weights_file, lambda held: held.pop(encoder_key(held)))
    with pytest.raises(ContractError, match=r"lacks \['(_?W_enc|w_enc|encoder.weight)'\]; found \[.*\], wanted \[.*\]"):
        specimen.built(folder)


@of_each_file
def test_a_tensor_that_the_configuration_does_not_speak_of_is_named(specimen: Specimen, tmp_path):
    folder = specimen.copied(tmp_path)
    rewrite(folder / specimen.weights_file, lambda held: held.update(W_more=torch.ones(2)))
    with pytest.raises(ContractError, match=r"holds \['[Ww]_more'\], which its configuration does not speak of; wanted"):
        specimen.built(folder)


@of_each_file
@pytest.mark.parametrize("key", [encoder_key, decoder_key])
def test_transposed_matrices_are_told_as_such(specimen: Specimen, tmp_path, key):
    folder = specimen.copied(tmp_path)
    rewrite(folder / specimen.weights_file, lambda held: held.update({key(held): held[key(held)].T.contiguous()}))
    with pytest.raises(ContractError, match=r"has shape \((8, 24|24, 8)\), wanted \((8, 24|24, 8)\); it is stored transposed"):
        specimen.built(folder)


@of_each_file
def test_weights_that_are_not_numbers_are_named(specimen: Specimen, tmp_path):
    folder = specimen.copied(tmp_path)
    rewrite(folder / specimen.weights_file, lambda held: held[decoder_key(held)][0, 0].fill_(float("nan")))
    with pytest.raises(NumericsError, match=r"holds NaN or infinity, wanted finite numbers"):
        specimen.built(folder)


@of_each_file
def test_a_width_that_params_do_not_name_and_a_width_of_0_are_told(specimen: Specimen, tmp_path):
    with pytest.raises(ContractError, match=r"params say width 25; correct `width`"):
        specimen.built(width=WIDTH + 1)
    folder = specimen.copied(tmp_path)
    rewrite(folder / specimen.weights_file, lambda held: held.update({encoder_key(held): torch.ones(0, 0)}))
    with pytest.raises(ContractError, match=r"shape \(0, 0\)"):
        specimen.built(folder)


def described(folder: Path, change: dict) -> None:
    path = next(folder / name for name in ("cfg.json", "config.json") if (folder / name).is_file())
    known = json.loads(path.read_text())
    path.write_text(
        json.dumps(known | {key: known.get(key, {}) | value if isinstance(value, dict) else value for key, value in change.items()})
    )


@pytest.mark.parametrize(
    ("name", "change", "error", "said"),
    [
        ("sae_lens-topk", {"d_sae": 0}, ContractError, "d_sae is 0, but params say width 24; correct `width`"),
        ("sae_lens-topk", {"d_in": 9}, ContractError, r"W_enc has shape \(8, 24\), wanted \(9, 24\)"),
        ("sae_lens-topk", {"d_in": None}, ContractError, "d_in is None, wanted a whole number from 1"),
        ("sae_lens-topk", {"k": 25}, ContractError, "k is 25, wanted a whole number from 1 to the width 24"),
        ("sae_lens-topk", {"k": None}, ContractError, "k is None"),
        ("sae_lens-topk", {"dtype": "int8"}, ContractError, "dtype is 'int8', wanted one of float32, float64, float16, bfloat16"),
        ("sae_lens-topk", {"metadata": {"training_architecture": "batchtopk"}}, ContractError, "trained as 'batchtopk', stored as 'topk'"),
        ("sae_lens-topk", {"architecture": "temporal"}, UnsupportedError, r"'temporal' \(its latents depend on the tokens before"),
        ("sae_lens-topk", {"architecture": "matching_pursuit"}, UnsupportedError, r"whole width at once\); supported are abstopk, gated, "),
        ("sae_lens-topk", {"normalize_activations": "covariance_whitening"}, UnsupportedError, "supported are 'none', 'layer_norm', "),
        ("sae_lens-topk", {"normalize_activations": "expected_average_only_in"}, UnsupportedError, "fold it with sae-lens"),
        (
            "sae_lens-topk",
            {"reshape_activations": "heads"},
            UnsupportedError,
            "reshape_activations 'heads'; supported are 'none', 'hook_z'",
        ),
        ("sae_lens-transcoder", {"d_out": None}, ContractError, "d_out is None"),
        ("sae_lens-pre-6", {"activation_fn_str": "tanh-relu"}, UnsupportedError, "activation_fn_str 'tanh-relu'; supported are relu, topk"),
        ("sae_lens-pre-6", {"finetuning_scaling_factor": True}, UnsupportedError, "finetuning_scaling_factor is True; supported is false"),
        ("sae_lens-pre-6", {"normalize_activations": True}, UnsupportedError, "'expected_average_only_in'"),
        ("sparsify-topk", {"num_latents": 0, "expansion_factor": 0}, ContractError, "is 0, but params say width 24"),
        ("sparsify-topk", {"d_in": 9}, ContractError, r"encoder.weight has shape \(24, 8\), wanted \(24, 9\)"),
        ("sparsify-topk", {"k": 0}, ContractError, "k is 0, wanted a whole number from 1 to the width 24"),
        ("sparsify-topk", {"activation": "relu"}, UnsupportedError, "activation 'relu'; supported are topk, groupmax"),
        ("sparsify-topk", {"skip_connection": True}, ContractError, r"lacks \['W_skip'\]"),
        ("sparsify-skip-transcoder", {"skip_connection": False}, ContractError, r"holds \['W_skip'\]"),
        ("sparsify-groupmax", {"k": 5}, ContractError, "k is 5, which does not divide the width 24 into groups"),
        ("dictionary_learning-AutoEncoderTopK", {"trainer": {"dict_size": 0}}, ContractError, "dict_size is 0, but params say width 24"),
        ("dictionary_learning-AutoEncoderTopK", {"trainer": {"activation_dim": 9}}, ContractError, r"wanted \(24, 9\)"),
        ("dictionary_learning-AutoEncoderTopK", {"trainer": {"k": 6}}, ContractError, "k is 5, but config.json says 6"),
        ("dictionary_learning-AutoEncoder", {"trainer": None}, ContractError, "trainer is None, wanted an object"),
        (
            "dictionary_learning-AutoEncoder",
            {"trainer": {"dict_class": "CrossCoder"}},
            UnsupportedError,
            "'CrossCoder'; supported are AutoEnc",
        ),
        ("dictionary_learning-AutoEncoder", {"trainer": {"dict_class": "IdentityDict"}}, UnsupportedError, "MatryoshkaBatchTopKSAE"),
        ("dictionary_learning-AutoEncoder", {"trainer": {"dict_class": "JumpReluAutoEncoder"}}, ContractError, r"lacks \['W_dec'"),
        ("gemma_scope-2", {"architecture": "topk"}, UnsupportedError, "architecture 'topk'; supported is jump_relu"),
        ("gemma_scope-2", {"affine_connection": True}, ContractError, r"lacks \['affine_skip_connection'\]"),
        ("gemma_scope-2-transcoder", {"affine_connection": False}, ContractError, r"holds \['affine_skip_connection'\]"),
        ("jsae-pair-output", {"d_sae": 0}, ContractError, "d_sae is 0, but params say width 24"),
        ("jsae-pair-output", {"d_in": 9}, ContractError, r"_W_enc_out has shape \(8, 24\), wanted \(9, 24\)"),
        ("jsae-pair-output", {"architecture": "gated"}, UnsupportedError, "architecture 'gated'; supported are standard"),
        ("jsae-pair-output", {"activation_fn_str": "tanh-relu"}, UnsupportedError, "'tanh-relu'; supported are topk, relu"),
        ("jsae-pair-output", {"activation_fn_kwargs": {"k": 0}}, ContractError, "activation_fn_kwargs.k is 0"),
        (
            "jsae-pair-output",
            {"normalize_activations": "layer_norm"},
            UnsupportedError,
            "normalize_activations 'layer_norm'; supported are none",
        ),
    ],
)
def test_a_configuration_that_contradicts_its_weights_or_cannot_be_followed_is_refused(tmp_path, name, change, error, said):
    specimen = ALL[name]
    folder = specimen.copied(tmp_path)
    described(folder, change)
    with pytest.raises(error, match=said):
        specimen.built(folder)


@of_each_file
def test_a_missing_file_or_folder_is_named_with_what_is_there(specimen: Specimen, tmp_path):
    with pytest.raises(SourceError, match=r"no \w+\.\w+ \(found: no such folder\); a \w+ folder holds .*, and pickles are never read"):
        specimen.built(tmp_path / "nowhere")
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(SourceError, match=r"found: \['weights\.bin'\]"):
        specimen.built(tmp_path)


@pytest.mark.parametrize(
    "name", ["sae_lens-topk", "sparsify-topk", "dictionary_learning-AutoEncoderTopK", "gemma_scope-2", "jsae-pair-input"]
)
@pytest.mark.parametrize(("text", "said"), [("{", "unreadable JSON"), ("[]", "holds a list, wanted an object")])
def test_a_configuration_that_is_no_json_object_is_named(tmp_path, name, text, said):
    folder = ALL[name].copied(tmp_path)
    next(folder.glob("c*.json")).write_text(text)
    with pytest.raises(ContractError, match=said):
        ALL[name].built(folder)


TRANSCODERS = [name for name in ALL if "transcoder" in name]


@pytest.mark.parametrize("name", [name for name in TRANSCODERS if not name.startswith("sae_lens")])
def test_a_transcoder_is_told_what_it_writes(name):
    assert (ALL[name].built().hookpoint, ALL[name].built().writes) == ("read", "written")
    with pytest.raises(ContractError, match="is a transcoder, and params name no `writes`"):
        ALL[name].built(writes=None)


@pytest.mark.parametrize("name", ["sparsify-topk", "dictionary_learning-AutoEncoder", "gemma_scope-2", "jsae-pair-input"])
def test_a_plain_sae_writes_what_it_reads(name):
    assert ALL[name].built().writes == "read"
    with pytest.raises(ContractError, match="is no transcoder, but params say it writes 'written'"):
        ALL[name].built(writes="written")
