"""The prompts on which latents are steered: contexts in which a latent fires, cut after the first token at which it does.

Always true: a latent's prompts have distinct texts, so that those to score and those to explain share none, and they
come from (seed, latent) alone. A latent with too few contexts has fewer prompts, and says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from latentry.randomness import rng_for
from latentry.records import Purpose, SteeringPrompt
from latentry.sampling.base import Activations, Tokens
from latentry.sampling.grid import grid_of, texts_at
from latentry.sampling.windows import Firing, GridFiring, grid_firing, looked_up

N_QUINTILES = 5
_EXPLAIN_ONE_IN = 4
"""10 of 40 prompts are to explain (methods.md, intervention)."""


class SteeringParams(Protocol):
    """`examples.steering` of params.yaml."""

    @property
    def contexts(self) -> int: ...
    @property
    def tokens(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contexts:
    """The contexts of distinct text in which one latent fires, in corpus order."""

    start: Int64[np.ndarray, " context"]
    """Flat position of the first token."""
    length: Int64[np.ndarray, " context"]
    """Tokens up to the first at which it fires, that one among them."""
    quintile: Int64[np.ndarray, " context"]


class PromptDrawer:
    """Draws the prompts of one latent at a time from one corpus."""

    def __init__(
        self,
        seed: int,
        steering: SteeringParams,
        token_set: Tokens,
        kept: UInt8[np.ndarray, "context position"],
        store: Activations,
        beginning: tuple[int, ...],
    ) -> None:
        """`kept` says whose activations were encoded; `beginning` holds the ids that the subject sees before any text.

        Raises:
            CorpusError: no document has as many tokens as a context.
        """
        self._seed, self._per_quintile = seed, steering.contexts // N_QUINTILES
        self._token_set, self._store, self._beginning = token_set, store, beginning
        self._grid = grid_of(token_set, steering.tokens)
        self._window_of = looked_up(self._grid, kept)
        # Without BOS a prompt of one token would be steered at the first position, the subject's attention sink, which is left out everywhere.
        self._shortest = 1 if beginning else 2

    def prompts(self, latent: int) -> list[SteeringPrompt]:
        """Its prompts; of each purpose every prefix is even over the quintiles. Fewer where there are not so many contexts."""
        found = self._contexts(Firing.of(self._store, latent, signed=False))
        rng = rng_for(self._seed, "steering prompts", latent)
        drawn = list(self._drawn(found, rng))
        made = []
        for purpose in Purpose:
            mine = sorted((order, turn, place) for order, turn, place, one in drawn if one is purpose)
            made += [self._prompt(latent, purpose, number, found, place) for number, (_, _, place) in enumerate(mine)]
        return made

    def _contexts(self, firing: Firing) -> _Contexts:
        found = grid_firing(firing, self._window_of)
        _, first = np.unique(self._grid.text_id[found.windows], return_index=True)
        chosen = np.sort(first)
        length = firing.position[found.begin[chosen]] - self._grid.starts[found.windows[chosen]] + 1
        long_enough = length >= self._shortest
        chosen, length = chosen[long_enough], length[long_enough]
        return _Contexts(start=self._grid.starts[found.windows[chosen]], length=length, quintile=_quintile_of(_peaks(found, chosen)))

    def _drawn(self, found: _Contexts, rng: np.random.Generator) -> Iterator[tuple[int, float, int, Purpose]]:
        """Order within its quintile and purpose, the turn among quintiles, the context's place and its purpose."""
        texts: set[str] = set()
        for quintile in range(1, N_QUINTILES + 1):
            chosen = self._of_quintile(found, quintile, texts, rng)
            n_explain = len(chosen) // _EXPLAIN_ONE_IN
            for number, place in enumerate(chosen):
                is_explain = number < n_explain
                order = number if is_explain else number - n_explain
                yield order, float(rng.random()), place, Purpose.EXPLAIN if is_explain else Purpose.SCORE

    def _of_quintile(self, found: _Contexts, quintile: int, texts: set[str], rng: np.random.Generator) -> list[int]:
        """Places drawn from one quintile; `texts` holds those of all prompts so far, and grows."""
        chosen: list[int] = []
        for place in rng.permutation(np.flatnonzero(found.quintile == quintile)).tolist():
            if len(chosen) == self._per_quintile:
                break
            text = self._text(found, place)
            if text not in texts:
                texts.add(text)
                chosen.append(place)
        return chosen

    def _text(self, found: _Contexts, place: int) -> str:
        return texts_at(self._token_set, found.start[place : place + 1], int(found.length[place]))[0]

    def _prompt(self, latent: int, purpose: Purpose, number: int, found: _Contexts, place: int) -> SteeringPrompt:
        first, length = int(found.start[place]), int(found.length[place])
        tokens = self._token_set.tokens.reshape(-1)[first : first + length].tolist()
        context, start = divmod(first, self._grid.context_length)
        return SteeringPrompt(
            latent=latent,
            example_id=f"{latent}/steering/{purpose}/{number}",
            purpose=purpose,
            quintile=int(found.quintile[place]),
            document=int(self._token_set.document.reshape(-1)[first]),
            context=context,
            start=start,
            tokens=(*self._beginning, *tokens),
            text=self._text(found, place),
        )


def _peaks(found: GridFiring, chosen: Int64[np.ndarray, " chosen"]) -> Float32[np.ndarray, " chosen"]:
    return found.peak[chosen]


def _quintile_of(peak: Float32[np.ndarray, " context"]) -> Int64[np.ndarray, " context"]:
    """By rank over (peak, corpus position): 1 weakest fifth, 5 strongest."""
    quintile = np.empty(peak.size, dtype=np.int64)
    quintile[np.argsort(peak, kind="stable")] = np.arange(peak.size) * N_QUINTILES // max(peak.size, 1) + 1
    return quintile


def shortfall(prompts: Sequence[SteeringPrompt], steering: SteeringParams) -> str:
    """What is missing of one latent's prompts; empty when nothing is."""
    return f"steering: {len(prompts)} of {steering.contexts}" if len(prompts) < steering.contexts else ""
