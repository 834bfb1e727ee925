"""What scorers are built from before anything is there but examples: no model is loaded, and what one would say is made up.

So that their requests can be counted. Always true: as many texts as the real ones, and of like length.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from latentry.clients.base import Ask
from latentry.contracts import EXAMPLES
from latentry.errors import ContractError, LatentryError
from latentry.params import Params
from latentry.records import Example, Purpose, Split, SteeringPrompt
from latentry.scorers.base import ScorerInputs
from latentry.scorers.passages import Mode, Passage, Steered
from latentry.store import read_records

_PROMPT_WORDS = 24
"""Of a steering prompt that is not drawn yet: its 64 tokens are cut where the latent fires, in the middle on average."""
_CONTINUATION = " and so it went on for a"
"""Eight tokens, as a continuation has."""
_RISEN = " going"
"""A token as long as they mostly are."""


def scorer_stand_ins(params: Params, ask: Callable[[str], Ask], examples: Mapping[int, Sequence[Example]], folder: Path) -> ScorerInputs:
    """Inputs of a scorer that asks; `folder` is `data/examples/<S>`, where steering prompts are read if they are drawn."""

    def not_here(*_: str) -> Any:
        raise LatentryError("an estimate loads no model; a scorer that asks a client embeds nothing")

    def explain_split() -> dict[int, list[Example]]:
        return {latent: [one for one in of if one.split is Split.EXPLAIN] for latent, of in examples.items()}

    def fired(texts: Sequence[str], n_tokens: int) -> list[frozenset[int]]:  # noqa: ARG001
        return [frozenset() for _ in texts]

    steered = steered_stand_in(params, examples, folder)
    return ScorerInputs(seed=params.seed, ask=ask, embedder=not_here, explain_split=explain_split, steered=steered, fired=fired)


def steered_stand_in(
    params: Params, examples: Mapping[int, Sequence[Example]], folder: Path
) -> Callable[[Sequence[int], float, Mode], Iterator[tuple[int, Steered]]]:
    """What steers latents, for scorers and explainers: every latent with prompts reaches its KL and says something of its own."""

    def steered(latents: Sequence[int], kl: float, mode: Mode) -> Iterator[tuple[int, Steered]]:  # noqa: ARG001
        prompts = _prompts(params, examples, folder)
        return ((latent, _steered(latent, prompts[latent], kl)) for latent in latents if prompts.get(latent))

    return steered


def _prompts(params: Params, examples: Mapping[int, Sequence[Example]], folder: Path) -> dict[int, list[tuple[str, Purpose, str]]]:
    """Id, purpose and text of every latent's steering prompts: those drawn, else the beginnings of windows."""
    prompts: dict[int, list[tuple[str, Purpose, str]]] = {}
    try:
        for one in read_records(folder, EXAMPLES, "prompts.parquet", SteeringPrompt):
            prompts.setdefault(one.latent, []).append((one.example_id, one.purpose, one.text))
    except ContractError:
        steering = params.examples.steering
        n = 0 if steering is None else steering.contexts
        for latent, of in examples.items():
            purposes = [Purpose.SCORE] * (n * 3 // 4) + [Purpose.EXPLAIN] * (n - n * 3 // 4)
            texts = [" ".join(of[number % len(of)].text.split()[:_PROMPT_WORDS]) for number in range(n)] if of else []
            prompts[latent] = [(f"{latent}/{i}", purpose, text) for i, (purpose, text) in enumerate(zip(purposes, texts, strict=False))]
    return prompts


def _steered(latent: int, prompts: Sequence[tuple[str, Purpose, str]], kl: float) -> Steered:
    return Steered(strength=1.0, kl=kl, reached=True, passages=tuple(_passage(latent, *prompt) for prompt in prompts))


def _passage(latent: int, prompt_id: str, purpose: Purpose, text: str) -> Passage:
    # With its own id in it, so that no two are one request.
    clean, changed = (f"{_CONTINUATION} {kind} {prompt_id}" for kind in ("clean", latent))
    return Passage(example_id=prompt_id, purpose=purpose, prompt=text, clean=clean, changed=changed, risen=(_RISEN,) * 10)
