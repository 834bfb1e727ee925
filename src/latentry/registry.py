"""A variant is a file: its name is the `kind` in params.yaml, it defines `Config` and `build`.

Nothing is registered anywhere: a new file in a room is a new kind.
"""

import difflib
import importlib
import importlib.util
import math
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from latentry.errors import ParamsError


class VariantConfig(BaseModel):
    """Base of every variant's `Config`: frozen, and unknown keys are faults."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False)

    kind: str
    """Which variant file this configures; where it may be left out, the entry's own name."""


Width = Annotated[int, Field(ge=1, le=1 << 28)]
"""A number of latents; no SAE has near so many as the most."""


class SaeConfig(VariantConfig):
    """What every SAE's `Config` has."""

    hookpoint: str
    """Name in `subject.hookpoints` of the activations that it reads."""
    writes: str | None = None
    """Name in `subject.hookpoints` of the activations that it rebuilds; none: what it reads. Transcoders have one."""

    @property
    def pair(self) -> tuple[str, str] | None:
        """The hookpoints of an MLP's input and output, where it is trained together with another SAE on both; else None."""
        return None

    @property
    def n_latents(self) -> int | None:
        """How many latents it has: its `width`, or twice that where each direction of its file is two; None where params do not say."""
        return getattr(self, "width", None)


class ContrastConfig(VariantConfig):
    """What every contrast source's `Config` has."""

    @property
    def reads_decoder(self) -> bool:
        """Whether the source reads the SAE's decoder."""
        return False

    def source(self, contrasts: Mapping[str, "ContrastConfig"]) -> str:  # noqa: ARG002
        """The source's name in rows and in the metric's name; `contrasts` holds all entries of `examples.contrasts`."""
        return self.kind

    def parts(self, contrasts: Mapping[str, "ContrastConfig"]) -> tuple[str, ...]:
        """The names under which its windows are recorded: more than one only where it is made of several sources."""
        return (self.source(contrasts),)

    def asked_of_parts(self, n: int) -> Mapping[str, int]:  # noqa: ARG002
        """How many of `n` windows each entry it is made of is asked for, in the order of `parts`; none where it is its own."""
        return {}


class ExplainerConfig(VariantConfig):
    """What every explainer's `Config` has."""

    max_latents: Annotated[int, Field(ge=1)] | None = None
    """Latents explained, the first of the sample; none: all."""

    @property
    def steers(self) -> bool:
        """Whether it runs the subject with latents steered, and so depends on subject, SAE and the prompts of `examples.steering`."""
        return False


class ScorerConfig(VariantConfig):
    """What every scorer's `Config` has."""

    contrast: str
    """The entry of `examples.contrasts` that it sets activating examples against, or one that it makes itself."""
    max_latents: Annotated[int, Field(ge=1)] | None = None
    """Latents scored, the first of the sample; none: all."""
    max_examples: Annotated[int, Field(ge=1)] | None = None
    """Held-out examples used of each kind, even over the deciles; none: all."""
    null_latents: Annotated[int, Field(ge=0)] | None = None
    """Latents on which the shuffled null is scored too, the first of the sample; none: all."""

    @property
    def reads_explanations(self) -> bool:
        """Whether explanations are what it scores; else the latents themselves, under the explainer's name `none`."""
        return True

    @property
    def runs_subject(self) -> bool:
        """Whether it runs the subject with the SAE, and so depends on both."""
        return False

    @property
    def steers(self) -> bool:
        """Whether it goes on from the prompts of `examples.steering`."""
        return False

    @property
    def has_null(self) -> bool:
        """Whether a latent's score is also made under another latent's explanation; else chance is known beforehand."""
        return True

    @property
    def is_adaptive(self) -> bool:
        """Whether it stops judging a latent once its interval is narrow enough; then its metrics' names say so."""
        return False

    @property
    def least_activating(self) -> int:
        """Held-out activating windows that a latent needs to be scored at all, even over the deciles."""
        return 1

    def class_ratio(self, n_activating: int, n_contrast: int) -> tuple[int, int]:
        """Activating examples and contrasts beside each other as designed, reduced; given how many of each are held out."""
        used = [n if self.max_examples is None else min(n, self.max_examples) for n in (n_activating, n_contrast)]
        common = math.gcd(*used)
        return used[0] // common, used[1] // common


@cache
def kinds(room: str) -> tuple[str, ...]:
    """The variants of a room, by name: the files in it that define a `Config`."""
    spec = importlib.util.find_spec(f"latentry.{room}")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"{room} is no room of latentry")
    folder = Path(next(iter(spec.submodule_search_locations)))
    return tuple(sorted(path.stem for path in folder.glob("*.py") if "\nclass Config(" in path.read_text(encoding="utf-8")))


def variant(room: str, kind: str) -> ModuleType:
    """The module of one variant.

    Raises:
        ParamsError: no file of the room has that name.
    """
    if kind not in kinds(room):
        raise ParamsError(room, [f"kind: there is no {kind!r}{nearest(kind, kinds(room))}"])
    return importlib.import_module(f"latentry.{room}.{kind}")


def nearest(wrong: str, allowed: Iterable[str]) -> str:
    """The end of an error sentence: the nearest name, where one is near, and all there are."""
    names = sorted(allowed)
    near = difflib.get_close_matches(wrong, names, n=1, cutoff=0.5)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(names[:40]) + (f" and {len(names) - 40} more" if len(names) > 40 else "")
    return f"{meant} (there are: {listed or 'none'})"
