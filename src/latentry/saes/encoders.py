"""The encoders that the formats share, each as what `Sae.encode_block` is: from rows to the latents of one range of the width.

A row's latents depend on that row alone. Nothing larger than one block of latents is made, except by `groupmax`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

EncodeBlock = Callable[["Tensor", slice], "Tensor"]
"""From [token, d_in] and a range of latents to [token, latent]."""


def linear(
    matrix: Float[Tensor, "d_in width"],
    bias: Float[Tensor, " width"],
    activate: EncodeBlock,
    *,
    shift: Float[Tensor, " d_in"] | None = None,
) -> EncodeBlock:
    """(x - shift) W + b, then the activation function, which may work in place and knows which latents it is given."""

    def encode_block(x: Tensor, block: slice) -> Tensor:
        rows = x if shift is None else x - shift
        return activate((rows @ matrix[:, block]).add_(bias[block]), block)

    return encode_block


def linear_layer(
    weight: Float[Tensor, "width d_in"],
    bias: Float[Tensor, " width"],
    activate: EncodeBlock,
    *,
    shift: Float[Tensor, " d_in"] | None = None,
) -> EncodeBlock:
    """As `linear`, of a matrix stored and multiplied as torch's linear layers do, which round once where `linear` rounds twice."""

    def encode_block(x: Tensor, block: slice) -> Tensor:
        import torch

        rows = x if shift is None else x - shift
        return activate(torch.nn.functional.linear(rows, weight[block], bias[block]), block)

    return encode_block


def relu(pre: Tensor, block: slice) -> Tensor:  # noqa: ARG001
    """ReLU."""
    return pre.relu_()


def unchanged(pre: Tensor, block: slice) -> Tensor:  # noqa: ARG001
    """What competes for the k places as it is."""
    return pre


def jump(threshold: Float[Tensor, " width"]) -> EncodeBlock:
    """JumpReLU: ReLU of what is above its latent's threshold, 0 of what is at it or below."""

    def activate(pre: Tensor, block: slice) -> Tensor:
        silent = pre <= threshold[block]
        return pre.relu_().masked_fill_(silent, 0)

    return activate


def gated(
    matrix: Float[Tensor, "d_in width"],
    *,
    scale: Float[Tensor, " width"],
    gate_bias: Float[Tensor, " width"],
    magnitude_bias: Float[Tensor, " width"],
    shift: Float[Tensor, " d_in"] | None = None,
) -> EncodeBlock:
    """ReLU of the scaled product, of the latents whose gate is open (Rajamanoharan et al., 2024); both share the matrix."""

    def encode_block(x: Tensor, block: slice) -> Tensor:
        shared = (x if shift is None else x - shift) @ matrix[:, block]
        shut = shared <= -gate_bias[block]
        return shared.mul_(scale[block]).add_(magnitude_bias[block]).relu_().masked_fill_(shut, 0)

    return encode_block


def scaled(encode_block: EncodeBlock, scale: Float[Tensor, " width"]) -> EncodeBlock:
    """Another unit for each latent, before they compete."""
    return lambda x, block: encode_block(x, block).mul_(scale[block])


def groupmax(encode_block: EncodeBlock, width: int, k: int) -> EncodeBlock:
    """Of each of k groups of neighbouring latents only the largest fires, the first of equals.

    A block is encoded with the rest of the groups that it cuts: up to two groups more than it has.
    """
    size = width // k

    def largest(x: Tensor, block: slice) -> Tensor:
        start, stop = block.start - block.start % size, min(width, -(-block.stop // size) * size)
        groups = encode_block(x, slice(start, stop)).unflatten(-1, (-1, size))
        first = groups.argmax(dim=-1, keepdim=True)
        winners = groups.new_zeros(groups.shape).scatter_(-1, first, groups.gather(-1, first))
        return winners.flatten(-2)[:, block.start - start : block.stop - start]

    return largest
