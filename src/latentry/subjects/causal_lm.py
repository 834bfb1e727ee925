"""A causal language model as a subject.

Hooks live in `with` blocks, so no exception leaves one behind. A run to a hookpoint never runs the layers after it.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentry.errors import HookpointError
from latentry.registry import nearest

Replace = Callable[[Tensor], Tensor]
"""From activations [context, position, d_in] to those that take their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hookpoint:
    """Where activations are read: a module of the subject, by its transformers name, and which side of it."""

    name: str
    module: str
    side: str
    """input or output."""


class _Reached(Exception):
    """The deepest hookpoint was reached: nothing after it is needed."""


class Subject:
    """A loaded causal language model."""

    def __init__(self, model: Any, hookpoints: Sequence[Hookpoint], device: torch.device) -> None:
        self._model, self._device = model, device
        self._modules: dict[str, nn.Module] = dict(model.named_modules())
        check_hookpoints(hookpoints, list(self._modules))
        self.hookpoints = {point.name: point for point in hookpoints}

    @property
    def attention_implementation(self) -> str:
        """Such as `sdpa`; recorded with the activations."""
        return str(self._model.config._attn_implementation)

    @property
    def vocabulary(self) -> int:
        """Number of token ids that the model has."""
        return int(self._model.config.vocab_size)

    def is_residual(self, hookpoint: str) -> bool:
        """Whether the hookpoint is the residual stream: the input or output of a whole layer."""
        return re.search(r"(^|\.)(layers|h|blocks)\.\d+$", self.hookpoints[hookpoint].module) is not None

    @torch.inference_mode()
    def activations(self, tokens: Int[np.ndarray, "context position"]) -> dict[str, Float[Tensor, "context position d_in"]]:
        """Activations at every hookpoint, by its name; one pass, no further than the deepest.

        Raises:
            HookpointError: a hookpoint was not reached, or gives no tensor of that shape.
        """
        found: dict[str, Tensor] = {}
        ids = self._ids(tokens)
        with self._reading(found, ids.shape), contextlib.suppress(_Reached):
            self._model(input_ids=ids, use_cache=False)
        missing = [name for name in self.hookpoints if name not in found]
        if missing:
            raise HookpointError(f"subject.hookpoints: {missing} were not reached by a forward pass; name modules that run on text")
        return found

    @torch.inference_mode()
    def token_losses(
        self, tokens: Int[np.ndarray, "context position"], replace: tuple[str, Replace] | None = None
    ) -> Float[Tensor, "context position_less_1"]:
        """Loss in nats of each token after the first, optionally with the activations of one hookpoint replaced."""
        ids = self._ids(tokens)
        with self._patched(replace, ids.shape):
            logits = self._model(input_ids=ids, use_cache=False).logits
        losses = nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        return losses.view(ids.shape[0], -1)

    @torch.inference_mode()
    def promoted(self, directions: Float[Tensor, "latent d_in"]) -> Float[Tensor, "latent vocabulary"]:
        """What each direction of the residual stream does to the logits: unembed(final norm(direction))."""
        base = getattr(self._model, self._model.base_model_prefix)
        norm = next((getattr(base, name) for name in ("norm", "final_layer_norm", "ln_f") if hasattr(base, name)), nn.Identity())
        unembed = self._model.get_output_embeddings()
        return unembed(norm(directions.to(device=self._device, dtype=unembed.weight.dtype))).float()

    def _ids(self, tokens: Int[np.ndarray, "context position"]) -> Tensor:
        return torch.from_numpy(tokens.astype(np.int64)).to(self._device)

    @contextlib.contextmanager
    def _reading(self, found: dict[str, Tensor], shape: torch.Size) -> Iterator[None]:
        hooks = []

        def keep(point: Hookpoint, value: Any) -> None:
            found[point.name] = _activations_in(value, point, shape)
            if len(found) == len(self.hookpoints):
                raise _Reached

        for point in self.hookpoints.values():
            hooks.append(_hook(self._modules[point.module], point.side, lambda value, point=point: keep(point, value)))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @contextlib.contextmanager
    def _patched(self, replace: tuple[str, Replace] | None, shape: torch.Size) -> Iterator[None]:
        if replace is None:
            yield
            return
        name, function = replace
        point = self.hookpoints[name]

        def patch(value: Any) -> Any:
            new = function(_activations_in(value, point, shape))
            return (new, *value[1:]) if isinstance(value, tuple) else new

        hook = _hook(self._modules[point.module], point.side, patch)
        try:
            yield
        finally:
            hook.remove()


def load_subject(folder: Path, hookpoints: Sequence[Hookpoint], *, dtype: str, device: torch.device) -> Subject:
    """Load from a local folder, in evaluation mode, on one device; hookpoints are checked before the weights are read.

    Raises:
        HookpointError: a module is not in the subject.
    """
    from transformers import AutoModelForCausalLM

    check_hookpoints(hookpoints, module_names(folder))
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True)
    return Subject(model.to(device).eval().requires_grad_(False), hookpoints, device)


def module_names(folder: Path) -> list[str]:
    """The modules of a model by name, from its configuration alone, without its weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder, local_files_only=True))
    return [name for name, _ in model.named_modules()]


def check_hookpoints(hookpoints: Sequence[Hookpoint], modules: Sequence[str]) -> None:
    """Every hookpoint names a module.

    Raises:
        HookpointError: names the wrong ones and their nearest.
    """
    known = {name for name in modules if name}
    wrong = [point for point in hookpoints if point.module not in known]
    if wrong:
        faults = "; ".join(
            f"subject.hookpoints.{point.name}.module: {point.module!r} is no module of the subject{nearest(point.module, known)}"
            for point in wrong
        )
        raise HookpointError(faults)


def hookpoints_of(settings: Mapping[str, Any]) -> list[Hookpoint]:
    """From `subject.hookpoints` (objects with `module` and `side`) to hookpoints."""
    return [Hookpoint(name=name, module=point.module, side=point.side) for name, point in settings.items()]


def _hook(module: nn.Module, side: str, function: Callable[[Any], Any]) -> Any:
    if side == "output":
        return module.register_forward_hook(lambda _module, _inputs, output: function(output))

    def before(_module: nn.Module, args: tuple, kwargs: dict) -> Any:
        if args:
            new = function(args[0])
            return None if new is None else ((new, *args[1:]), kwargs)
        name = next(iter(kwargs))
        new = function(kwargs[name])
        return None if new is None else (args, kwargs | {name: new})

    return module.register_forward_pre_hook(before, with_kwargs=True)


def _activations_in(value: Any, point: Hookpoint, shape: torch.Size) -> Tensor:
    """The activations in what passes a hookpoint; `shape` is the token ids' [context, position]."""
    first = value[0] if isinstance(value, tuple) and value else value
    if not isinstance(first, Tensor) or first.dim() != 3:
        kind = f"a tensor of {first.dim()} axes" if isinstance(first, Tensor) else type(first).__name__
        raise HookpointError(
            f"subject.hookpoints.{point.name}: the {point.side} of {point.module!r} is {kind}, wanted a tensor [context, position, d_in];"
            " name a layer, an attention or an MLP module"
        )
    if first.shape[:2] != shape:
        raise HookpointError(
            f"subject.hookpoints.{point.name}: the {point.side} of {point.module!r} is a tensor of shape {list(first.shape)}, wanted"
            f" [{shape[0]}, {shape[1]}, d_in], one vector per token; name a layer, an attention or an MLP module"
        )
    return first
