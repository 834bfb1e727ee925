"""The examples of latents: their status, their windows in two splits, their contrasts.

Every draw comes from (seed, purpose, latent): other latents, and their order, change nothing here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np
from jaxtyping import Int8, Int64, UInt8

from latentry.errors import ContractError
from latentry.records import Kind, Split, Status
from latentry.registry import ContrastConfig
from latentry.sampling.base import NO_SUPPLIER, ContrastSource, SourceInputs, Windows
from latentry.sampling.centred import CentredCut
from latentry.sampling.draws import keys_of
from latentry.sampling.fixed import FixedCut
from latentry.sampling.grid import Grid
from latentry.sampling.split_draws import SplitDraw, SplitDrawing
from latentry.sampling.splits import units_of
from latentry.sampling.tables import WINDOWS, Drawn
from latentry.sampling.wanted import Wanted
from latentry.sampling.windows import N_DECILES, ActivatingWindows, Cut, Firing, are_silent, looked_up

ACTIVATIONS_AT_ONCE = 1_000_000
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Divided:
    """A latent whose activating windows are drawn."""

    seen: Seen
    draw: SplitDraw

    @property
    def latent(self) -> int:
        """Which it is."""
        return self.seen.firing.latent

    def activating(self, split: Split, grid: Grid) -> Picked:
        """Those of one split."""
        chosen = self.draw.held_out if split is Split.HELD_OUT else self.draw.explain
        window, starts = self.seen.found.window[chosen.index], self.seen.found.starts(grid, chosen.index)
        windows = Windows(
            window=window, starts=starts, supplier=np.full(starts.size, NO_SUPPLIER), part=np.zeros(starts.size, dtype=np.int64)
        )
        return Picked(split=split, contrast="", windows=windows, decile=chosen.decile)


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
        return [outcome for latents in self._together(block) for outcome in self._outcomes(latents)]

    def _together(self, block: Sequence[int]) -> Iterator[Sequence[int]]:
        n_before = np.cumsum(self._inputs.firing_counts[np.array(block)]) // ACTIVATIONS_AT_ONCE
        bounds = np.flatnonzero(np.diff(n_before, prepend=-1, append=-1)).tolist()
        yield from (block[first:last] for first, last in pairwise(bounds))

    def _outcomes(self, latents: Sequence[int]) -> list[Outcome]:
        looked_at = [self._looked_at(latent) for latent in latents]
        seen = [one for one in looked_at if isinstance(one, Seen)]
        draws = self._splits.of([one.found for one in seen], [one.firing.latent for one in seen])
        picked = self._picked([Divided(seen=one, draw=draw) for one, draw in zip(seen, draws, strict=True) if draw])
        return [self._outcome(one, picked.get(one.firing.latent)) if isinstance(one, Seen) else one for one in looked_at]

    def _looked_at(self, latent: int) -> Seen | Outcome:
        firing = Firing.of(self._inputs.store, latent, signed=self._inputs.signed)
        if not firing.position.size:
            return _failed(latent, Status.DEAD, f"never fires in {self._n_kept} tokens", None)
        found = self._cut.activating(firing)
        n_distinct, wanted = found.window.size, max(self._examples.min_examples, N_DECILES)
        if n_distinct < wanted:
            return _failed(latent, Status.UNDERSAMPLED, f"{n_distinct} activating windows of distinct text, {wanted} wanted", found)
        return Seen(firing=firing, found=found)

    def _outcome(self, seen: Seen, picked: Sequence[Picked] | None) -> Outcome:
        firing, found = seen.firing, seen.found
        if picked is None:
            return _failed(firing.latent, Status.UNDERSAMPLED, self._cannot_split(found), found)
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

    def _picked(self, divided: Sequence[Divided]) -> dict[int, list[Picked]]:
        """Of each latent the activating windows of both splits, then the contrasts: every source for the held-out split,
        and the first one for the explain split, which repeats no text of the former."""
        picked = {one.latent: [one.activating(split, self._grid) for split in (Split.HELD_OUT, Split.EXPLAIN)] for one in divided}
        texts = {one.latent: [one.seen.found.texts] for one in divided}
        for split, names in ((Split.HELD_OUT, list(self._sources)), (Split.EXPLAIN, list(self._sources)[:1])):
            refused = {latent: np.sort(np.concatenate(keys)) for latent, keys in texts.items()}
            for name in names if divided else []:
                for one, windows in zip(divided, self._contrasts(divided, split, name, picked, refused), strict=True):
                    picked[one.latent].append(
                        Picked(split=split, contrast=name, windows=windows, decile=np.zeros(windows.starts.size, dtype=np.int8))
                    )
                    texts[one.latent].append(self._cut.texts(windows.window, windows.starts))
        return picked

    def _contrasts(
        self,
        divided: Sequence[Divided],
        split: Split,
        name: str,
        picked: Mapping[int, Sequence[Picked]],
        refused: Mapping[int, Int64[np.ndarray, " text"]],
    ) -> list[Windows]:
        keys = keys_of(self._seed, f"contrast/{name}", np.array([one.latent for one in divided]))
        wanted = [
            Wanted(
                n=self._n_contrast(split),
                grid=self._grid,
                cut=self._cut,
                firing=one.seen.firing,
                n_silent=self._grid.n_windows - one.seen.found.n_grid,
                refused_texts=refused[one.latent],
                split=split,
                split_by=self._examples.split_by,
                sides=one.draw.sides,
                activating=next(group.windows for group in picked[one.latent] if group.split is split),
                key=key,
            )
            for one, key in zip(divided, keys, strict=True)
        ]
        return self._sources[name].draw(wanted)

    def _n_contrast(self, split: Split) -> int:
        return (self._examples.explain if split is Split.EXPLAIN else self._examples.held_out).n_contrast

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
        return self._inputs.signed and not are_silent([firing], group.windows.starts[None], self._grid.window).all()

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
