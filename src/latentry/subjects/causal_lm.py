"""A causal language model as a subject: run to its hookpoints, patched there, its directions read as tokens.

A run to the hookpoints never runs what comes after the deepest.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentry.errors import HookpointError, ParamsError, UnsupportedError
from latentry.registry import nearest
from latentry.subjects.hooks import Hookpoint, Redrawn, activations_in, hooked
from latentry.subjects.quantised import load_quantised, method_of
from latentry.subjects.redrawn import redraw
from latentry.subjects.residual import final_norm_of, writes_to_residual

logger = logging.getLogger(__name__)

Replace = Callable[[Tensor], Tensor]
"""From activations [context, position, d_in] to those that take their place."""

_LEARNED_POSITIONS = {"wpe", "embed_positions", "position_embeddings"}


class _Reached(Exception):
    """The deepest hookpoint was reached: nothing after it is needed."""


class Subject:
    """A loaded causal language model."""

    def __init__(self, model: Any, hookpoints: Sequence[Hookpoint], device: torch.device, quantisation: str | None = None) -> None:
        self._model, self._device = model, device
        self.quantisation = quantisation
        """Method by which its weights were quantised in its folder; recorded with the activations."""
        self._modules: dict[str, nn.Module] = dict(model.named_modules())
        check_hookpoints(hookpoints, list(self._modules))
        self.hookpoints = {point.name: point for point in hookpoints}

    @property
    def model(self) -> Any:
        """The transformers model, for what runs it token by token (`steering.py`)."""
        return self._model

    @property
    def attention_implementation(self) -> str:
        """Such as `sdpa`; recorded with the activations."""
        return str(self._config._attn_implementation)

    @property
    def vocabulary(self) -> int:
        """Number of token ids that the model has."""
        return int(self._config.vocab_size)

    def check_context(self, context: int) -> None:
        """See that rows of so many tokens fit; rotary positions past those of training are logged, not refused.

        Raises:
            ParamsError: the subject learned fewer positions.
        """
        limit = getattr(self._config, "max_position_embeddings", None)
        if limit is None or context <= limit:
            return
        found = (
            f"tokens.context: is {context}, the subject was trained for {limit} positions (`max_position_embeddings` in its config.json)"
        )
        if any(isinstance(module, nn.Embedding) and name.split(".")[-1] in _LEARNED_POSITIONS for name, module in self._modules.items()):
            raise ParamsError("params.yaml", [f"{found} and has no others; set it to at most {limit}"])
        logger.warning("%s; activations past them are not what it was trained for", found)

    def is_residual(self, hookpoint: str) -> bool:
        """Whether what a decoder writes at the hookpoint goes to the residual stream unchanged, and from its end through a final
        norm that is known: only then does `promoted` say what a latent promotes."""
        return writes_to_residual(self._modules, self.hookpoints[hookpoint]) and final_norm_of(self._model) is not None

    @torch.inference_mode()
    def activations(self, tokens: Int[np.ndarray, "context position"]) -> dict[str, Float[Tensor, "context position d_in"]]:
        """Activations at every hookpoint, by its name; one pass, no further than the deepest.

        Raises:
            HookpointError: a hookpoint was not reached, or gives no tensor of that shape.
        """
        found: dict[str, Tensor] = {}
        ids = self._ids(tokens)
        with self._reading(found, ids.shape), suppress(_Reached):
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
        with self.patched(replace, ids.shape):
            logits = self._model(input_ids=ids, use_cache=False).logits
        losses = nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        return losses.view(ids.shape[0], -1)

    @torch.inference_mode()
    def promoted(self, directions: Float[Tensor, "latent d_in"]) -> Float[Tensor, "latent vocabulary"]:
        """What each direction of the residual stream does to the logits: unembed(final norm(direction)).

        What a model does to its logits afterwards (a scale, a soft cap) keeps their order and is left out.
        """
        norm, unembed = final_norm_of(self._model) or nn.Identity(), self._model.get_output_embeddings()
        floats = [value for value in (unembed.weight, *norm.parameters()) if isinstance(value, Tensor)]
        dtype = floats[0].dtype if floats else torch.float32  # a quantised unembedding keeps its weight behind a method
        return unembed(norm(directions.to(device=self._device, dtype=dtype))).float()

    @property
    def _config(self) -> Any:
        """Of the text, where the model reads more than text."""
        return self._model.config.get_text_config()

    def _ids(self, tokens: Int[np.ndarray, "context position"]) -> Tensor:
        return torch.from_numpy(tokens.astype(np.int64)).to(self._device)

    def _reading(self, found: dict[str, Tensor], shape: torch.Size) -> ExitStack:
        def keep(point: Hookpoint, value: Any) -> None:
            found[point.name] = activations_in(value, point, shape)
            if len(found) == len(self.hookpoints):
                raise _Reached

        with ExitStack() as hooks:
            for point in self.hookpoints.values():
                hooks.enter_context(hooked(self._modules[point.module], point.side, partial(keep, point)))
            return hooks.pop_all()

    def patched(self, replace: tuple[str, Replace] | None, shape: torch.Size) -> AbstractContextManager[None]:
        """Within the block, activations of a hookpoint are replaced in every pass over ids of that shape; None: nothing is."""
        if replace is None:
            return nullcontext()
        name, function = replace
        point = self.hookpoints[name]

        def patch(value: Any) -> Any:
            new = function(activations_in(value, point, shape))
            return (new, *value[1:]) if isinstance(value, tuple) else new

        return hooked(self._modules[point.module], point.side, patch)


def load_subject(folder: Path, hookpoints: Sequence[Hookpoint], *, dtype: str, device: torch.device) -> Subject:
    """Load from a local folder, in evaluation mode, on one device; hookpoints are checked before the weights are read.

    Where the hookpoints say so its weights are redrawn; they are all of one subject (`by_subject` tells them apart).

    Raises:
        HookpointError: a module is not in the subject, or gives no activations; or hookpoints are of subjects with other weights.
        SourceError: the weights are quantised by a method that cannot be loaded here.
        UnsupportedError: weights are to be redrawn that are quantised.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    check_hookpoints(hookpoints, module_names(folder))
    redrawn = _redrawn_of(hookpoints)
    method = method_of(AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False))
    if method:
        _refuse_to_redraw(folder, method, hookpoints)
        model: Any = load_quantised(folder, method, dtype=getattr(torch, dtype), device=device)
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True, trust_remote_code=False)
        if redrawn:
            redraw(model, redrawn)
        model.to(device)
    subject = Subject(model.eval().requires_grad_(False), hookpoints, device, method)
    subject.activations(np.zeros((2, 3), dtype=np.uint32))  # two rows: what is one for all, such as rotary angles, is told from activations
    return subject


def module_names(folder: Path) -> list[str]:
    """The modules of a model by name."""
    return list(modules_without_weights(folder))


def modules_without_weights(folder: Path) -> dict[str, nn.Module]:
    """The modules of a model by name, made from its configuration alone."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False))
    return dict(model.named_modules())


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


def hookpoints_of(settings: Mapping[str, Any], names: Collection[str] | None = None) -> list[Hookpoint]:
    """From `subject.hookpoints` (objects with `module`, `side` and `random`) to hookpoints; of some names, or all."""
    return [_hookpoint(name, point) for name, point in settings.items() if names is None or name in names]


def by_subject(hookpoints: Sequence[Hookpoint]) -> list[tuple[Hookpoint, ...]]:
    """The hookpoints of each subject that differs in its weights: what one pass reads."""
    subjects = dict.fromkeys(point.random for point in hookpoints)
    return [tuple(point for point in hookpoints if point.random == subject) for subject in subjects]


def _hookpoint(name: str, settings: Any) -> Hookpoint:
    random = settings.random and Redrawn(seed=settings.random.seed, all=settings.random.all)
    return Hookpoint(name=name, module=settings.module, side=settings.side, random=random)


def _redrawn_of(hookpoints: Sequence[Hookpoint]) -> Redrawn | None:
    groups = by_subject(hookpoints)
    if len(groups) > 1:
        names = " and ".join(str([point.name for point in group]) for group in groups)
        raise HookpointError(f"subject.hookpoints: {names} are read in subjects of other weights (`random`); load one subject for each")
    return groups[0][0].random if groups else None


def _refuse_to_redraw(folder: Path, method: str, hookpoints: Sequence[Hookpoint]) -> None:
    named = [point.name for point in hookpoints if point.random]
    if named:
        raise UnsupportedError(
            f"subject.hookpoints.{named[0]}.random: {folder} is quantised by {method!r} (`quantization_config` in its config.json), and only"
            " matrices of floats can be redrawn; name the model that is not quantised under `subject.model`, or leave the hookpoint out"
        )
