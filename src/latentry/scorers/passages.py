"""What comes of steering a latent, as scorers and explainers read it; how it comes about is `steering.py`'s."""

from dataclasses import dataclass
from typing import Literal

from latentry.records import Purpose

Mode = Literal["steer", "ablate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One prompt, and what the subject says after it."""

    example_id: str
    purpose: Purpose
    prompt: str
    clean: str
    """The continuation of the subject as it is."""
    changed: str
    """The continuation with the latent steered, or ablated, from the last prompt token on."""
    risen: tuple[str, ...]
    """Tokens whose probability right after the prompt rises most by the change, the most first; none where none rises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """One latent's change and what came of it."""

    strength: float | None
    """Units of the decoder row added; None where the latent was ablated."""
    kl: float
    """Mean KL(clean || changed) at the last position of all prompts, in nats."""
    reached: bool
    """Whether the KL is within 10 % of the target; an ablation has none, and reaches it always."""
    passages: tuple[Passage, ...]
    """One per prompt, in order; none where the KL was not reached."""

    def of(self, purpose: Purpose) -> tuple[Passage, ...]:
        """Those to score, or those to explain, every prefix of them even over the quintiles of peak."""
        return tuple(passage for passage in self.passages if passage.purpose is purpose)

    @property
    def change(self) -> str:
        """What was done and what it did, in words."""
        return f"KL {self.kl:.3g} " + ("with the latent ablated" if self.strength is None else f"at strength {self.strength:.3g}")
