"""What every SAE is to the rest: `Sae` encodes activations to latents and decodes them back; what trains one reads `Activations`.

Reading a format is each variant's. Nothing here, and nothing at a variant's top, imports torch: params are validated without it.
A latent fires where its activation is not 0, and a row's latents never depend on the other rows of its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Sae:
    """One SAE, whatever its format and loss."""

    name: str
    hookpoint: str
    """Name in `subject.hookpoints` of what it reads and rebuilds."""
    loss: str
    """What it was trained with; the encoder's form alone does not tell (BatchTopK is stored as JumpReLU)."""
    encoder: Callable[[Tensor], Tensor]
    """From [token, d_in] in the SAE's dtype to dense latents [token, width]."""
    decoder: Float[Tensor, "width d_in"]
    """One row per latent: what one unit of its activation adds to the reconstruction."""
    decoder_bias: Float[Tensor, " d_in"]
    provenance: Mapping[str, Any]
    """What its file says of itself: architecture, metadata, k where there is one."""
    baseline: bool = False
    """Measured and labelled, but never stopped by the gate."""

    @property
    def width(self) -> int:
        """How many latents it has."""
        return self.decoder.shape[0]

    @property
    def d_in(self) -> int:
        """How long the activations are that it reads."""
        return self.decoder.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """What it computes in; `encode` casts to it."""
        return self.decoder.dtype

    def encode(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch width"]:
        """The latents of each position, dense; all axes but the last are batch."""
        rows = x.to(device=self.decoder.device, dtype=self.dtype).reshape(-1, self.d_in)
        return self.encoder(rows).reshape(*x.shape[:-1], self.width)

    def decode(self, latents: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch d_in"]:
        """The reconstruction of the activations."""
        return latents @ self.decoder + self.decoder_bias


class Activations(Protocol):
    """Stored activations of one hookpoint, as training and evaluation read them."""

    @property
    def d_in(self) -> int:
        """Length of one activation."""
        ...

    @property
    def n_contexts(self) -> int:
        """How many contexts are stored."""
        ...

    @property
    def kept(self) -> Bool[np.ndarray, "context position"]:
        """False for special tokens and attention sinks, which are left out everywhere."""
        ...

    def rows(self, contexts: Int[np.ndarray, " context"]) -> Float[Tensor, "token d_in"]:
        """The kept positions of those contexts, in the order given."""
        ...
