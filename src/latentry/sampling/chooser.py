"""The examples of latents: their status, their windows in two splits, their contrasts.

Every draw comes from (seed, purpose, latent): other latents, and their order, change nothing here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np
from jaxtyping import Bool, Int8, Int64, UInt8

from latentry.errors import ContractError
from latentry.randomness import rng_for
from latentry.records import Kind, Split, Status
from latentry.registry import ContrastConfig
from latentry.sampling.base import NO_SUPPLIER, ContrastSource, SourceInputs, Wanted, Windows
from latentry.sampling.centred import CentredCut
from latentry.sampling.fixed import FixedCut
from latentry.sampling.split_draws import SplitDraw, SplitDrawing
from latentry.sampling.splits import Sides, units_of
from latentry.sampling.tables import WINDOWS, Drawn
from latentry.sampling.windows import N_DECILES, ActivatingWindows, Cut, Firing, looked_up

ACTIVATIONS_AT_ONCE = 500_000
"""Latents are worked on together that have no more, so that memory does not grow with how often they fire."""


class ExamplesParams(Protocol):
    """`examples` of params.yaml, by the fields that are read here."""

    @property
    def window(self) -> int: ...
    @property
    def windows(self) -> str: ...
    @property
    def n_latents(self) -> int | None: ...
    @property
    def latents(self) -> Any: ...
    @property
    def strata(self) -> int | None: ...
    @property
    def min_examples(self) -> int: ...
    @property
    def split_by(self) -> str: ...
    @property
    def explain(self) -> Any: ...
    @property
    def held_out(self) -> Any: ...
    @property
    def contrasts(self) -> Mapping[str, ContrastConfig]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One latent looked at."""

    latent: int
    status: Status
    detail: str
    """Why it is not OK, with the numbers; empty when it is."""
    n_windows: int
    """Activating windows of the grid, duplicates included."""
    n_distinct_windows: int
    drawn: tuple[Drawn, ...] = ()
    shortfall: str = ""
    """Windows that were asked for and are not there; empty when all are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A latent with windows enough."""

    firing: Firing
    found: ActivatingWindows


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """Windows for one split, before their activations are looked up."""

    split: Split
    contrast: str
    """The entry of `examples.contrasts`; empty for activating windows."""
    windows: Windows
    decile: Int8[np.ndarray, " window"]


class Chooser:
    """Chooses for some latents at a time, by one set of parameters."""

    def __init__(
        self,
        seed: int,
        examples: ExamplesParams,
        kept: UInt8[np.ndarray, "context position"],
        inputs: SourceInputs,
        sources: Mapping[str, ContrastSource],
    ) -> None:
        """`kept` says whose activations were encoded; `sources` holds one for each of `examples.contrasts`."""
        self._seed, self._examples, self._inputs, self._grid = seed, examples, inputs, inputs.grid
        self._n_kept = int(np.count_nonzero(kept))
        self._cut = cut_of(examples.windows, kept, inputs)
        self._splits = SplitDrawing(
            seed=seed,
            grid=inputs.grid,
            split_by=examples.split_by,
            n_held_out=examples.held_out.n_activating,
            n_explain=examples.explain.n,
            how=examples.explain.how,
        )
        self._sources = sources
        parts = {name: config.parts(examples.contrasts) for name, config in examples.contrasts.items()}
        self._parts: Mapping[str, tuple[str, ...]] = {"": (WINDOWS,), **parts}

    def outcomes(self, block: Sequence[int]) -> list[Outcome]:
        """What is to be had of each latent of a block; every latent has an outcome.

        Raises:
            ContractError: one fires where there is no token or a position was left out, or a contrast is not silent.
        """
        return [outcome for latents in self._together(block) for outcome in self._outcomes(latents, block)]

    def _together(self, block: Sequence[int]) -> Iterator[Sequence[int]]:
        n_before = np.cumsum(self._inputs.firing_counts[np.array(block)]) // ACTIVATIONS_AT_ONCE
        bounds = np.flatnonzero(np.diff(n_before, prepend=-1, append=-1))
        yield from (block[first:last] for first, last in pairwise(bounds))

    def _outcomes(self, latents: Sequence[int], block: Sequence[int]) -> Iterator[Outcome]:
        looked_at = [self._looked_at(latent) for latent in latents]
        seen = [one for one in looked_at if isinstance(one, Seen)]
        splits = iter(self._splits.of([one.found for one in seen], [one.firing.latent for one in seen]))
        for one in looked_at:
            yield self._outcome(one, next(splits), block) if isinstance(one, Seen) else one

    def _looked_at(self, latent: int) -> Seen | Outcome:
        firing = Firing.of(self._inputs.store, latent, signed=self._inputs.signed)
        if not firing.position.size:
            return _failed(latent, Status.DEAD, f"never fires in {self._n_kept} tokens", None)
        found = self._cut.activating(firing)
        n_distinct, wanted = found.window.size, max(self._examples.min_examples, N_DECILES)
        if n_distinct < wanted:
            return _failed(latent, Status.UNDERSAMPLED, f"{n_distinct} activating windows of distinct text, {wanted} wanted", found)
        return Seen(firing=firing, found=found)

    def _outcome(self, seen: Seen, draw: SplitDraw | None, block: Sequence[int]) -> Outcome:
        firing, found = seen.firing, seen.found
        if draw is None:
            return _failed(firing.latent, Status.UNDERSAMPLED, self._cannot_split(found), found)
        activating = (
            self._picked(Split.HELD_OUT, found, draw.held_out, draw.held_out_decile),
            self._picked(Split.EXPLAIN, found, draw.explain, draw.explain_decile),
        )
        picked = [*activating, *self._contrasts(firing, found, draw.sides, activating, block)]
        return Outcome(
            latent=firing.latent,
            status=Status.OK,
            detail="",
            n_windows=found.n_grid,
            n_distinct_windows=found.window.size,
            drawn=self._drawn(firing, picked),
            shortfall=self._shortfall(picked),
        )

    def _cannot_split(self, found: ActivatingWindows) -> str:
        units = units_of(self._grid, found.window, self._examples.split_by)
        units = units[units >= 0]
        named = {"document": "documents", "context": "blocks of contexts"}[self._examples.split_by]
        hint = "; split_by: context may do" if self._examples.split_by == "document" else ""
        return (
            f"{units.size} windows in {np.unique(units).size} {named}: no division of these leaves"
            f" {self._examples.held_out.n_activating} held out and {self._examples.explain.n} to explain{hint}"
        )

    def _picked(
        self, split: Split, found: ActivatingWindows, chosen: Int64[np.ndarray, " example"], decile: Int8[np.ndarray, " example"]
    ) -> Picked:
        windows = Windows(
            window=found.window[chosen],
            starts=found.starts(self._grid, chosen),
            supplier=np.full(chosen.size, NO_SUPPLIER),
            part=np.zeros(chosen.size, dtype=np.int64),
        )
        return Picked(split=split, contrast="", windows=windows, decile=decile)

    def _contrasts(
        self, firing: Firing, found: ActivatingWindows, sides: Sides, activating: tuple[Picked, Picked], block: Sequence[int]
    ) -> Iterator[Picked]:
        """Every source for the held-out split, and the first one for the explain split, which repeats no text of the former."""
        texts = [found.texts]
        for shown, names in zip(activating, (list(self._sources), list(self._sources)[:1]), strict=True):
            refused = np.sort(np.concatenate(texts)) if len(texts) > 1 else found.texts
            for name in names:
                wanted = Wanted(
                    n=self._n_contrast(shown.split),
                    grid=self._grid,
                    cut=self._cut,
                    firing=firing,
                    n_silent=self._grid.n_windows - found.n_grid,
                    refused_texts=refused,
                    in_split=lambda windows, split=shown.split: self._in_split(windows, split, sides),
                    activating=shown.windows,
                    block=block,
                    rng=rng_for(self._seed, f"contrast/{name}/{shown.split}", firing.latent),
                )
                drawn = self._sources[name].draw(wanted)
                texts.append(self._cut.texts(drawn))
                yield Picked(split=shown.split, contrast=name, windows=drawn, decile=np.zeros(drawn.starts.size, dtype=np.int8))

    def _n_contrast(self, split: Split) -> int:
        return (self._examples.explain if split is Split.EXPLAIN else self._examples.held_out).n_contrast

    def _in_split(self, windows: Int64[np.ndarray, " window"], split: Split, sides: Sides) -> Bool[np.ndarray, " window"]:
        units = units_of(self._grid, windows, self._examples.split_by)
        return (units >= 0) & (sides.is_held_out(units) == (split is Split.HELD_OUT))

    def _drawn(self, firing: Firing, picked: Sequence[Picked]) -> tuple[Drawn, ...]:
        """With the activations of all the windows, those of contrasts checked to be zero."""
        ends = [0, *accumulate(group.windows.starts.size for group in picked)]
        whole = firing.dense(np.concatenate([group.windows.starts for group in picked]), self._grid.window)
        activations = [whole[first:last] for first, last in pairwise(ends)]
        for group, dense in zip(picked, activations, strict=True):
            if group.contrast and (dense.any() or self._twin_fires(firing, group)):
                raise ContractError(
                    f"latent {firing.latent}: contrast source {group.contrast!r} drew windows in which it, or its twin, fires; none may be;"
                    " correct the source"
                )
        return tuple(
            Drawn(
                latent=firing.latent,
                split=group.split,
                kind=Kind.CONTRAST if group.contrast else Kind.ACTIVATING,
                contrast=group.contrast,
                sources=self._parts[group.contrast],
                part=group.windows.part,
                supplier=group.windows.supplier,
                window=group.windows.window,
                starts=group.windows.starts,
                decile=group.decile,
                activations=dense,
            )
            for group, dense in zip(picked, activations, strict=True)
        )

    def _twin_fires(self, firing: Firing, group: Picked) -> bool:
        return self._inputs.signed and not firing.is_silent(group.windows.starts, self._grid.window).all()

    def _shortfall(self, picked: Sequence[Picked]) -> str:
        short = [(group, group.windows.starts.size, self._n_contrast(group.split)) for group in picked if group.contrast]
        return "; ".join(
            f"{group.split} {group.contrast}: {size} of {n}{self._short_parts(group, n)}" for group, size, n in short if size < n
        )

    def _short_parts(self, group: Picked, n: int) -> str:
        """Of a contrast made of several entries, those that lack windows."""
        asked = self._examples.contrasts[group.contrast].asked_of_parts(n)
        found = np.bincount(group.windows.part, minlength=len(asked)).tolist()
        short = [f"{name} {size} of {wanted}" for size, (name, wanted) in zip(found, asked.items(), strict=False) if size < wanted]
        return f" ({', '.join(short)})" if short else ""


def cut_of(windows: str, kept: UInt8[np.ndarray, "context position"], inputs: SourceInputs) -> Cut:
    """How windows are cut out of the corpus: `fixed` or `centred`."""
    window_of = looked_up(inputs.grid, kept)
    return CentredCut(inputs.grid, window_of, inputs.token_set) if windows == "centred" else FixedCut(inputs.grid, window_of)


def _failed(latent: int, status: Status, detail: str, found: ActivatingWindows | None) -> Outcome:
    n_windows, n_distinct = (found.n_grid, found.window.size) if found else (0, 0)
    return Outcome(latent=latent, status=status, detail=detail, n_windows=n_windows, n_distinct_windows=n_distinct)
