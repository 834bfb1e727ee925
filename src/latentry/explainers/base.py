"""What every explainer is given and gives: one latent's explain split in, one explanation out, whatever its status."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from latentry.records import Example, Explanation, Kind, Split, Status
from latentry.scorers.passages import Mode, Steered


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentExamples:
    """What an explainer may see of one latent."""

    latent: int
    status: Status
    """OK, or why there is nothing to explain (dead, undersampled)."""
    detail: str
    examples: tuple[Example, ...]
    """Of the explain split alone (checked)."""

    def __post_init__(self) -> None:
        held_out = [example.example_id for example in self.examples if example.split is not Split.EXPLAIN]
        if held_out:
            raise ValueError(f"latent {self.latent}: example {held_out[0]} is held out; explainers see the explain split only")


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """The tokens that a latent's decoder row makes more and less likely, the strongest first."""

    more: tuple[str, ...] = ()
    less: tuple[str, ...] = ()


def _no_prompts(_latents: Sequence[int], _kl: float, _mode: Mode) -> Iterable[tuple[int, Steered]]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SaeFacts:
    """What an explainer may know of the SAE beside the examples."""

    name: str
    """Under `saes`."""
    width: int | None
    """Number of latents; None where params do not say."""
    promoted: Callable[[], Mapping[int, Promoted]]
    """Reads the promoted tokens of the latents asked for."""
    steered: Callable[[Sequence[int], float, Mode], Iterable[tuple[int, Steered]]] = _no_prompts
    """What the subject says with each of some latents steered to a KL, or ablated: those that have prompts, one after another."""


class Explainer(Protocol):
    """One way to explain latents."""

    def explain(self, latents: Sequence[LatentExamples]) -> list[Explanation]:
        """One explanation per latent, in order; of a latent that is not OK, one with its status."""
        ...


def activating(latent: LatentExamples) -> list[Example]:
    """Its activating windows, by rank."""
    return sorted((example for example in latent.examples if example.kind is Kind.ACTIVATING), key=lambda example: example.rank)


def silent(latent: LatentExamples) -> list[Example]:
    """Its contrasts, by rank."""
    chosen = (example for example in latent.examples if example.kind is Kind.CONTRAST)
    return sorted(chosen, key=lambda example: (example.rank, example.contrast))


def unexplained(latent: LatentExamples, explainer: str) -> Explanation | None:
    """The row of a latent that cannot be explained; None for one that can."""
    status, detail = latent.status, latent.detail
    if status is Status.OK:
        if activating(latent):
            return None
        status, detail = Status.UNDERSAMPLED, "no activating window in the explain split"
    return without_text(latent.latent, explainer, status, detail)


def without_text(latent: int, explainer: str, status: Status, detail: str) -> Explanation:
    """The row of a latent that nobody was asked about."""
    return Explanation(
        latent=latent, explainer=explainer, text=None, status=status, detail=detail, prompt_digest="", reply=None, reply_key=None
    )
