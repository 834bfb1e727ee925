"""Specimens of Gemma Scope 1 (npz, names in capitals) and 2 (safetensors, lower-case names).

No library is published with them. The reference is the forward pass that the releases document, by hand: f = relu(pre) where pre > threshold,
with pre = x W_enc + b_enc, no bias subtracted; y = f W_dec + b_dec, to which Gemma Scope 2's transcoders add x times the affine skip connection.

    python tests/specimens/make_gemma_scope.py
"""

import json

import numpy as np
import torch
from safetensors.torch import save_file
from specimen import D_IN, WIDTH, emptied, fill, inputs, record
from torch import Tensor

D_OUT = 10


def weights(d_out: int, skip: bool = False) -> dict[str, Tensor]:
    shapes = {"w_enc": (D_IN, WIDTH), "w_dec": (WIDTH, d_out), "b_enc": (WIDTH,), "b_dec": (d_out,), "threshold": (WIDTH,)}
    made = {name: torch.empty(shape) for name, shape in (shapes | ({"affine_skip_connection": (D_IN, d_out)} if skip else {})).items()}
    fill(made)
    return made


def run(made: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    pre = x @ made["w_enc"] + made["b_enc"]
    latents = torch.relu(pre) * (pre > made["threshold"])
    rebuilt = latents @ made["w_dec"] + made["b_dec"]
    return latents, rebuilt + x @ made["affine_skip_connection"] if "affine_skip_connection" in made else rebuilt


def main() -> None:
    made, folder = weights(D_IN), emptied("gemma_scope-1") / "layer_1" / "width_24" / "average_l0_9"
    folder.mkdir(parents=True)
    np.savez(folder / "params.npz", **{name.replace("w_", "W_"): value.numpy() for name, value in made.items()})
    record(folder.parents[2], inputs(), *run(made, inputs()))
    for form, d_out, skip in (("2", D_IN, False), ("2-transcoder", D_OUT, True)):
        made, folder = weights(d_out, skip), emptied(f"gemma_scope-{form}")
        described = {"architecture": "jump_relu", "model_name": "gemma-v3-1b-pt", "hf_hook_point_in": "model.layers.1.output"}
        if skip:
            layer = "model.layers.1"
            described |= {"affine_connection": True, "hf_hook_point_in": f"{layer}.pre_feedforward_layernorm.output"}
            described |= {"hf_hook_point_out": f"{layer}.post_feedforward_layernorm.output"}
        (folder / "config.json").write_text(json.dumps(described))
        save_file(made, folder / "params.safetensors")
        record(folder, inputs(), *run(made, inputs()))


if __name__ == "__main__":
    main()
