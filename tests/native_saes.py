"""The specimens: checkpoints that native libraries made, and what those computed of them (`tests/specimens`)."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from latentry.registry import kinds, variant
from latentry.saes.base import Firings, Sae
from planted_saes import dense_of

SPECIMENS = Path(__file__).parent / "specimens"
D_IN, WIDTH = 8, 24
LOSS_OF = {"pre": "topk"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """One checkpoint and what its native library makes of it."""

    name: str
    kind: str
    inside: str = ""
    """Where in the specimen's folder the checkpoint is."""
    told: str = ""
    """Where in it the native library's answers are."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return SPECIMENS / self.name / self.inside

    @property
    def x(self) -> Tensor:
        return load_file(SPECIMENS / self.name / self.told / "inputs.safetensors")["x"]

    @property
    def native(self) -> dict[str, Tensor]:
        return load_file(SPECIMENS / self.name / self.told / "expected.safetensors")

    @property
    def weights_file(self) -> str:
        names = ("sae_weights.safetensors", "sae.safetensors", "ae.pt", "params.npz", "params.safetensors")
        return next(name for name in names if (self.folder / name).is_file())

    def config(self, **changes: Any) -> Any:
        given = {"folder": self.folder, **changes}
        named = {"kind": self.kind, "hookpoint": "read", "width": WIDTH, **self.settings, **given}
        return variant("saes", self.kind).Config(**{key: value for key, value in named.items() if value is not None})

    def built(self, folder: Path | None = None, **changes: Any) -> Sae:
        folder = folder or self.folder
        return variant("saes", self.kind).build(self.config(**{"folder": folder, **changes}), self.name, folder)

    def copied(self, into: Path) -> Path:
        """The checkpoint where a test may spoil it, with what lies beside it and under its own name, which may mean something."""
        shutil.copytree(SPECIMENS / self.name, into / self.name)
        return into / self.name / self.inside


def _specimen(path: Path) -> list[Specimen]:
    kind, form = path.name.split("-", 1)
    settings: dict[str, Any] = {"writes": "written"} if "transcoder" in form else {}
    if kind == "jsae":
        return [Specimen(name=path.name, kind=kind, told=half, settings={"half": half}) for half in ("input", "output")]
    if kind == "sae_lens":
        architecture = form.split("-")[0]
        settings["loss"] = LOSS_OF.get(architecture, architecture)
    inside = {"sparsify": "layers.1.mlp"}.get(kind, "layer_1/width_24/average_l0_9" if form == "1" else "")
    return [Specimen(name=path.name, kind=kind, inside=inside, settings=settings)]


ALL = {
    f"{specimen.name}{'-' + specimen.told if specimen.told else ''}": specimen
    for path in sorted(SPECIMENS.iterdir())
    if path.is_dir() and path.name.split("-")[0] in kinds("saes")
    for specimen in _specimen(path)
}
ONE_OF_EACH_FILE = (
    "sae_lens-topk",
    "sparsify-topk",
    "dictionary_learning-AutoEncoderTopK",
    "gemma_scope-1",
    "gemma_scope-2",
    "jsae-pair-input",
)
"""A specimen for each form of file that a loader reads."""


def dense_in_file_order(sae: Sae, firings: Firings, n_rows: int) -> Tensor:
    """Latents as the native library has them: of a signed SAE both directions in one."""
    dense = dense_of(firings, n_rows, sae.width)
    return dense[:, : sae.width // 2] - dense[:, sae.width // 2 :] if sae.signed else dense


def rewrite(path: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    """Spoil the tensors of a weights file, whatever its form."""
    if path.suffix == ".pt":
        tensors = torch.load(path, weights_only=True)
    elif path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as held:
            tensors = {name: torch.from_numpy(held[name]) for name in held.files}
    else:
        tensors = load_file(path)
    change(tensors)
    if path.suffix == ".pt":
        torch.save(tensors, path)
    elif path.suffix == ".npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in tensors.items()})
    else:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
