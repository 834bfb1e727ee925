"""Specimen of a JSAE pair. Its package is not on the registry: the reference is its published forward pass (Farnik et al., ICML 2025), by hand:
two SAEs in one file, each f = relu of the k largest of (x - b_dec) W_enc + b_enc, y = f W_dec + b_dec.

    python tests/specimens/make_jsae.py
"""

import json

import torch
from safetensors.torch import save_file
from specimen import D_IN, WIDTH, emptied, fill, inputs, record

K = 5


def main() -> None:
    folder = emptied("jsae-pair")
    shapes = {"_W_enc": (D_IN, WIDTH), "_W_dec": (WIDTH, D_IN), "_b_enc": (WIDTH,), "_b_dec": (D_IN,)}
    made = {name + half: torch.empty(shape) for name, shape in shapes.items() for half in ("", "_out")}
    fill(made)
    save_file(made, folder / "sae_weights.safetensors")
    described = {"architecture": "standard", "d_in": D_IN, "d_sae": WIDTH, "dtype": "torch.float32", "is_pair": True}
    described |= {"activation_fn_str": "topk", "activation_fn_kwargs": {"k": K}, "apply_b_dec_to_input": True}
    described |= {"finetuning_scaling_factor": False, "normalize_activations": "none", "model_name": "some-model", "prepend_bos": True}
    described |= {"hook_name": "blocks.1.ln2.hook_normalized", "hook_layer": 1, "hook_head_index": None, "context_size": 64}
    (folder / "cfg.json").write_text(json.dumps(described))
    for half, ending in (("input", ""), ("output", "_out")):
        w_enc, w_dec, b_enc, b_dec = (made[f"_{name}{ending}"] for name in ("W_enc", "W_dec", "b_enc", "b_dec"))
        x = inputs()
        largest = torch.topk((x - b_dec) @ w_enc + b_enc, K, dim=-1)
        latents = torch.zeros(len(x), WIDTH).scatter_(-1, largest.indices, largest.values.relu())
        (folder / half).mkdir()
        record(folder / half, x, latents, latents @ w_dec + b_dec)


if __name__ == "__main__":
    main()
