"""Specimens of sparsify, made and read by sparsify itself (eai-sparsify 1.3.3).

pip install --no-deps --target NATIVE eai-sparsify==1.3.3 natsort schedulefree
SPARSIFY_DISABLE_TRITON=1 PYTHONPATH=NATIVE python tests/specimens/make_sparsify.py
"""

import json

import torch
from sparsify import SparseCoder, SparseCoderConfig
from specimen import D_IN, HERE, WIDTH, emptied, fill, inputs, record

FORMS = {
    "topk": {"num_latents": WIDTH, "k": 5},
    "topk-by-factor": {"num_latents": 0, "expansion_factor": 3, "k": 5, "normalize_decoder": False},
    "groupmax": {"num_latents": WIDTH, "k": 6, "activation": "groupmax"},
    "transcoder": {"num_latents": WIDTH, "k": 5, "transcode": True},
    "skip-transcoder": {"num_latents": WIDTH, "k": 5, "transcode": True, "skip_connection": True},
    "topk-bfloat16": {"num_latents": WIDTH, "k": 5},
}


def untied(pre: torch.Tensor, k: int) -> torch.Tensor:
    """Rows whose k-th largest is no tie: of equals, which are common in bfloat16, the library takes any."""
    largest = pre.topk(k + 1, dim=-1).values
    return largest[:, k - 1] > largest[:, k]


@torch.no_grad()
def main() -> None:
    for form, settings in FORMS.items():
        folder = emptied(f"sparsify-{form}") / "layers.1.mlp"
        dtype = torch.bfloat16 if form.endswith("bfloat16") else torch.float32
        coder = SparseCoder(D_IN, SparseCoderConfig(**settings), dtype=dtype)
        fill(dict(coder.named_parameters()))
        coder.save_to_disk(folder)
        (folder.parent / "config.json").write_text(json.dumps({"model": "some/model", "dataset": "some/text", "ctx_len": 64}))
        native, x = SparseCoder.load_from_disk(folder), inputs().to(dtype)
        if form.startswith("topk"):
            x = x[untied(native.encode(x).pre_acts, native.cfg.k)]
        out = native(x)
        latents = torch.zeros(len(x), WIDTH, dtype=dtype).scatter_(-1, out.latent_indices, out.latent_acts)
        record(HERE / f"sparsify-{form}", x, latents, out.sae_out)


if __name__ == "__main__":
    main()
