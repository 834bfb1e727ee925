"""MLPs between two SAEs whose Jacobian is known: one in which each input latent drives one output latent, and random ones for brute force."""

import numpy as np
import torch
from torch import Tensor

from latentry.edges.between import Between, between
from latentry.mlp_jacobian import Mlp
from latentry.saes.base import Sae
from planted_saes import StoredActivations

DRIVES = {0: (2, 0.5), 1: (0, -2.0), 2: (1, 4.0), 3: (3, 1.0)}
"""For each output latent the input latent that drives it, and how strongly; -: both are there and the output latent falls."""


def plain_sae(name: str, decoder: Tensor, encoder: Tensor, k: int | None = None) -> Sae:
    """A SAE of those rows, ReLU or TopK, without biases."""
    return Sae(
        name=name,
        hookpoint=name,
        writes=name,
        loss="standard" if k is None else "topk",
        d_in=encoder.shape[1],
        encode_block=lambda x, block: x @ encoder[block].T if k is not None else (x @ encoder[block].T).relu(),
        k=k,
        decoder=decoder,
        decoder_bias=torch.zeros(decoder.shape[1]),
        encoder=encoder,
        provenance={},
    )


def driven() -> tuple[Between, StoredActivations]:
    """One input latent drives one output latent; decoder rows of the two SAEs have norms 2 and 8, which must not matter.

    Latents are coordinates. 4 contexts of 6 positions, 1 where the latent is active; output latents fire wherever their coordinate is above 0.
    """
    n = len(DRIVES)
    down = torch.zeros(n, n)
    for out, (read, strength) in DRIVES.items():
        down[out, read] = strength
    mlp = Mlp(up=torch.eye(n), up_bias=None, gate=None, gate_bias=None, down=down, down_bias=torch.full((n,), 3.0), activation=torch.relu)
    eye = torch.eye(n)
    both = between(plain_sae("read", 2 * eye, eye / 2), plain_sae("written", 8 * eye, eye / 8), mlp)
    x = (torch.rand(4, 6, n, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    return both, beside(mlp, x)


def random_pair(
    d: int = 5, d_mlp: int = 7, widths: tuple[int, int] = (9, 11), k: int = 3, seed: int = 0
) -> tuple[Between, StoredActivations]:
    """A random gated MLP between random TopK SAEs, and random activations."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    mlp = Mlp(
        up=draw(d_mlp, d),
        up_bias=draw(d_mlp),
        gate=draw(d_mlp, d),
        gate_bias=None,
        down=draw(d, d_mlp),
        down_bias=draw(d),
        activation=torch.nn.functional.silu,
    )
    saes = [plain_sae(name, draw(width, d), draw(width, d), k) for name, width in zip(("read", "written"), widths, strict=True)]
    return between(*saes, mlp), beside(mlp, draw(5, 8, d))


def beside(mlp: Mlp, x: Tensor) -> StoredActivations:
    """What an MLP reads, and after it in each row what it writes."""
    written = mlp(x.flatten(0, 1)).unflatten(0, x.shape[:2])
    return StoredActivations(torch.cat([x, written], dim=-1), d_written=written.shape[-1])


def brute_force(both: Between, rows: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """By autograd, at each row, the whole [width_out, width_in] Jacobian between unit decoder rows, and which pairs are active."""
    x, written = rows[:, : both.d_in], rows[:, both.d_in :]
    unit = [sae.decoder / sae.decoder.norm(dim=-1, keepdim=True) for sae in (both.input, both.output)]
    scale = both.output.decoder.norm(dim=-1)
    found = []
    for row in x:
        slope = torch.autograd.functional.jacobian(lambda one: both.mlp(one.unsqueeze(0))[0], row)
        found.append((both.output.encoder * scale[:, None]) @ slope @ unit[0].T)
    active = []
    for sae, read in ((both.output, written), (both.input, x)):
        fires = torch.zeros(len(read), sae.width, dtype=torch.bool)
        firings = sae.firings(read, sae.width)
        fires[firings.token, firings.latent] = True
        active.append(fires)
    return torch.stack(found).detach().numpy(), (active[0][:, :, None] & active[1][:, None, :]).numpy()
