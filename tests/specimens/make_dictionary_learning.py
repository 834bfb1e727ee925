"""Specimens of dictionary_learning, made and read by it (0.1.0): `load_dictionary` is what its users call.

pip install --no-deps --target NATIVE dictionary-learning==0.1.0 zstandard
PYTHONPATH=NATIVE python tests/specimens/make_dictionary_learning.py
"""

import json
import sys
import types

import torch
from specimen import D_IN, WIDTH, emptied, fill, inputs, record

# its buffer, which nothing here uses, wants a tracing library at import
sys.modules["nnsight"] = types.ModuleType("nnsight")
sys.modules["nnsight"].LanguageModel = object  # pyright: ignore[reportAttributeAccessIssue]

from dictionary_learning import dictionary  # noqa: E402
from dictionary_learning.trainers.batch_top_k import BatchTopKSAE  # noqa: E402
from dictionary_learning.trainers.matryoshka_batch_top_k import MatryoshkaBatchTopKSAE  # noqa: E402
from dictionary_learning.trainers.top_k import AutoEncoderTopK  # noqa: E402
from dictionary_learning.utils import load_dictionary  # noqa: E402

K = 5
MAKERS = {
    "AutoEncoder": lambda: dictionary.AutoEncoder(D_IN, WIDTH),
    "AutoEncoderNew": lambda: dictionary.AutoEncoderNew(D_IN, WIDTH),
    "GatedAutoEncoder": lambda: dictionary.GatedAutoEncoder(D_IN, WIDTH),
    "JumpReluAutoEncoder": lambda: dictionary.JumpReluAutoEncoder(D_IN, WIDTH),
    "AutoEncoderTopK": lambda: AutoEncoderTopK(D_IN, WIDTH, K),
    "BatchTopKSAE": lambda: BatchTopKSAE(D_IN, WIDTH, K),
    "MatryoshkaBatchTopKSAE": lambda: MatryoshkaBatchTopKSAE(D_IN, WIDTH, K, [8, 16]),
}


@torch.no_grad()
def main() -> None:
    for name, make in MAKERS.items():
        folder, made = emptied(f"dictionary_learning-{name}"), make()
        fill(dict(made.named_parameters()))
        if "BatchTopK" in name:
            made.threshold.fill_(2.0)
        torch.save(made.state_dict(), folder / "ae.pt")
        trainer = {"dict_class": name, "activation_dim": D_IN, "dict_size": WIDTH, "layer": 1, "lm_name": "some/model"}
        trainer |= {"k": K} if "TopK" in name else {}
        described = {"trainer": trainer | {"submodule_name": "resid_post_layer_1"}, "buffer": {"ctx_len": 64}}
        (folder / "config.json").write_text(json.dumps(described))
        native, x = load_dictionary(str(folder), device="cpu")[0], inputs()
        latents = native.encode(x)
        record(folder, x, latents, native.decode(latents))


if __name__ == "__main__":
    main()
