"""What every specimen is made of: seeded weights and inputs, and what its native library computes of them."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

HERE = Path(__file__).parent
D_IN, WIDTH, N_ROWS = 8, 24, 32


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inputs() -> Tensor:
    """Rows [N_ROWS, D_IN], of a norm such as activations have beside the weights below."""
    return 2 * torch.randn(N_ROWS, D_IN, generator=generator(0))


@torch.no_grad()
def fill(tensors: dict[str, Tensor], seed: int = 1) -> None:
    """Other numbers in place of what a library begins with (zero biases hide a bias that is left out)."""
    numbers = generator(seed)
    for name in sorted(tensors):
        tensor = tensors[name]
        drawn = torch.randn(tensor.shape, generator=numbers)
        if "threshold" in name:
            drawn = drawn.abs()
        tensor.copy_(drawn * (0.4 if name in ("r_mag", "W_skip", "affine_skip_connection") else 1.0))


def record(folder: Path, x: Tensor, latents: Tensor, reconstruction: Tensor) -> None:
    """What the native library computed, beside the checkpoint; a specimen whose latents all fire, or none, shows nothing."""
    fires = latents != 0
    if fires.all() or not fires.any():
        raise SystemExit(f"{folder.name}: {fires.float().mean():.0%} of its latents fire; choose other weights")
    save_file({"x": x.contiguous()}, folder / "inputs.safetensors")
    save_file({"latents": latents.contiguous(), "reconstruction": reconstruction.contiguous()}, folder / "expected.safetensors")
    print(f"{folder.name}: L0 {fires.float().sum(-1).mean():.1f} of {latents.shape[1]}")  # noqa: T201


def emptied(name: str) -> Path:
    """The specimen's folder, without what an earlier run left."""
    folder = HERE / name
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    folder.mkdir(parents=True, exist_ok=True)
    return folder
