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
from latentry.registry import VariantConfig, variant
from latentry.sampling.base import Activations, ContrastSource, Wanted, is_in
from latentry.sampling.grid import Grid
from latentry.sampling.splits import Sides, drawn_by_decile, sides_of, units_of
from latentry.sampling.tables import WINDOWS, Drawn
from latentry.sampling.windows import N_DECILES, ActivatingWindows, activating_windows


class ExamplesParams(Protocol):
    """`examples` of params.yaml, by the fields that are read here."""

    @property
    def window(self) -> int: ...
    @property
    def n_latents(self) -> int | None: ...
    @property
    def latents(self) -> Any: ...
    @property
    def min_examples(self) -> int: ...
    @property
    def split_by(self) -> str: ...
    @property
    def explain(self) -> Any: ...
    @property
    def held_out(self) -> Any: ...
    @property
    def contrasts(self) -> Mapping[str, VariantConfig]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One latent looked at."""

    latent: int
    status: Status
    detail: str
    """Why it is not OK, with the numbers; empty when it is."""
    n_windows: int
    """Activating windows, duplicates included."""
    n_distinct_windows: int
    drawn: tuple[Drawn, ...] = ()
    shortfall: str = ""
    """Contrasts that were asked for and are not there; empty when all are."""


class Chooser:
    """Chooses for one latent at a time, by one set of parameters."""

    def __init__(
        self, seed: int, examples: ExamplesParams, grid: Grid, kept: UInt8[np.ndarray, "context position"], store: Activations
    ) -> None:
        self._seed, self._examples, self._grid, self._store = seed, examples, grid, store
        self._kept = kept.reshape(-1)
        self._sources: dict[str, ContrastSource] = {
            name: variant("sampling", config.kind).build(config) for name, config in examples.contrasts.items()
        }

    def outcome(self, latent: int) -> Outcome:
        """What is to be had of one latent; every latent has an outcome.

        Raises:
            ContractError: it fires where a position was left out, or a contrast source gave a window that is not silent.
        """
        position, activation = self._store.read(latent)
        if not position.size:
            return _failed(latent, Status.DEAD, f"never fires in {int(np.count_nonzero(self._kept))} tokens", None)
        if not self._kept[position].all():
            raise ContractError(
                f"latent {latent}: fires at {int(np.count_nonzero(self._kept[position] == 0))} positions that were left out;"
                " none may be stored; rerun `dvc repro latents`"
            )
        found = activating_windows(position, activation, self._grid)
        n_distinct, wanted = found.distinct.size, max(self._examples.min_examples, N_DECILES)
        if n_distinct < wanted:
            return _failed(latent, Status.UNDERSAMPLED, f"{n_distinct} activating windows of distinct text, {wanted} wanted", found)
        units = units_of(self._grid, found.windows[found.distinct], self._examples.split_by)
        sides = self._sides(latent, units, found)
        if sides is None:
            return _failed(latent, Status.UNDERSAMPLED, self._cannot_split(units), found)
        drawn = [*self._activating(latent, found, units, sides), *self._contrasts(latent, found, sides)]
        return Outcome(
            latent=latent,
            status=Status.OK,
            detail="",
            n_windows=found.windows.size,
            n_distinct_windows=n_distinct,
            drawn=tuple(drawn),
            shortfall=self._shortfall(drawn),
        )

    def _sides(self, latent: int, units: Int64[np.ndarray, " distinct"], found: ActivatingWindows) -> Sides | None:
        explain, usable = self._examples.explain, units >= 0
        return sides_of(
            units[usable],
            found.decile[usable],
            self._examples.held_out.n_activating,
            explain.n,
            explain.how == "deciles",
            rng_for(self._seed, "sides", latent),
        )

    def _cannot_split(self, units: Int64[np.ndarray, " distinct"]) -> str:
        usable = units[units >= 0]
        named = {"document": "documents", "context": "blocks of contexts"}[self._examples.split_by]
        hint = "; split_by: context may do" if self._examples.split_by == "document" else ""
        return (
            f"{usable.size} windows in {np.unique(usable).size} {named}: no division of these leaves"
            f" {self._examples.held_out.n_activating} held out and {self._examples.explain.n} to explain{hint}"
        )

    def _activating(self, latent: int, found: ActivatingWindows, units: Int64[np.ndarray, " distinct"], sides: Sides) -> Iterator[Drawn]:
        held_out = sides.is_held_out(units) & (units >= 0)
        n, rng = self._examples.held_out.n_activating, rng_for(self._seed, "held_out", latent)
        candidates = np.flatnonzero(held_out)
        yield self._drawn_windows(latent, Split.HELD_OUT, found, candidates[drawn_by_decile(found.decile[candidates], n, rng)])
        candidates = np.flatnonzero(~held_out & (units >= 0))
        yield self._drawn_windows(latent, Split.EXPLAIN, found, candidates[self._to_explain(latent, found, candidates)])

    def _to_explain(
        self, latent: int, found: ActivatingWindows, candidates: Int64[np.ndarray, " candidate"]
    ) -> Int64[np.ndarray, " drawn"]:
        explain, rng = self._examples.explain, rng_for(self._seed, "explain", latent)
        if explain.how == "top":
            # Stable, so that of equal peaks the first in the corpus comes first.
            return np.argsort(-found.peak[found.distinct[candidates]], kind="stable")[: explain.n]
        if explain.how == "random":
            return rng.permutation(candidates.size)[: explain.n]
        return drawn_by_decile(found.decile[candidates], explain.n, rng)

    def _drawn_windows(self, latent: int, split: Split, found: ActivatingWindows, chosen: Int64[np.ndarray, " example"]) -> Drawn:
        return Drawn(
            latent=latent,
            split=split,
            kind=Kind.ACTIVATING,
            source=WINDOWS,
            contrast="",
            windows=found.windows[found.distinct[chosen]],
            decile=found.decile[chosen],
            activations=found.dense(found.distinct[chosen], self._grid),
        )

    def _contrasts(self, latent: int, found: ActivatingWindows, sides: Sides) -> Iterator[Drawn]:
        """Every source for the held-out split, and the first one for the explain split, which repeats no text of the former."""
        held_out = [self._drawn_contrasts(latent, Split.HELD_OUT, name, found, found.texts, sides) for name in self._sources]
        yield from held_out
        texts = [self._grid.text_id[group.windows] for group in held_out]
        refused = np.sort(np.concatenate([found.texts, *texts]), kind="stable")
        for name in list(self._sources)[:1]:
            yield self._drawn_contrasts(latent, Split.EXPLAIN, name, found, refused, sides)

    def _drawn_contrasts(
        self, latent: int, split: Split, name: str, found: ActivatingWindows, refused: Int64[np.ndarray, " text"], sides: Sides
    ) -> Drawn:
        wanted = Wanted(
            latent=latent,
            n=self._n_contrast(split),
            grid=self._grid,
            activating=found.windows,
            refused_texts=refused,
            allowed=lambda windows: self._in_split(windows, split, sides),
            rng=rng_for(self._seed, f"contrast/{name}/{split}", latent),
        )
        windows = self._sources[name].draw(wanted)
        if is_in(windows, found.windows).any():
            raise ContractError(
                f"latent {latent}: contrast source {name!r} drew windows in which it fires; none may be; correct the source"
            )
        return Drawn(
            latent=latent,
            split=split,
            kind=Kind.CONTRAST,
            source=self._examples.contrasts[name].kind,
            contrast=name,
            windows=windows,
            decile=np.zeros(windows.size, dtype=np.int64),
            activations=np.zeros((windows.size, self._grid.window), dtype=np.float32),
        )

    def _n_contrast(self, split: Split) -> int:
        return (self._examples.explain if split is Split.EXPLAIN else self._examples.held_out).n_contrast

    def _in_split(self, windows: Int64[np.ndarray, " window"], split: Split, sides: Sides) -> Bool[np.ndarray, " window"]:
        units = units_of(self._grid, windows, self._examples.split_by)
        return (units >= 0) & (sides.is_held_out(units) == (split is Split.HELD_OUT))

    def _shortfall(self, drawn: Sequence[Drawn]) -> str:
        contrasts = [(group, self._n_contrast(group.split)) for group in drawn if group.kind is Kind.CONTRAST]
        return "; ".join(f"{group.split} {group.contrast}: {group.windows.size} of {n}" for group, n in contrasts if group.windows.size < n)


def _failed(latent: int, status: Status, detail: str, found: ActivatingWindows | None) -> Outcome:
    n_windows, n_distinct = (found.windows.size, found.distinct.size) if found else (0, 0)
    return Outcome(latent=latent, status=status, detail=detail, n_windows=n_windows, n_distinct_windows=n_distinct)
