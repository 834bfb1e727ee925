"""One hookpoint's part of a shard while it is filled, and what of it cannot be used: NaN, infinity, an overflow of the stated dtype."""

from collections.abc import Iterable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from latentry.errors import NumericsError


class Held:
    """Filled batch by batch on the CPU, in the stated dtype; every activation is looked at once, for its position's norm.

    A norm that is finite and within the dtype's range says that each number of the position is: only other positions are looked at
    again.
    """

    def __init__(self, name: str, shape: tuple[int, int], d_in: int, dtype: torch.dtype, *, store: bool) -> None:
        self.name, self.d_in = name, d_in
        self.norm = torch.empty(shape, dtype=torch.float32)
        """[context, position], of the activations before they are rounded to the dtype."""
        self.activations = torch.empty((*shape, d_in), dtype=dtype) if store else None
        self.not_finite: set[int] = set()
        """Contexts, by their place in the shard."""
        self.too_large: dict[int, float] = {}
        """The largest activation of contexts in which one overflows the dtype."""
        self.dtype = dtype

    def put(self, first: int, activations: Float[Tensor, "context position d_in"]) -> None:
        """Take the next batch, whose first context has that place in the shard."""
        rows = slice(first, first + len(activations))
        norm = torch.linalg.vector_norm(activations, dim=-1, dtype=torch.float32)
        self.norm[rows] = norm
        if self.activations is not None:
            self.activations[rows] = activations
        if not self.norm[rows].max() <= torch.finfo(self.dtype).max:
            self._look_again(first, activations, norm)

    def _look_again(self, first: int, activations: Tensor, norm: Tensor) -> None:
        for context, position in (~(norm <= torch.finfo(self.dtype).max)).nonzero().tolist():
            x = activations[context, position].cpu().double()
            self.norm[first + context, position] = x.norm()
            if not x.isfinite().all():
                self.not_finite.add(first + context)
            elif not x.to(self.dtype).isfinite().all():
                self.too_large[first + context] = max(x.abs().max().item(), self.too_large.get(first + context, 0.0))

    def tensors(self) -> dict[str, Tensor]:
        """As a shard holds them: activations [position, d_in], where they are stored, and norm."""
        stored = {} if self.activations is None else {"activations": self.activations.flatten(0, 1)}
        return {**stored, "norm": self.norm.flatten()}


def refuse(held: Mapping[str, Held], first: int, *, drop: bool) -> None:
    """Stop where the activations cannot be kept as params say; `first` is the shard's first context.

    Raises:
        NumericsError: names the hookpoint that was reached first, and what to set.
    """
    dropped = set().union(*(part.not_finite for part in held.values())) if drop else set()
    for part in held.values():
        if part.not_finite - dropped:
            contexts = [first + number for number in sorted(part.not_finite)]
            raise NumericsError(
                f"activations at {part.name}: {len(contexts)} of {len(part.norm)} contexts from context {first} on hold NaN or infinity,"
                f" first {contexts[:5]}; check the subject and `subject.dtype`, or set `activations.non_finite` to drop"
            )
    for part in held.values():
        largest = max((value for context, value in part.too_large.items() if context not in dropped), default=None)
        if largest is not None:
            name = str(part.dtype).removeprefix("torch.")
            raise NumericsError(
                f"activations at {part.name}: {largest:.4g} does not fit {name}; set `activations.dtype` to bfloat16 or float32"
            )


def drop_contexts(held: Iterable[Held]) -> None:
    """Clear, at every hookpoint, the contexts that hold NaN or infinity at any: activations 0, norm NaN."""
    held = list(held)
    for context in set().union(*(part.not_finite for part in held)):
        for part in held:
            part.norm[context] = torch.nan
            if part.activations is not None:
                part.activations[context] = 0
