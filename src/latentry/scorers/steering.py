"""What a latent makes the subject say: its prompts gone on with, clean and with the latent strengthened or taken away.

Shared by the intervention scorer and the steered explainer. Clean and changed continuations share their random numbers,
which come from (seed, prompt) alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from latentry.contracts import EXAMPLES
from latentry.errors import UnsupportedError
from latentry.randomness import rng_for
from latentry.records import SteeringPrompt
from latentry.scorers.passages import Mode, Passage, Steered
from latentry.store import read_records
from latentry.subjects.steering import SteeredPrompts, added, mean_kl, strength_for

if TYPE_CHECKING:
    from latentry.saes.base import Sae
    from latentry.subjects.causal_lm import Replace, Subject

N_TOKENS = 8
"""Of a continuation (methods.md, intervention)."""
_N_RISEN = 10
"""Tokens named whose probability rises most after a prompt."""
_BLOCK_LATENTS = 16384
"""Latents in one product with the SAE's encoder."""


class Steering:
    """Steers one SAE's latents in one subject."""

    def __init__(self, seed: int, subject: "Subject", sae: "Sae", tokenizer: Any, prompts: Mapping[int, Sequence[SteeringPrompt]]) -> None:
        self._seed, self._subject, self._sae, self._tokenizer, self._prompts = seed, subject, sae, tokenizer, prompts

    def steered(self, latents: Sequence[int], kl: float, mode: Mode) -> Iterator[tuple[int, Steered]]:
        """Each of the latents that has prompts, one after another."""
        mine = [latent for latent in latents if self._prompts.get(latent)]
        for latent in tqdm(mine, unit="latent", desc=f"latents to {mode}"):
            yield latent, self._of(latent, kl, mode)

    def _of(self, latent: int, target: float, mode: Mode) -> Steered:
        prompts = self._prompts[latent]
        run = SteeredPrompts(self._subject, self._sae.writes, [prompt.tokens for prompt in prompts])
        clean = run.next_logprobs(None)
        change, strength, kl, reached = self._change(run, clean, latent, target, mode)
        passages = self._passages(run, prompts, clean, change) if reached else ()
        return Steered(strength=strength, kl=kl, reached=reached, passages=passages)

    def _change(
        self, run: SteeredPrompts, clean: Tensor, latent: int, target: float, mode: Mode
    ) -> tuple["Replace", float | None, float, bool]:
        if mode == "ablate":
            if self._sae.writes != self._sae.hookpoint:
                raise UnsupportedError(
                    f"SAE {self._sae.name!r} reads {self._sae.hookpoint!r} and writes {self._sae.writes!r}: what a latent contributes is not"
                    " known where it is taken away; `mode: ablate` is for SAEs that rebuild what they read, take `mode: steer`"
                )
            change = ablated(self._sae, latent)
            return change, None, mean_kl(clean, run.next_logprobs(change)), True
        direction = self._sae.decoder[latent]
        found = strength_for(lambda strength: mean_kl(clean, run.next_logprobs(added(direction, strength))), target)
        return added(direction, found.strength), found.strength, found.kl, found.reached

    def _passages(self, run: SteeredPrompts, prompts: Sequence[SteeringPrompt], clean: Tensor, change: "Replace") -> tuple[Passage, ...]:
        risen = [_risen(rise) for rise in run.next_logprobs(change).exp() - clean.exp()]
        texts = [run.continuations(one, gumbel_noise(self._seed, prompts, clean.shape[-1]), N_TOKENS).tolist() for one in (None, change)]
        return tuple(
            Passage(
                example_id=prompt.example_id,
                purpose=prompt.purpose,
                prompt=prompt.text,
                clean=self._text(prompt, unchanged),
                changed=self._text(prompt, changed),
                risen=tuple(self._tokenizer.decode([token]) for token in rising),
            )
            for prompt, unchanged, changed, rising in zip(prompts, *texts, risen, strict=True)
        )

    def _text(self, prompt: SteeringPrompt, continuation: Sequence[int]) -> str:
        """What the continuation adds to the prompt's text: some tokenizers drop a space where a text begins."""
        before = self._decoded(prompt.tokens)
        whole = self._decoded([*prompt.tokens, *continuation])
        return whole[len(before) :] if whole.startswith(before) else self._decoded(continuation)

    def _decoded(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def _risen(rise: Tensor) -> list[int]:
    """Ids of the tokens whose probability rises most."""
    values, ids = rise.topk(_N_RISEN)
    return ids[values > 0].tolist()


def read_prompts(folder: Path) -> dict[int, list[SteeringPrompt]]:
    """The prompts of `data/examples/<S>` by latent, in the order in which they are used; empty where none were drawn.

    Raises:
        ContractError: the examples are not complete.
    """
    found: dict[int, list[SteeringPrompt]] = {}
    for prompt in read_records(folder, EXAMPLES, "prompts.parquet", SteeringPrompt):
        found.setdefault(prompt.latent, []).append(prompt)
    return found


def gumbel_noise(seed: int, prompts: Sequence[SteeringPrompt], vocabulary: int) -> Callable[[int], Tensor]:
    """Noise [prompt, vocabulary] for one step after another; a prompt's own depends on the seed and its id alone."""
    chances = [rng_for(seed, f"continuation {prompt.example_id}") for prompt in prompts]

    def noise(_step: int) -> Tensor:
        uniform = np.stack([chance.random(vocabulary, dtype=np.float32) for chance in chances])
        return -torch.log(-torch.log(torch.from_numpy(uniform).clamp(min=torch.finfo(torch.float32).tiny)))

    return noise


def ablated(sae: "Sae", latent: int) -> "Replace":
    """The change that takes away what a latent itself contributes: its activation times its decoder row."""

    def change(x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        found = sae.firings(rows, _BLOCK_LATENTS)
        mine = found.latent == latent
        activation = torch.zeros(len(rows), dtype=torch.float32, device=x.device)
        activation[found.token[mine].to(x.device)] = found.activation[mine].float().to(x.device)
        taken = activation.unsqueeze(-1) * sae.decoder[latent].to(x.device).float()
        return (x.float() - taken.view(x.shape)).to(x.dtype)

    return change
