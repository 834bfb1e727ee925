"""Hooks on one side of a module, and the activations in what passes there. A hook lives in a `with`, so an exception leaves none behind."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from latentry.errors import HookpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrawn:
    """How a subject's weights were redrawn; `redrawn.py` does it."""

    seed: int
    all: bool
    """Embeddings and unembedding too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hookpoint:
    """Where activations are read: a module of the subject, by its transformers name, and which side of it."""

    name: str
    module: str
    side: str
    """input or output."""
    random: Redrawn | None = None
    """The subject in which it is read, where that has other weights; None: the subject as it is."""


@contextmanager
def hooked(module: nn.Module, side: str, function: Callable[[Any], Any]) -> Iterator[None]:
    """Call a function with what passes that side of a module; what it returns, unless None, takes its place."""
    hook = _hook(module, side, function)
    try:
        yield
    finally:
        hook.remove()


def activations_in(value: Any, point: Hookpoint, shape: torch.Size) -> Tensor:
    """The activations in what passes a hookpoint, a tensor or a tuple that begins with one; `shape` is the token ids'.

    Raises:
        HookpointError: it is something else, or has not one vector of floats for each token.
    """
    first = value[0] if isinstance(value, tuple) and value else value
    where = f"subject.hookpoints.{point.name}: the {point.side} of {point.module!r} is"
    if not isinstance(first, Tensor) or first.dim() != 3 or not first.is_floating_point():
        raise HookpointError(
            f"{where} {_kind(value)}, wanted a tensor of floats [context, position, d_in]; name a layer, an attention or an MLP module"
        )
    if first.shape[:2] != shape:
        raise HookpointError(
            f"{where} a tensor of shape {list(first.shape)}, wanted [{shape[0]}, {shape[1]}, d_in], one vector per token;"
            " name a layer, an attention or an MLP module"
        )
    return first


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of ({', '.join(type(part).__name__ for part in value)})"
    if isinstance(value, Tensor):
        return f"a tensor of {value.dim()} axes ({str(value.dtype).removeprefix('torch.')})"
    return type(value).__name__


def _hook(module: nn.Module, side: str, function: Callable[[Any], Any]) -> Any:
    if side == "output":
        return module.register_forward_hook(lambda _module, _inputs, output: function(output))

    def before(_module: nn.Module, args: tuple, kwargs: dict) -> Any:
        if args:
            new = function(args[0])
            return None if new is None else ((new, *args[1:]), kwargs)
        name = next((name for name, value in kwargs.items() if isinstance(value, Tensor)), None)
        new = function(kwargs.get(name))
        return None if new is None else (args, kwargs | {name: new})

    return module.register_forward_pre_hook(before, with_kwargs=True)
