"""The Jacobian of an MLP between two SAEs: what one unit of a latent of its input does to a latent of its output (Farnik et al., ICML 2025).

Of the latents active at a token only, k x k numbers each, with the MLP at the true x. Which latents are active is held, as TopK and ReLU
hold it nearly everywhere. Memory does not grow with the width, but for the gradients of decoder and encoder.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag, linear

LATENTS = 4096
"""Latents that are in the MLP's hidden layer at once: arrays of so many rows there are the largest, about as large as the MLP's weights."""

_CACHED = 2**22
"""Numbers in one array of the products of single tokens, which are then multiplied while the processor's cache still has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """The weights of one MLP: down(activation(up(x))), or, with a gate, down(activation(gate(x)) * up(x))."""

    up: Float[Tensor, "d_mlp d_in"]
    up_bias: Float[Tensor, " d_mlp"] | None
    gate: Float[Tensor, "d_mlp d_in"] | None
    """None: there is no gate."""
    gate_bias: Float[Tensor, " d_mlp"] | None
    down: Float[Tensor, "d_out d_mlp"]
    down_bias: Float[Tensor, " d_out"] | None
    activation: Callable[[Tensor], Tensor]
    """Number by number; its derivative is autograd's."""

    def __call__(self, x: Float[Tensor, "token d_in"]) -> Float[Tensor, "token d_out"]:
        """What it makes of each row."""
        up = linear(x, self.up, self.up_bias)
        hidden = self.activation(up) if self.gate is None else self.activation(linear(x, self.gate, self.gate_bias)) * up
        return linear(hidden, self.down, self.down_bias)

    def to(self, *, device: Any = None, dtype: torch.dtype | None = None) -> "Mlp":
        """The same, elsewhere or in another dtype."""
        names = ("up", "up_bias", "gate", "gate_bias", "down", "down_bias")
        moved = {name: one.to(device=device, dtype=dtype) for name in names if (one := getattr(self, name)) is not None}
        return replace(self, **moved)

    def slopes(self, x: Float[Tensor, "token d_in"]) -> tuple[Float[Tensor, "token d_mlp"], Float[Tensor, "token d_mlp"] | None]:
        """By how much the hidden layer grows with what comes by `up`, and by `gate` where there is one, at each row."""
        up = linear(x, self.up, self.up_bias)
        if self.gate is None:
            return derivative(self.activation, up), None
        gate = linear(x, self.gate, self.gate_bias)
        return self.activation(gate), derivative(self.activation, gate) * up


def derivative(activation: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Of a function that works number by number, at each number; also within `inference_mode`."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        point = at.detach().clone().requires_grad_()
        return torch.autograd.grad(activation(point).sum(), point)[0]


def unit_rows(
    decoder: Float[Tensor, "width d_out"], encoder: Float[Tensor, "width d_in"]
) -> tuple[Float[Tensor, "width d_out"], Float[Tensor, "width d_in"]]:
    """The rows of the same SAE in the unit of latents in which decoder rows have norm 1: those of the decoder, and of the encoder.

    A latent whose decoder row is 0 rebuilds nothing in any unit, and keeps its rows.
    """
    norms = decoder.norm(dim=-1, keepdim=True)
    norms = torch.where(norms > 0, norms, 1)
    return decoder / norms, encoder * norms


def jacobian(
    mlp: Mlp,
    x: Float[Tensor, "token d_in"],
    inputs: Int[Tensor, "token input"],
    outputs: Int[Tensor, "token output"],
    decoder: Float[Tensor, "width_in d_in"],
    encoder: Float[Tensor, "width_out d_out"],
) -> Float[Tensor, "token output input"]:
    """Derivative of each active latent of the MLP's output by each active one of its input, at every token.

    Args:
        inputs: the active latents of the input SAE; where there are fewer than columns, any latent, and the caller leaves its numbers out.
        outputs: likewise of the output SAE.
        decoder: rows of the input SAE, of norm 1 (`unit_rows`).
        encoder: rows of the output SAE, in the unit in which its decoder rows have norm 1.
    """
    found = [x.new_empty(0, outputs.shape[1], inputs.shape[1])]
    with torch.no_grad():
        for tokens in _blocks(inputs, outputs):
            hidden = _Hidden.of(mlp, x[tokens], inputs[tokens], outputs[tokens], decoder, encoder)
            found += [torch.bmm(part.read, part.written.mT) for part in hidden.cached()]
    return torch.cat(found)


def mean_absolute(
    found: Float[Tensor, "token output input"], active_inputs: Bool[Tensor, "token input"], active_outputs: Bool[Tensor, "token output"]
) -> Float[Tensor, ""]:
    """Mean |J| over the pairs active at a token, then over the tokens that have such a pair; 0 where none has."""
    return (found.abs() * pair_weights(active_inputs, active_outputs)).sum()


def pair_weights(
    active_inputs: Bool[Tensor, "token input"], active_outputs: Bool[Tensor, "token output"]
) -> Float[Tensor, "token output input"]:
    """What each pair counts in `mean_absolute`: 0 where either latent is silent; all together 1."""
    pairs = active_outputs.unsqueeze(-1) & active_inputs.unsqueeze(-2)
    n_pairs = pairs.sum(dim=(-2, -1), keepdim=True)
    return pairs / (n_pairs * (n_pairs > 0).sum()).clamp(min=1)


def jacobian_loss(
    mlp: Mlp,
    x: Float[Tensor, "token d_in"],
    inputs: Int[Tensor, "token input"],
    outputs: Int[Tensor, "token output"],
    active_inputs: Bool[Tensor, "token input"],
    active_outputs: Bool[Tensor, "token output"],
    decoder: Float[Tensor, "width_in d_in"],
    encoder: Float[Tensor, "width_out d_out"],
) -> Float[Tensor, ""]:
    """`mean_absolute` of the Jacobian, with gradients for decoder and encoder; arguments as those of `jacobian`.

    The gradients are made in the same pass, so that no intermediate result waits for them.
    """
    weights = pair_weights(active_inputs, active_outputs).to(x.dtype)
    return _Loss.apply(decoder, encoder, mlp, x, inputs, outputs, weights)  # type: ignore[no-any-return]


class _Hidden(NamedTuple):
    """Some tokens' active latents in the MLP's hidden layer."""

    ups: Float[Tensor, "latent d_mlp"]
    """What each latent of the input that is active at any of the tokens adds there by `up`, and by `gate`."""
    gates: Float[Tensor, "latent d_mlp"] | None
    reads: Float[Tensor, "latent d_mlp"]
    """What each latent of the output reads there."""
    up_slopes: Float[Tensor, "token d_mlp"]
    gate_slopes: Float[Tensor, "token d_mlp"] | None
    input_latents: Int[Tensor, " latent"]
    output_latents: Int[Tensor, " latent"]
    inputs: Int[Tensor, "token input"]
    """Places in `ups` and `gates`."""
    outputs: Int[Tensor, "token output"]
    """Places in `reads`."""

    @classmethod
    def of(cls, mlp: Mlp, x: Tensor, inputs: Tensor, outputs: Tensor, decoder: Tensor, encoder: Tensor) -> "_Hidden":
        """Each latent is projected once, however many tokens it is active at."""
        input_latents, input_places = inputs.unique(return_inverse=True)
        output_latents, output_places = outputs.unique(return_inverse=True)
        directions = decoder[input_latents]
        up_slopes, gate_slopes = mlp.slopes(x)
        return cls(
            ups=directions @ mlp.up.T,
            gates=None if mlp.gate is None else directions @ mlp.gate.T,
            reads=encoder[output_latents] @ mlp.down,
            up_slopes=up_slopes,
            gate_slopes=gate_slopes,
            input_latents=input_latents,
            output_latents=output_latents,
            inputs=input_places,
            outputs=output_places,
        )

    def cached(self) -> Iterator["_Cached"]:
        """A few tokens at a time, in the same memory each time: fresh memory costs more than what is computed in it."""
        n_inputs, n_outputs, d_mlp = self.inputs.shape[1], self.outputs.shape[1], self.ups.shape[1]
        n = min(len(self.inputs), max(1, _CACHED // max(1, max(n_inputs, n_outputs) * d_mlp)))
        written, read, spare = (self.ups.new_empty(n * size, d_mlp) for size in (n_inputs, n_outputs, max(n_inputs, n_outputs)))
        for tokens in _slices(len(self.inputs), n):
            up = _gathered(self.ups, self.inputs[tokens], written).mul_(self.up_slopes[tokens].unsqueeze(1))
            if self.gates is not None and self.gate_slopes is not None:
                up.addcmul_(_gathered(self.gates, self.inputs[tokens], spare), self.gate_slopes[tokens].unsqueeze(1))
            yield _Cached(tokens, up, _gathered(self.reads, self.outputs[tokens], read), spare)


class _Cached(NamedTuple):
    """Of a few tokens; it is written over by the next ones."""

    tokens: slice
    written: Float[Tensor, "token input d_mlp"]
    """What each active latent of the input adds to the hidden layer."""
    read: Float[Tensor, "token output d_mlp"]
    """What each active latent of the output reads there."""
    spare: Float[Tensor, "row d_mlp"]
    """Memory for as many rows as the larger of the two has."""


def _gathered(rows: Float[Tensor, "latent d_mlp"], places: Int[Tensor, "token active"], memory: Tensor) -> Tensor:
    """The rows of each token's latents, in that memory."""
    torch.index_select(rows, 0, places.flatten(), out=memory[: places.numel()])
    return _shaped(memory, *places.shape)


def _shaped(memory: Float[Tensor, "row d_mlp"], n_tokens: int, n_active: int) -> Float[Tensor, "token active d_mlp"]:
    return memory[: n_tokens * n_active].unflatten(0, (n_tokens, n_active))


class _Loss(torch.autograd.Function):
    """Sum of weights * |J|; derivatives by decoder and encoder."""

    @staticmethod
    def forward(
        ctx: Any, decoder: Tensor, encoder: Tensor, mlp: Mlp, x: Tensor, inputs: Tensor, outputs: Tensor, weights: Tensor
    ) -> Tensor:
        total, by_decoder, by_encoder = x.new_zeros(()), torch.zeros_like(decoder), torch.zeros_like(encoder)
        for tokens in _blocks(inputs, outputs):
            hidden = _Hidden.of(mlp, x[tokens], inputs[tokens], outputs[tokens], decoder, encoder)
            total += _add_block(mlp, hidden, weights[tokens], by_decoder, by_encoder)
        ctx.save_for_backward(by_decoder, by_encoder)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        by_decoder, by_encoder = ctx.saved_tensors
        return gradients[0] * by_decoder, gradients[0] * by_encoder, None, None, None, None, None


def _add_block(mlp: Mlp, hidden: _Hidden, weights: Tensor, by_decoder: Tensor, by_encoder: Tensor) -> Tensor:
    """The block's part of the loss, its derivatives added to those of the rows."""
    total = weights.new_zeros(())
    by_ups, by_reads = torch.zeros_like(hidden.ups), torch.zeros_like(hidden.reads)
    by_gates = None if hidden.gates is None else torch.zeros_like(hidden.gates)
    for tokens, written, read, spare in hidden.cached():
        found = torch.bmm(read, written.mT)
        total += (found.abs() * weights[tokens]).sum()
        by_found = found.sign_().mul_(weights[tokens])
        _add_by_latent(by_reads, hidden.outputs[tokens], torch.bmm(by_found, written, out=_shaped(spare, *read.shape[:2])))
        by_written = torch.bmm(by_found.mT, read, out=written)
        if by_gates is not None and hidden.gate_slopes is not None:
            slopes = hidden.gate_slopes[tokens].unsqueeze(1)
            _add_by_latent(by_gates, hidden.inputs[tokens], torch.mul(by_written, slopes, out=_shaped(spare, *written.shape[:2])))
        _add_by_latent(by_ups, hidden.inputs[tokens], by_written.mul_(hidden.up_slopes[tokens].unsqueeze(1)))
    by_directions = by_ups @ mlp.up if by_gates is None or mlp.gate is None else by_ups @ mlp.up + by_gates @ mlp.gate
    by_decoder.index_add_(0, hidden.input_latents, by_directions)
    by_encoder.index_add_(0, hidden.output_latents, by_reads @ mlp.down.T)
    return total


def _add_by_latent(
    rows: Float[Tensor, "latent d_mlp"], places: Int[Tensor, "token active"], further: Float[Tensor, "token active d_mlp"]
) -> None:
    """Add what stands at each token to its latent's row: in the tokens' order, so that the sums are the same each time, on any device."""
    there, order = places.flatten().sort(stable=True)
    latents, counts = there.unique_consecutive(return_counts=True)
    rows.index_add_(0, latents, embedding_bag(order, further.flatten(0, 1), counts.cumsum(0) - counts, mode="sum"))


def _blocks(inputs: Tensor, outputs: Tensor) -> Iterator[slice]:
    """Ranges of tokens at which no more than `LATENTS` latents of either side are active, or of one token."""
    waiting = [*_slices(len(inputs), LATENTS)][::-1]
    while waiting:
        tokens = waiting.pop()
        middle = (tokens.start + tokens.stop) // 2
        if middle == tokens.start or max(len(latents[tokens].unique()) for latents in (inputs, outputs)) <= LATENTS:
            yield tokens
        else:
            waiting += [slice(middle, tokens.stop), slice(tokens.start, middle)]


def _slices(n: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, n)) for first in range(0, n, size))
