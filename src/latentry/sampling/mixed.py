"""Mixed contrasts: several other entries of `examples.contrasts`, each in its stated share."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from latentry.registry import ContrastConfig
from latentry.sampling.base import ContrastSource, SourceInputs, Windows
from latentry.sampling.wanted import Wanted


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

    def draw(self, wanted: Sequence[Wanted]) -> list[Windows]:
        """The parts' windows, interleaved so that each prefix is near the shares."""
        drawn, turns = [Windows.none() for _ in wanted], [np.zeros(0) for _ in wanted]
        for part, (name, n) in enumerate(parts_of(wanted[0].n, self._shares).items()):
            asked = [_for_part(each, part, n, some) for each, some in zip(wanted, drawn, strict=True)]
            found = self._sources[name].draw(asked)
            sizes = [some.starts.size for some in found]
            drawn = [
                some.followed_by(dataclasses.replace(more, part=np.full(size, part)))
                for some, more, size in zip(drawn, found, sizes, strict=True)
            ]
            turns = [np.append(turn, (np.arange(size) + 0.5) / max(n, 1)) for turn, size in zip(turns, sizes, strict=True)]
        mixed = [some.taken(np.argsort(turn, kind="stable")) for some, turn in zip(drawn, turns, strict=True)]
        return [some.taken(each.cut.first_of_each(some)) for each, some in zip(wanted, mixed, strict=True)]


def _for_part(wanted: Wanted, part: int, n: int, drawn: Windows) -> Wanted:
    """Its own draws, and no text that another part has."""
    texts = np.union1d(wanted.refused_texts, wanted.cut.texts(drawn.window, drawn.starts))
    return dataclasses.replace(wanted, n=n, refused_texts=texts, key=wanted.key ^ np.uint64(part + 1))


def parts_of(n: int, shares: Mapping[str, float]) -> dict[str, int]:
    """How many of `n` each share is, whole numbers that add up to it: rounded down, the largest remainders up."""
    exact = np.array([n * share for share in shares.values()])
    whole = np.floor(exact + 1e-9).astype(int)
    whole[np.argsort(whole - exact, kind="stable")[: n - whole.sum()]] += 1
    return dict(zip(shares, whole.tolist(), strict=True))
