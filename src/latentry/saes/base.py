"""What every SAE is to the rest: `Sae` encodes activations to sparse latents and rebuilds them; what trains one reads `Activations`.

Reading a format is each variant's. Nothing here, and nothing at a variant's top, imports torch: params are validated without it.
A latent fires where its activation is not 0, a row's latents never depend on the other rows of its batch, and no tensor
[token, width] is ever made.
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

    from latentry.mlp_jacobian import Mlp


@dataclass(frozen=True, slots=True, kw_only=True)
class Firings:
    """Every activation of some rows that is not 0, by row and, within one, by latent."""

    token: Int[Tensor, " activation"]
    """Row of the batch, ascending."""
    latent: Int[Tensor, " activation"]
    activation: Float[Tensor, " activation"]
    """In the SAE's dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sae:
    """One SAE, whatever its format and loss."""

    name: str
    hookpoint: str
    """Name in `subject.hookpoints` of what it reads."""
    writes: str
    """Name in `subject.hookpoints` of what it rebuilds: another one for transcoders, else what it reads."""
    loss: str
    """What it was trained with; the encoder's form alone does not tell (BatchTopK is stored as JumpReLU)."""
    d_in: int
    """How long the activations are that it reads."""
    encode_block: Callable[[Tensor, slice], Tensor]
    """From [token, d_in] in the SAE's dtype to the latents of a range, [token, latent]: what fires is not 0, or, with `k`, what is
    above 0 competes with all other latents for the k places."""
    k: int | None = None
    """How many latents fire at a token at most, chosen over the whole width (TopK); None where each latent decides alone."""
    decoder: Float[Tensor, "width d_out"]
    """One row per latent: what one unit of its activation adds to the reconstruction."""
    decoder_bias: Float[Tensor, " d_out"]
    encoder: Float[Tensor, "width d_in"] | None = None
    """One row per latent: how its activation grows with what is read, wherever it fires. None where that differs from row to row, as
    where each row is normalised before it is encoded, or a gate has a share in it."""
    skip: Float[Tensor, "d_out d_in"] | None = None
    """What of the activation read goes to the reconstruction past the latents (skip transcoders)."""
    restore: Callable[[Tensor, Tensor], Tensor] | None = None
    """From a reconstruction and the rows [token, d_in] it is of to one in their scale, where each row is normalised before encoding."""
    signed: bool = False
    """Whether each direction of its file is two latents: latent j above 0 and, at j + width / 2, below (AbsTopK, neurons)."""
    provenance: Mapping[str, Any]
    """Where it came from and what its file says of itself: format, source, revision, digest, licence, architecture, k, metadata."""
    baseline: str | None = None
    """Which baseline it is (`random`, `neurons`, `random_subject`): measured and labelled, but never stopped by the gate."""

    @property
    def width(self) -> int:
        """How many latents it has."""
        return self.decoder.shape[0]

    @property
    def d_out(self) -> int:
        """How long the activations are that it rebuilds."""
        return self.decoder.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """What it computes in; `firings` casts to it."""
        return self.decoder.dtype

    def firings(self, x: Float[Tensor, "token d_in"], block: int) -> Firings:
        """What fires at each row, encoded in blocks of so many latents: the same at any block size, up to rounding.

        Of latents that tie for the last of the `k` places, the lower ones fire. NaN fires, so that whoever sums notices.
        """
        rows = x.to(device=self.decoder.device, dtype=self.dtype)
        blocks = [slice(first, min(first + block, self.width)) for first in range(0, self.width, block)]
        return self._all(rows, blocks) if self.k is None else self._largest(rows, blocks, self.k)

    def _largest(self, rows: Tensor, blocks: list[slice], k: int) -> Firings:
        """The k largest of each row, kept in the latents' order while the blocks pass by."""
        import torch

        values, latents = rows.new_empty((len(rows), 0)), torch.empty((len(rows), 0), dtype=torch.int64, device=rows.device)
        for block in blocks:
            found, places = _largest_of(self.encode_block(rows, block), k)
            values, latents = torch.cat([values, found], dim=-1), torch.cat([latents, places + block.start], dim=-1)
            values, chosen = _largest_of(values, k)
            latents = latents.gather(-1, chosen)
        values = values.relu()
        token, which = values.nonzero(as_tuple=True)
        return Firings(token=token, latent=latents[token, which], activation=values[token, which])

    def _all(self, rows: Tensor, blocks: list[slice]) -> Firings:
        """Whatever is not 0, block after block, then put in the order of the rows."""
        import torch

        found = [_not_zero(self.encode_block(rows, block), block.start) for block in blocks]
        token, latent, activation = (torch.cat(parts) for parts in zip(*found, strict=True))
        if len(blocks) > 1:
            token, order = token.sort(stable=True)
            latent, activation = latent[order], activation[order]
        return Firings(token=token, latent=latent, activation=activation)

    def rebuild(self, firings: Firings, x: Float[Tensor, "token d_in"]) -> Float[Tensor, "token d_out"]:
        """The reconstruction from the rows that fired so, without a tensor [token, width] or [activation, d_out]."""
        import torch

        offsets = torch.searchsorted(firings.token, torch.arange(len(x), device=firings.token.device))
        sums = torch.nn.functional.embedding_bag(
            firings.latent, self.decoder, offsets, mode="sum", per_sample_weights=firings.activation.to(self.dtype)
        )
        rows, rebuilt = x.to(device=self.decoder.device, dtype=self.dtype), sums + self.decoder_bias
        if self.skip is not None:
            rebuilt = rebuilt + rows @ self.skip.T
        return rebuilt if self.restore is None else self.restore(rebuilt, rows)


def signed_blocks(encode_block: Callable[[Tensor, slice], Tensor], n: int) -> Callable[[Tensor, slice], Tensor]:
    """From the encoder of n latents that fire in both directions to one of 2n that do not: latent j where it is above 0, j + n below.

    Its decoder rows are those of the n, and again with the sign turned; the `k` largest of the 2n are the k of largest size.
    """

    def halves(x: Tensor, block: slice) -> Tensor:
        import torch

        above = slice(block.start, min(block.stop, n))
        below = slice(max(block.start, n) - n, block.stop - n)
        if block.start >= n:
            return encode_block(x, below).neg().relu_()
        if block.stop <= n:
            return encode_block(x, above).relu()
        return torch.cat([encode_block(x, above).relu(), encode_block(x, below).neg().relu_()], dim=-1)

    return halves


def latent_label(latent: int, width: int, *, signed: bool) -> str:
    """What people call a latent: its number, and of a signed SAE the number in its file with its direction, such as `7+` and `7-`."""
    if not signed:
        return str(latent)
    return f"{latent % (width // 2)}{'-' if latent >= width // 2 else '+'}"


def _not_zero(values: Float[Tensor, "token latent"], first: int) -> tuple[Tensor, Tensor, Tensor]:
    """Row, latent (counted from `first`) and activation of what is not 0."""
    token, latent = values.nonzero(as_tuple=True)
    return token, latent + first, values[token, latent]


def _largest_of(values: Float[Tensor, "token latent"], k: int) -> tuple[Float[Tensor, "token chosen"], Int[Tensor, "token chosen"]]:
    """The k largest of each row, or all where there are fewer, in the order they stand, and their places.

    `topk` breaks ties as it likes, which would change with the blocks; here the first of equals are taken.
    """
    n = values.shape[-1]
    found = values.topk(min(k + 1, n), dim=-1)
    places = found.indices[:, :k].sort(dim=-1).values
    if k < n:
        least = found.values[:, k - 1]
        tied = (found.values[:, k] == least) & (least > 0)
        if bool(tied.any()):
            places[tied] = _first_of_equals(values[tied], least[tied].unsqueeze(-1), k)
    return values.gather(-1, places), places


def _first_of_equals(values: Tensor, least: Tensor, k: int) -> Tensor:
    """Places of what is above the least that is taken (NaN is), and of the first that equal it, k in all."""
    import torch

    above, equal = ~(values <= least), values == least
    room = k - above.sum(dim=-1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(dim=-1, dtype=torch.int32) <= room))
    return chosen.nonzero()[:, 1].view(-1, k)


class Activations(Protocol):
    """Activations of one hookpoint, stored or running, as training and evaluation read them; for a transcoder, of two."""

    @property
    def d_in(self) -> int:
        """Length of one activation."""
        ...

    @property
    def d_written(self) -> int:
        """Length of what a transcoder rebuilds, which stands after what it reads in each row; 0 where a SAE rebuilds what it reads."""
        ...

    @property
    def n_contexts(self) -> int:
        """How many contexts are stored."""
        ...

    @property
    def kept(self) -> Bool[np.ndarray, "context position"]:
        """False for special tokens and attention sinks, which are left out everywhere."""
        ...

    def rows(self, contexts: Int[np.ndarray, " context"]) -> Float[Tensor, "token d_in_and_written"]:
        """The kept positions of those contexts, in the order given."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PairInputs:
    """What a pair of SAEs on both sides of an MLP is trained from."""

    activations: Activations
    """In each row what the MLP reads, and after it what it writes."""
    mlp: Mlp
    module: str
    """The MLP's name in the subject."""
    digest: str
    """Stands for the activations and the subject."""
