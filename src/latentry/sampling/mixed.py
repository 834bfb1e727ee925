"""Mixed contrasts: several other entries of `examples.contrasts`, each in its stated share."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from latentry.registry import ContrastConfig
from latentry.sampling.base import Contrasts, ContrastSource, SourceInputs, Wanted


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

    def source(self, contrasts: Mapping[str, ContrastConfig]) -> str:
        """The parts' sources with their shares in percent."""
        parts = [f"{contrasts[name].source(contrasts)}_{100 * share:g}" for name, share in self.shares.items()]
        return "_".join([self.kind, *parts])


def build(config: Config, inputs: SourceInputs) -> "Mixed":
    """The source, made of the sources of the entries it names."""
    names = {name: inputs.contrasts[name].source(inputs.contrasts) for name in config.shares}
    return Mixed(config.shares, {name: inputs.source(name) for name in config.shares}, names)


class Mixed:
    """Each part draws its share; what one lacks, no other fills, so that the shares are what they are called."""

    def __init__(self, shares: Mapping[str, float], sources: Mapping[str, ContrastSource], names: Mapping[str, str]) -> None:
        self._shares, self._sources, self._names = shares, sources, names

    def draw(self, wanted: Wanted) -> Contrasts:
        """The parts' windows, recorded under their own sources, interleaved so that each prefix is near the shares."""
        drawn, turns = Contrasts.none(), np.zeros(0)
        for name, n in parts_of(wanted.n, self._shares).items():
            texts = np.union1d(wanted.refused_texts, wanted.cut.texts(drawn.starts))
            part = dataclasses.replace(wanted, n=n, source=self._names[name], refused_texts=texts)
            found = self._sources[name].draw(part)
            drawn = drawn.followed_by(found)
            turns = np.append(turns, (np.arange(found.starts.size) + 0.5) / max(n, 1))
        mixed = drawn.taken(np.argsort(turns, kind="stable"))
        return mixed.taken(wanted.cut.first_of_each(mixed.starts))


def parts_of(n: int, shares: Mapping[str, float]) -> dict[str, int]:
    """How many of `n` each share is, whole numbers that add up to it: rounded down, the largest remainders up."""
    exact = np.array([n * share for share in shares.values()])
    whole = np.floor(exact + 1e-9).astype(int)
    whole[np.argsort(whole - exact, kind="stable")[: n - whole.sum()]] += 1
    return dict(zip(shares, whole.tolist(), strict=True))
