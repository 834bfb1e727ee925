"""The weights of one MLP of a subject, read off its module: by the names of its projections, and then tried, for names alone prove nothing.

Understood are MLPs whose output depends on their input alone, as down(act(up(x))) or down(act(gate(x)) * up(x)), whatever their
projections are called; GPT-2's transposed matrices and fused gates among them. Mixtures of experts are none.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from latentry.errors import HookpointError, UnsupportedError
from latentry.mlp_jacobian import Mlp
from latentry.registry import nearest
from latentry.subjects.causal_lm import load_subject
from latentry.subjects.hooks import Hookpoint

_GATED = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))
_FUSED = (("gate_up_proj", "down_proj"),)
_PLAIN = (
    ("c_fc", "c_proj"),
    ("dense_h_to_4h", "dense_4h_to_h"),
    ("fc1", "fc2"),
    ("fc_in", "fc_out"),
    ("up_proj", "down_proj"),
)
_ACTIVATIONS = ("act_fn", "act", "activation_fn", "activation", "gelu_impl")

_UNDERSTOOD = "wanted is an MLP: " + "; ".join(
    [
        f"gated ({', '.join('/'.join(names) for names in (*_GATED, *_FUSED))})",
        f"or not ({', '.join('/'.join(names) for names in _PLAIN)})",
        f"with one activation function ({', '.join(_ACTIVATIONS)})",
    ]
)
_TRIED_ROWS = 4


def load_mlp(folder: Path, hookpoint: Hookpoint, *, dtype: str, device: torch.device) -> Mlp:
    """The MLP at a hookpoint of a subject in a local folder, redrawn where the hookpoint says so; in float32.

    Raises:
        HookpointError, UnsupportedError: as `mlp_of`, or as `load_subject`.
    """
    return mlp_of(load_subject(folder, [hookpoint], dtype=dtype, device=device).model, hookpoint.module)


def mlp_of(model: nn.Module, module: str) -> Mlp:
    """The MLP of that name, its weights in float32 where the model has them.

    Raises:
        HookpointError: the model has no such module.
        UnsupportedError: it is no MLP, or one that is not understood; names its class and what it is made of.
    """
    modules = dict(model.named_modules())
    if module not in modules:
        raise HookpointError(f"{module!r} is no module of the subject{nearest(module, [name for name in modules if name])}")
    found = modules[module]
    parts = projections_of(found)
    if parts is None:
        raise UnsupportedError(f"{_told(module, found)}, which is not understood as an MLP; {_UNDERSTOOD}; name one that ends in `.mlp`")
    mlp = _mlp(module, found, *parts)
    _try(module, found, mlp)
    return mlp


def projections_of(found: nn.Module) -> tuple[str | None, str, str] | None:
    """The names of its gate, up and down projections; gate and up are the same where they are fused, and no gate is None.

    None: it has no activation function, or no projections by names that are known. Says nothing of its weights.
    """
    there = {name for name, _ in found.named_children()}
    if _activation_of(found) is None:
        return None
    for gate, up, down in _GATED:
        if {gate, up, down} <= there:
            return gate, up, down
    for both, down in _FUSED:
        if {both, down} <= there:
            return both, both, down
    return next(((None, up, down) for up, down in _PLAIN if {up, down} <= there), None)


def _mlp(module: str, found: nn.Module, gate: str | None, up: str, down: str) -> Mlp:
    weights = {name: _linear(module, found, name) for name in dict.fromkeys((gate, up, down)) if name is not None}
    gate_weight, gate_bias = (None, None) if gate is None else weights[gate]
    up_weight, up_bias = weights[up]
    if gate == up:
        gate_weight, up_weight = up_weight.chunk(2)
        gate_bias, up_bias = (None, None) if up_bias is None else up_bias.chunk(2)
    down_weight, down_bias = weights[down]
    activation = _activation_of(found)
    if activation is None or not _is_elementwise(activation):
        raise UnsupportedError(
            f"{_told(module, found)}: its activation function {type(activation).__name__} does not work number by number; {_UNDERSTOOD}"
        )
    return Mlp(
        up=up_weight,
        up_bias=up_bias,
        gate=gate_weight,
        gate_bias=gate_bias,
        down=down_weight,
        down_bias=down_bias,
        activation=activation,
    )


def _linear(module: str, found: nn.Module, name: str) -> tuple[Tensor, Tensor | None]:
    """Weight [out, in] and bias of one projection."""
    projection = getattr(found, name)
    weight, bias = getattr(projection, "weight", None), getattr(projection, "bias", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or not weight.is_floating_point():
        raise UnsupportedError(
            f"{_told(module, found)}: {name} is a {type(projection).__name__} without a matrix of floats (quantised weights have none);"
            " name a model that is not quantised under `subject.model`"
        )
    is_transposed = hasattr(projection, "nf")  # transformers' Conv1D, of GPT-2
    weight = (weight.T if is_transposed else weight).detach().float()
    return weight.contiguous(), None if bias is None else bias.detach().float()


def _activation_of(found: nn.Module) -> Any:
    """A function, or None."""
    return next((one for name in _ACTIVATIONS if callable(one := getattr(found, name, None))), None)


@torch.no_grad()
def _is_elementwise(activation: Callable[[Tensor], Tensor]) -> bool:
    numbers = torch.linspace(-4, 4, 15)
    together = activation(numbers)
    apart = torch.cat([activation(one) for one in numbers.split(1)])
    return together.shape == numbers.shape and torch.allclose(together, apart, atol=1e-6)


@torch.no_grad()
def _try(module: str, found: nn.Module, mlp: Mlp) -> None:
    """See that the module makes of some rows what its weights make of them here."""
    weight = next(found.parameters())
    numbers = torch.arange(_TRIED_ROWS * mlp.up.shape[1], device=weight.device)
    x = (numbers * 0.7548776662).sin().view(_TRIED_ROWS, -1)  # any numbers do; these are the same everywhere
    try:
        wanted: Any = found(x.to(weight.dtype).unsqueeze(0))
    except TypeError as error:
        raise UnsupportedError(
            f"{_told(module, found)}: it does not run on its input alone ({' '.join(str(error).split())}); {_UNDERSTOOD}"
        ) from error
    made = mlp(x.to(weight.dtype).float()).unsqueeze(0)
    tolerance = 10 * torch.finfo(weight.dtype).eps * made.abs().max()
    if not isinstance(wanted, Tensor) or wanted.shape != made.shape or not bool(((wanted.float() - made).abs() <= tolerance).all()):
        raise UnsupportedError(f"{_told(module, found)}: its output is not what its projections and activation make; {_UNDERSTOOD}")


def _told(module: str, found: nn.Module) -> str:
    children = ", ".join(f"{name} ({type(child).__name__})" for name, child in found.named_children())
    return f"{module} is a {type(found).__name__} of {children or 'no modules'}"
