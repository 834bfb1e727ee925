"""The examples of one latent: its status, its windows in two splits, its contrasts.

Every draw comes from (seed, purpose, latent): other latents, and their order, change nothing here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from jaxtyping import Bool, Int64, UInt8

from latentry.errors import ContractError
from latentry.randomness import rng_for
from latentry.records import Kind, Split, Status
from latentry.registry import ContrastConfig
from latentry.sampling.base import NO_SUPPLIER, Contrasts, ContrastSource, SourceInputs, Wanted
from latentry.sampling.centred import CentredCut
from latentry.sampling.explain_split import chosen_to_explain
from latentry.sampling.fixed import FixedCut
from latentry.sampling.splits import Sides, drawn_by_decile, sides_of, units_of
from latentry.sampling.tables import WINDOWS, Drawn
from latentry.sampling.windows import N_DECILES, ActivatingWindows, Cut, Firing, looked_up


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
    """Contrasts that were asked for and are not there; empty when all are."""


class Chooser:
    """Chooses for one latent at a time, by one set of parameters."""

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
        self._sources = sources

    def outcome(self, latent: int, block: Sequence[int]) -> Outcome:
        """What is to be had of one latent; every latent has an outcome. `block` holds the latents worked on together.

        Raises:
            ContractError: it fires where there is no token or a position was left out, or a contrast is not silent.
        """
        position, activation = self._inputs.store.read(latent)
        if not position.size:
            return _failed(latent, Status.DEAD, f"never fires in {self._n_kept} tokens", None)
        firing = Firing(latent=latent, position=position.astype(np.int64), activation=activation.astype(np.float32, copy=False))
        found = self._cut.activating(firing)
        n_distinct, wanted = found.starts.size, max(self._examples.min_examples, N_DECILES)
        if n_distinct < wanted:
            return _failed(latent, Status.UNDERSAMPLED, f"{n_distinct} activating windows of distinct text, {wanted} wanted", found)
        units = self._units(found)
        usable = np.flatnonzero(units >= 0)
        sides = self._sides(latent, units[usable], found.decile[usable])
        if sides is None:
            return _failed(latent, Status.UNDERSAMPLED, self._cannot_split(units[usable]), found)
        activating = self._activating(firing, found, usable, sides)
        drawn = [*activating, *self._contrasts(firing, found, sides, activating, block)]
        return Outcome(
            latent=latent,
            status=Status.OK,
            detail="",
            n_windows=found.n_grid,
            n_distinct_windows=n_distinct,
            drawn=tuple(drawn),
            shortfall=self._shortfall(drawn),
        )

    def _units(self, found: ActivatingWindows) -> Int64[np.ndarray, " window"]:
        if self._examples.split_by == "document":
            return found.document.astype(np.int64)
        return units_of(self._grid, found.starts, self._examples.split_by)

    def _sides(self, latent: int, units: Int64[np.ndarray, " usable"], decile: np.ndarray) -> Sides | None:
        explain = self._examples.explain
        by_decile = explain.how == "deciles"
        return sides_of(units, decile, self._examples.held_out.n_activating, explain.n, by_decile, rng_for(self._seed, "sides", latent))

    def _cannot_split(self, units: Int64[np.ndarray, " usable"]) -> str:
        named = {"document": "documents", "context": "blocks of contexts"}[self._examples.split_by]
        hint = "; split_by: context may do" if self._examples.split_by == "document" else ""
        return (
            f"{units.size} windows in {np.unique(units).size} {named}: no division of these leaves"
            f" {self._examples.held_out.n_activating} held out and {self._examples.explain.n} to explain{hint}"
        )

    def _activating(
        self, firing: Firing, found: ActivatingWindows, usable: Int64[np.ndarray, " usable"], sides: Sides
    ) -> tuple[Drawn, Drawn]:
        """The held-out windows, then those to explain."""
        latent, explain = firing.latent, self._examples.explain
        candidates = usable[sides.examples_held_out]
        held_out = drawn_by_decile(found.decile[candidates], self._examples.held_out.n_activating, rng_for(self._seed, "held_out", latent))
        rest = usable[~sides.examples_held_out]
        to_explain = chosen_to_explain((found.peak[rest], found.decile[rest]), explain.how, explain.n, rng_for(self._seed, "explain", latent))
        return (
            self._drawn_windows(firing, Split.HELD_OUT, found, candidates[held_out]),
            self._drawn_windows(firing, Split.EXPLAIN, found, rest[to_explain]),
        )

    def _drawn_windows(self, firing: Firing, split: Split, found: ActivatingWindows, chosen: Int64[np.ndarray, " example"]) -> Drawn:
        return Drawn(
            latent=firing.latent,
            split=split,
            kind=Kind.ACTIVATING,
            contrast="",
            source=np.full(chosen.size, WINDOWS),
            supplier=np.full(chosen.size, NO_SUPPLIER),
            starts=found.starts[chosen],
            decile=found.decile[chosen],
            activations=firing.dense(found.starts[chosen], self._grid.window),
        )

    def _contrasts(
        self, firing: Firing, found: ActivatingWindows, sides: Sides, activating: tuple[Drawn, Drawn], block: Sequence[int]
    ) -> Iterator[Drawn]:
        """Every source for the held-out split, and the first one for the explain split, which repeats no text of the former."""
        refused = [found.texts]
        held_out, explain = activating
        for split, shown, names in ((Split.HELD_OUT, held_out, list(self._sources)), (Split.EXPLAIN, explain, list(self._sources)[:1])):
            texts = np.sort(np.concatenate(refused), kind="stable")
            for name in names:
                wanted = self._wanted(firing, found, sides, split, name, texts, shown.starts, block)
                drawn = self._drawn_contrasts(firing, split, name, self._sources[name].draw(wanted))
                refused.append(self._cut.texts(drawn.starts))
                yield drawn

    def _wanted(
        self,
        firing: Firing,
        found: ActivatingWindows,
        sides: Sides,
        split: Split,
        name: str,
        refused: Int64[np.ndarray, " text"],
        activating: Int64[np.ndarray, " start"],
        block: Sequence[int],
    ) -> Wanted:
        return Wanted(
            n=self._n_contrast(split),
            source=self._examples.contrasts[name].source(self._examples.contrasts),
            grid=self._grid,
            cut=self._cut,
            firing=firing,
            n_silent=self._grid.n_windows - found.n_grid,
            refused_texts=refused,
            in_split=lambda starts: self._in_split(starts, split, sides),
            activating=activating,
            block=block,
            rng=rng_for(self._seed, f"contrast/{name}/{split}", firing.latent),
        )

    def _drawn_contrasts(self, firing: Firing, split: Split, name: str, drawn: Contrasts) -> Drawn:
        activations = firing.dense(drawn.starts, self._grid.window)
        if activations.any():
            raise ContractError(
                f"latent {firing.latent}: contrast source {name!r} drew windows in which it fires; none may be; correct the source"
            )
        return Drawn(
            latent=firing.latent,
            split=split,
            kind=Kind.CONTRAST,
            contrast=name,
            source=drawn.source,
            supplier=drawn.supplier,
            starts=drawn.starts,
            decile=np.zeros(drawn.starts.size, dtype=np.int8),
            activations=activations,
        )

    def _n_contrast(self, split: Split) -> int:
        return (self._examples.explain if split is Split.EXPLAIN else self._examples.held_out).n_contrast

    def _in_split(self, starts: Int64[np.ndarray, " start"], split: Split, sides: Sides) -> Bool[np.ndarray, " start"]:
        units = units_of(self._grid, starts, self._examples.split_by)
        return (units >= 0) & (sides.is_held_out(units) == (split is Split.HELD_OUT))

    def _shortfall(self, drawn: Sequence[Drawn]) -> str:
        contrasts = [(group, self._n_contrast(group.split)) for group in drawn if group.kind is Kind.CONTRAST]
        return "; ".join(f"{group.split} {group.contrast}: {group.starts.size} of {n}" for group, n in contrasts if group.starts.size < n)


def cut_of(windows: str, kept: UInt8[np.ndarray, "context position"], inputs: SourceInputs) -> Cut:
    """How windows are cut out of the corpus: `fixed` or `centred`."""
    window_of = looked_up(inputs.grid, kept)
    return CentredCut(inputs.grid, window_of, inputs.token_set) if windows == "centred" else FixedCut(inputs.grid, window_of)


def _failed(latent: int, status: Status, detail: str, found: ActivatingWindows | None) -> Outcome:
    n_windows, n_distinct = (found.n_grid, found.starts.size) if found else (0, 0)
    return Outcome(latent=latent, status=status, detail=detail, n_windows=n_windows, n_distinct_windows=n_distinct)
