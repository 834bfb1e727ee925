"""Single token: where one token accounts for nearly all of a latent's activation, that token is the explanation; no model.

The other latents have the status `unsupported`, with the share of their most frequent token.
"""

import hashlib
import json
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from latentry.clients.base import Ask
from latentry.explainers.base import LatentExamples, SaeFacts, activating, unexplained
from latentry.records import Example, Explanation, Status
from latentry.registry import ExplainerConfig


class Config(ExplainerConfig):
    """When a token is the explanation."""

    min_fraction: Annotated[float, Field(gt=0.5, le=1)] = 0.9
    """Smallest share of the activation in the windows that the token accounts for."""


def build(config: Config, name: str, seed: int, ask: Callable[[str], Ask], sae: SaeFacts) -> "SingleToken":  # noqa: ARG001
    """The explainer."""
    return SingleToken(config, name)


class SingleToken:
    """Names the one token, or gives none."""

    def __init__(self, config: Config, name: str) -> None:
        self._config, self._name = config, name

    def explain(self, latents: Sequence[LatentExamples]) -> list[Explanation]:
        """One explanation per latent; UNSUPPORTED where no token stands for the latent."""
        return [unexplained(latent, self._name) or self._explained(latent) for latent in latents]

    def _explained(self, latent: LatentExamples) -> Explanation:
        examples = activating(latent)
        token, fraction = strongest_token(examples)
        stands = fraction >= self._config.min_fraction
        seen = [self._config.model_dump(mode="json"), [[one.tokens, one.activations] for one in examples]]
        return Explanation(
            latent=latent.latent,
            explainer=self._name,
            text=f"the token {named(token)}" if stands else None,
            status=Status.OK if stands else Status.UNSUPPORTED,
            detail=""
            if stands
            else f"{named(token)} has {fraction:.0%} of the activation, the most of any token; below {self._config.min_fraction:.0%}",
            prompt_digest=hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest(),
            reply=None,
            reply_key=None,
        )


def strongest_token(examples: Sequence[Example]) -> tuple[str, float]:
    """The token with the largest share of the activation, as it stands in the text without outer blanks, and that share.

    Tokens that differ in outer blanks alone count as one; of equal shares the one met first is taken.
    """
    sums: dict[str, float] = defaultdict(float)
    for example in examples:
        for start, end, activation in zip(example.spans[::2], example.spans[1::2], example.activations, strict=True):
            if activation > 0:
                token = example.text[start:end]
                sums[token.strip(" \t") or token] += activation
    token = max(sums, key=sums.__getitem__, default="")
    return token, sums[token] / sum(sums.values()) if sums else 0.0


def named(token: str) -> str:
    """A token as a reader meets it: quoted; line breaks and blanks by name, a sign with its name."""
    if not token.strip():
        return "line break" if "\n" in token else "blank"
    if len(token) == 1 and not token.isalnum():
        return f'"{token}" ({unicodedata.name(token, "sign").lower()})'
    return f'"{" ".join(token.split())}"'
