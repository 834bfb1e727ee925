"""Prompts that a subject goes on from while one hookpoint is changed at the last prompt token and all after.

What stands before the last token is run once, for no change reaches it; each further look costs one token a prompt.
Always true: a prompt's numbers are those it has alone, up to rounding, and no hook outlives a step.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentry.subjects.causal_lm import Replace, Subject

LOG10_STRENGTHS = (-3.0, 4.0)
"""Between which log10 of the strength is sought, by bisection (methods.md, intervention)."""
MAX_STEPS = 10
NEAR = 0.1
"""How far from the target the KL may be, as a share of it."""
_ROWS_READ = 8
"""Prompts of like length read in one pass: fewer waste less on short ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """Where the search for a strength ended."""

    strength: float
    """Units of the direction added; the one whose KL came nearest to the target."""
    kl: float
    """In nats, at that strength."""
    reached: bool


class _Going:
    """Prompts on their way: which keys and values there are, and where each row stands."""

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]], mask: Int[Tensor, "prompt position"]) -> None:
        from transformers import DynamicCache

        # Keys and values are never written into: a step makes longer ones. So those of the prompts serve any number of runs.
        self.cache = DynamicCache(layers or None)
        self.mask = mask


class SteeredPrompts:
    """Some prompts of one subject, and what it says after them."""

    def __init__(self, subject: Subject, hookpoint: str, prompts: Sequence[Sequence[int]]) -> None:
        """`hookpoint` is what a change is made to; every prompt has at least one token."""
        self._subject, self._hookpoint = subject, hookpoint
        # Renamed within transformers 5.
        self._cache_argument = "cache" if "cache" in inspect.signature(subject.model.forward).parameters else "past_key_values"
        self._last = self._ids([prompt[-1:] for prompt in prompts])
        self._layers, self._mask = self._read([prompt[:-1] for prompt in prompts])

    @torch.inference_mode()
    def next_logprobs(self, change: Replace | None) -> Float[Tensor, "prompt vocabulary"]:
        """Log-probabilities of the token after each prompt, in nats."""
        return self._step(_Going(self._layers, self._mask), self._last, change)

    @torch.inference_mode()
    def continuations(
        self, change: Replace | None, noise: Callable[[int], Float[Tensor, "prompt vocabulary"]], n: int
    ) -> Int[Tensor, "prompt n"]:
        """`n` tokens after each prompt, drawn at temperature 1: the largest log-probability plus the step's Gumbel noise.

        Runs with the same noise differ only where their probabilities do.
        """
        going, ids = _Going(self._layers, self._mask), self._last
        drawn = []
        for step in range(n):
            logprobs = self._step(going, ids, change)
            ids = (logprobs + noise(step).to(logprobs.device)).argmax(-1, keepdim=True)
            drawn.append(ids)
        return torch.cat(drawn, dim=1)

    @torch.inference_mode()
    def _read(self, beginnings: Sequence[Sequence[int]]) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
        """Keys and values of all but the last tokens by layer, and which of them are none: rows end at the same column."""
        width = max(map(len, beginnings))
        mask = self._ids([[0] * (width - len(row)) + [1] * len(row) for row in beginnings])
        if not width:
            return [], mask
        order = sorted(range(len(beginnings)), key=lambda row: len(beginnings[row]))
        groups = [order[first : first + _ROWS_READ] for first in range(0, len(order), _ROWS_READ)]
        read = [self._read_group([beginnings[row] for row in group], width) for group in groups]
        back = torch.tensor(sorted(range(len(order)), key=order.__getitem__), device=mask.device)
        layers = [tuple(torch.cat(parts)[back] for parts in zip(*of_layer, strict=True)) for of_layer in zip(*read, strict=True)]
        return [(keys, values) for keys, values in layers], mask

    def _read_group(self, rows: Sequence[Sequence[int]], width: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of rows of like length, by layer, with room before them up to the width."""
        longest = max(max(map(len, rows)), 1)
        going = _Going((), self._ids([[0] * (longest - len(row)) + [1] * len(row) for row in rows]))
        self._run(going, self._ids([[0] * (longest - len(row)) + list(row) for row in rows]))
        layers: Any = going.cache.layers
        room = (0, 0, width - longest, 0)
        return [(torch.nn.functional.pad(layer.keys, room), torch.nn.functional.pad(layer.values, room)) for layer in layers]

    def _step(self, going: _Going, ids: Int[Tensor, "prompt 1"], change: Replace | None) -> Float[Tensor, "prompt vocabulary"]:
        going.mask = torch.cat([going.mask, torch.ones_like(ids)], dim=1)
        with self._subject.patched((self._hookpoint, change) if change else None, ids.shape):
            return self._run(going, ids).log_softmax(-1)

    def _run(self, going: _Going, ids: Int[Tensor, "prompt token"]) -> Float[Tensor, "prompt vocabulary"]:
        """Logits after the last of the tokens, which join the keys and values."""
        positions = (going.mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        # The place itself, not `1`: that would be a view, whose bfloat16 product with weights that need no gradient takes a CPU 100 times as long.
        output = self._subject.model(
            input_ids=ids,
            attention_mask=going.mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=torch.tensor([ids.shape[1] - 1], device=ids.device),
            **{self._cache_argument: going.cache},
        )
        return output.logits[:, -1].float()

    def _ids(self, rows: Sequence[Sequence[int]]) -> Int[Tensor, "prompt token"]:
        return torch.tensor([list(row) for row in rows], dtype=torch.long, device=self._subject.model.device).view(len(rows), -1)


def added(direction: Float[Tensor, " d_in"], strength: float) -> Replace:
    """The change that adds so many units of a direction; what else the activations hold, a SAE's error too, stays."""
    return lambda x: (x.float() + strength * direction.to(x.device).float()).to(x.dtype)


def mean_kl(clean: Float[Tensor, "prompt vocabulary"], changed: Float[Tensor, "prompt vocabulary"]) -> float:
    """Mean over prompts of KL(clean || changed) in nats, from log-probabilities."""
    return float((clean.exp() * (clean - changed)).sum(-1).mean())


def strength_for(kl_at: Callable[[float], float], target: float) -> Strength:
    """The strength whose mean KL is within 10 % of the target, by bisection; where none is found, the nearest one tried.

    A KL that is not a number, as where a strength overflows, counts as too large.
    """
    low, high = LOG10_STRENGTHS
    best = Strength(strength=0.0, kl=0.0, reached=False)
    for _ in range(MAX_STEPS):
        middle = (low + high) / 2
        kl = kl_at(10**middle)
        if abs(kl - target) < abs(best.kl - target):
            best = Strength(strength=10**middle, kl=kl, reached=abs(kl - target) <= NEAR * target)
        if best.reached:
            break
        low, high = (middle, high) if kl < target else (low, middle)
    return best
