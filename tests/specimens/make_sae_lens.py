"""Specimens in the SAELens layout, saved, read and run by sae-lens itself (6.54), one of each inference architecture that runs alone
on a row, and of what goes on around it (normalisation, reshaping).

    python tests/specimens/make_sae_lens.py
"""

import torch
from sae_lens import SAE
from safetensors.torch import save_file
from specimen import D_IN, WIDTH, emptied, fill, generator, inputs, record

D_OUT = 10
OUT = {"d_out": D_OUT, "apply_b_dec_to_input": False}
FORMS = {
    "standard": {},
    "standard-uncentred": {"apply_b_dec_to_input": False},
    "gated": {},
    "topk": {"k": 5},
    "topk-rescaled": {"k": 5, "rescale_acts_by_decoder_norm": True},
    "abstopk": {"k": 5},
    "abstopk-rescaled": {"k": 5, "rescale_acts_by_decoder_norm": True},
    "jumprelu": {},
    "transcoder": OUT,
    "skip_transcoder": OUT,
    "jumprelu_transcoder": OUT,
    "jumprelu_skip_transcoder": OUT,
    "standard-layer_norm": {"normalize_activations": "layer_norm"},
    "topk-constant_norm_rescale": {"k": 5, "normalize_activations": "constant_norm_rescale"},
    "gated-hook_z": {"reshape_activations": "hook_z"},
}
METADATA = {"model_name": "some-model", "hook_name": "blocks.1.hook_resid_post", "context_size": 64, "prepend_bos": True}


@torch.no_grad()
def main() -> None:
    for form, settings in FORMS.items():
        folder, metadata = emptied(f"sae_lens-{form}"), dict(METADATA)
        if "hook_z" in form:
            metadata["hook_name"] = "blocks.1.attn.hook_z"
        described = {"architecture": form.split("-")[0], "d_in": D_IN, "d_sae": WIDTH, "metadata": metadata, **settings}
        made = SAE.from_dict(described) if "transcoder" not in form else _transcoder(described)
        fill(dict(made.named_parameters()))
        made.save_model(folder)
        native, x = type(made).load_from_disk(folder, device="cpu"), inputs()
        heads = x.unflatten(-1, (2, -1)) if "hook_z" in form else x
        latents = native.encode(heads)
        rebuilt = native(heads)
        record(folder, x, latents, rebuilt.flatten(-2) if "hook_z" in form else rebuilt)
    _pre_6()


def _transcoder(described: dict) -> SAE:
    from sae_lens.registry import get_sae_class

    return get_sae_class(described["architecture"])[0].from_dict(described)


def _pre_6() -> None:
    """The layout before SAELens 6: names of the hookpoint beside the sizes, the activation function apart."""
    import json

    folder = emptied("sae_lens-pre-6")
    described = {"d_in": D_IN, "d_sae": WIDTH, "dtype": "torch.float32", "activation_fn_str": "topk", "activation_fn_kwargs": {"k": 5}}
    described |= {"model_name": "some-model", "hook_point": "blocks.1.hook_resid_post", "context_size": 64, "normalize_activations": False}
    (folder / "cfg.json").write_text(json.dumps(described))
    shapes = {"W_enc": (D_IN, WIDTH), "W_dec": (WIDTH, D_IN), "b_enc": (WIDTH,), "b_dec": (D_IN,)}
    weights = {name: torch.randn(shape, generator=generator(len(name) + shape[0])) for name, shape in shapes.items()}
    save_file(weights | {"scaling_factor": torch.ones(WIDTH)}, folder / "sae_weights.safetensors")
    native, x = SAE.load_from_disk(folder, device="cpu"), inputs()
    latents = native.encode(x)
    record(folder, x, latents, native.decode(latents))


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
