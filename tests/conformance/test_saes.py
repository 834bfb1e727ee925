"""Every SAE format: its configuration refuses unknown keys, and what it loads computes what the library of its format computes.

The oracle for SAELens folders is sae-lens itself, on small SAEs that it saved.
"""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file

from latentry.errors import ContractError, NumericsError, SourceError, UnsupportedError
from latentry.registry import kinds, variant
from latentry.saes import sae_lens
from planted_saes import StoredActivations, dense_of

D_IN, WIDTH = 12, 40
FORMS = {
    "standard": {},
    "topk": {"k": 5, "rescale_acts_by_decoder_norm": True},
    "topk-plain": {"k": 5, "rescale_acts_by_decoder_norm": False},
    "jumprelu": {},
    "gated": {},
    "standard-uncentred": {"apply_b_dec_to_input": False},
}


@pytest.mark.parametrize("kind", kinds("saes"))
def test_every_kind_refuses_unknown_keys(kind):
    with pytest.raises(ValidationError, match="no_such_knob"):
        variant("saes", kind).Config(kind=kind, no_such_knob=1)


def saved_by_sae_lens(folder: Path, form: str):
    """A SAE of random weights, saved and loaded again by sae-lens."""
    from sae_lens import SAE

    architecture = form.split("-")[0]
    sae = SAE.from_dict({"architecture": architecture, "d_in": D_IN, "d_sae": WIDTH, "metadata": {"model_name": "tiny"}, **FORMS[form]})
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, weight in sae.named_parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * (0.3 if name == "r_mag" else 1))
    if architecture == "jumprelu":
        sae.threshold.data.abs_()
    sae.save_model(folder)
    return SAE.load_from_disk(folder, device="cpu")


def loaded(folder: Path, form: str = "topk", **changes):
    config = {"kind": "sae_lens", "hookpoint": "resid", "width": WIDTH, "loss": form.split("-")[0], "folder": folder, **changes}
    return sae_lens.build(sae_lens.Config(**config), form, folder)


@pytest.mark.parametrize("block", [1, 3, 7, WIDTH - 1, WIDTH, 10 * WIDTH])
@pytest.mark.parametrize("form", FORMS)
def test_it_computes_what_sae_lens_computes_at_any_block_size(tmp_path, form, block):
    theirs, ours = saved_by_sae_lens(tmp_path, form), loaded(tmp_path, form)
    x = 3 * torch.randn(256, D_IN, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, firings = theirs.encode(x), ours.firings(x, block)
        found = dense_of(firings, len(x), WIDTH)
        assert torch.equal(found != 0, expected != 0)
        assert 0 < (found != 0).float().mean() < 1
        # float32 sums of 12 products in another order
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours.rebuild(firings, x), theirs.decode(expected), rtol=1e-5, atol=1e-4)
    assert (ours.d_in, ours.width, ours.dtype) == (D_IN, WIDTH, torch.float32)


@pytest.mark.parametrize("form", FORMS)
def test_firings_are_ordered_by_token_and_latent_and_none_is_there_twice(tmp_path, form):
    saved_by_sae_lens(tmp_path, form)
    firings = loaded(tmp_path, form).firings(torch.randn(50, D_IN, generator=torch.Generator().manual_seed(3)), 7)
    places = firings.token * WIDTH + firings.latent
    assert (places.diff() > 0).all()
    assert (firings.activation != 0).all()


@pytest.mark.parametrize("batch", [1, 2, 16])
@pytest.mark.parametrize("form", FORMS)
def test_a_row_gives_the_same_latents_in_any_batch(tmp_path, form, batch):
    saved_by_sae_lens(tmp_path, form)
    sae = loaded(tmp_path, form)
    x = torch.randn(33, D_IN, generator=torch.Generator().manual_seed(2))
    together = dense_of(sae.firings(x, 16), len(x), WIDTH)
    apart = torch.cat([dense_of(sae.firings(rows, 16), len(rows), WIDTH) for rows in x.split(batch)])
    assert torch.equal(apart != 0, together != 0)
    torch.testing.assert_close(apart, together, rtol=1e-5, atol=1e-6)


def test_it_encodes_in_the_dtype_of_its_weights(tmp_path):
    from sae_lens import SAE

    saved_by_sae_lens(tmp_path, "standard")
    weights = load_file(tmp_path / "sae_weights.safetensors")
    save_file({name: weight.bfloat16() for name, weight in weights.items()}, tmp_path / "sae_weights.safetensors")
    sae, x = loaded(tmp_path, "standard"), torch.randn(20, D_IN, generator=torch.Generator().manual_seed(4))
    firings = sae.firings(x, 16)
    rebuilt = sae.rebuild(firings, x)
    assert firings.activation.dtype == rebuilt.dtype == torch.bfloat16
    with torch.no_grad():
        expected = SAE.load_from_disk(tmp_path, device="cpu", dtype="bfloat16")(x.bfloat16())
    # 8 bits of mantissa, sums of up to 40 numbers of size up to 10
    torch.testing.assert_close(rebuilt.float(), expected.float(), rtol=0.02, atol=0.2)


def damage(folder: Path, change) -> None:
    weights = load_file(folder / "sae_weights.safetensors")
    change(weights)
    save_file({name: weight.contiguous() for name, weight in weights.items()}, folder / "sae_weights.safetensors")


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda weights: weights.pop("b_enc"), ContractError, r"lacks \['b_enc'\]; found \['W_dec', 'W_enc', 'b_dec'\]"),
        (
            lambda weights: weights.update(W_dec=weights["W_dec"].T),
            ContractError,
            r"W_dec has shape \(12, 40\), wanted \(40, 12\).*transposed",
        ),
        (lambda weights: weights["W_enc"].fill_(float("nan")), NumericsError, "W_enc holds NaN"),
        (lambda weights: weights.update(b_dec=weights["b_dec"].long()), ContractError, "b_dec is torch.int64"),
    ],
)
def test_damaged_weights_are_named(tmp_path, change, error, said):
    saved_by_sae_lens(tmp_path, "topk")
    damage(tmp_path, change)
    with pytest.raises(error, match=said):
        loaded(tmp_path)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"architecture": "temporal"}, UnsupportedError, "'temporal'; supported are gated, jumprelu, standard, topk"),
        ({"normalize_activations": "layer_norm"}, UnsupportedError, "'layer_norm'; supported is 'none'"),
        ({"d_sae": 41}, ContractError, "d_sae is 41, but params say width 40"),
        ({"d_in": None}, ContractError, "d_in is None"),
        ({"k": None}, ContractError, "k is None, wanted a whole number from 1 to the width 40"),
        ({"k": 41}, ContractError, "k is 41"),
        ({"metadata": {"training_architecture": "batchtopk"}}, ContractError, "trained as 'batchtopk'"),
    ],
)
def test_a_configuration_that_cannot_be_followed_is_refused(tmp_path, change, error, said):
    saved_by_sae_lens(tmp_path, "topk")
    path = tmp_path / "cfg.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(error, match=said):
        loaded(tmp_path)


def test_a_wrong_loss_label_is_refused_where_the_file_knows_better(tmp_path):
    saved_by_sae_lens(tmp_path, "jumprelu")
    assert loaded(tmp_path, "jumprelu", loss="batchtopk").loss == "batchtopk"
    with pytest.raises(ContractError, match="but params say loss 'topk'"):
        loaded(tmp_path, "jumprelu", loss="topk")


def test_a_pickle_is_refused_and_never_opened(tmp_path):
    saved_by_sae_lens(tmp_path, "topk")
    (tmp_path / "sae_weights.safetensors").write_bytes(pickle.dumps({"W_enc": [1.0]}))
    with pytest.raises(SourceError, match="pickles are never read"):
        loaded(tmp_path)


def test_a_missing_file_or_folder_is_named_with_what_is_there(tmp_path):
    with pytest.raises(SourceError, match=r"no cfg\.json \(found: no such folder\)"):
        loaded(tmp_path / "nowhere")
    (tmp_path / "ae.pt").write_bytes(b"")
    with pytest.raises(SourceError, match=r"found: \['ae\.pt'\]"):
        loaded(tmp_path)


def test_a_copied_sae_is_its_two_files_and_loads_alike(tmp_path):
    source, folder = tmp_path / "source", tmp_path / "copy"
    saved_by_sae_lens(source, "topk")
    (source / "notes.txt").write_text("mine")
    folder.mkdir()
    config = sae_lens.Config(kind="sae_lens", hookpoint="resid", width=WIDTH, loss="topk", folder=source)
    nothing = StoredActivations(torch.zeros(1, 1, D_IN))
    assert sae_lens.make(config, nothing, np.array([], dtype=int), seed=0, folder=folder, metadata={}, checkpoint_tokens=1) is None
    assert sorted(path.name for path in folder.iterdir()) == ["cfg.json", "sae_weights.safetensors"]
    assert torch.equal(loaded(folder).decoder, loaded(source).decoder)
