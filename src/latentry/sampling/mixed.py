"""Mixed contrasts: several other entries of `examples.contrasts`, each in its stated share."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from latentry.registry import ContrastConfig
from latentry.sampling.base import ContrastSource, SourceInputs, Wanted, Windows


class Config(ContrastConfig):
    """Which entries, and how much of each."""

    shares: Annotated[dict[str, Annotated[float, Field(gt=0, lt=1)]], Field(min_length=2)]
    """Entries of `examples.contrasts` by name, none of them mixed itself, with their shares; together 1."""

    @model_validator(mode="after")
    def _sum_to_one(self) -> "Config":
        total = sum(self.shares.values())
        if abs(total - 1) > 1e-6:
            raise ValueError(f"the shares add up to {total:g}, wanted 1")
        return self

    def parts(self, contrasts: Mapping[str, ContrastConfig]) -> tuple[str, ...]:
        """The sources of the entries it names."""
        return tuple(contrasts[name].source(contrasts) for name in self.shares)

    def source(self, contrasts: Mapping[str, ContrastConfig]) -> str:
        """The parts' sources with their shares in percent."""
        parts = [f"{name}_{100 * share:g}" for name, share in zip(self.parts(contrasts), self.shares.values(), strict=True)]
        return "_".join([self.kind, *parts])

    def asked_of_parts(self, n: int) -> Mapping[str, int]:
        """Each its share."""
        return parts_of(n, self.shares)


def build(config: Config, inputs: SourceInputs) -> "Mixed":
    """The source, made of the sources of the entries it names."""
    return Mixed(config.shares, {name: inputs.source(name) for name in config.shares})


class Mixed:
    """Each part draws its share; what one lacks, no other fills, so that the shares are what they are called."""

    def __init__(self, shares: Mapping[str, float], sources: Mapping[str, ContrastSource]) -> None:
        self._shares, self._sources = shares, sources

    def draw(self, wanted: Wanted) -> Windows:
        """The parts' windows, interleaved so that each prefix is near the shares."""
        drawn, turns = Windows.none(), np.zeros(0)
        for part, (name, n) in enumerate(parts_of(wanted.n, self._shares).items()):
            texts = np.union1d(wanted.refused_texts, wanted.cut.texts(drawn))
            found = self._sources[name].draw(dataclasses.replace(wanted, n=n, refused_texts=texts))
            drawn = drawn.followed_by(dataclasses.replace(found, part=np.full(found.starts.size, part)))
            turns = np.append(turns, (np.arange(found.starts.size) + 0.5) / max(n, 1))
        mixed = drawn.taken(np.argsort(turns, kind="stable"))
        return mixed.taken(wanted.cut.first_of_each(mixed))


def parts_of(n: int, shares: Mapping[str, float]) -> dict[str, int]:
    """How many of `n` each share is, whole numbers that add up to it: rounded down, the largest remainders up."""
    exact = np.array([n * share for share in shares.values()])
    whole = np.floor(exact + 1e-9).astype(int)
    whole[np.argsort(whole - exact, kind="stable")[: n - whole.sum()]] += 1
    return dict(zip(shares, whole.tolist(), strict=True))
