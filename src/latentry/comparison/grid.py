"""The grid that is compared: which cells params name, where their folders are, and what is left of cells they no longer name.

Cells are found by name alone: no folder is searched for more.
"""

import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from latentry.metric_kinds import reported_name
from latentry.records import NO_EXPLAINER
from latentry.sections import ImportedSettings
from latentry.store import MANIFEST


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedScorer:
    """What the comparison must know of a scorer before it has seen any of its scores."""

    contrast: str
    """The contrast it is asked to use; stands in the metric's name where no score says it."""
    max_latents: int | None
    """How many latents it was asked for, the first by rank; None for all."""
    kind: str = ""
    """Its kind; tells which number stands for it where it gave none."""
    reads_explanations: bool = True
    """Whether it scores explanations, or the latents themselves, once each."""
    class_ratio: tuple[int, int] = (1, 1)
    """Activating examples and contrasts beside each other, as designed and reduced."""
    is_adaptive: bool = False
    """Whether it stops judging a latent early."""
    question: str | None = None
    """Digest of all that it asks but for whom: scorers of one question are two judges of the same. None where it asks no judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The cells that params name, and the folder that holds their results."""

    data: Path
    seed: int
    saes: tuple[str, ...]
    explainers: tuple[str, ...]
    scorers: Mapping[str, AskedScorer]
    force: bool = False
    """Whether SAEs that were scored under unlike settings are compared all the same."""
    imported: Mapping[str, ImportedSettings] = field(default_factory=dict)
    """Scores of others that are set beside ours."""
    jacobians: tuple[str, ...] = ()

    def explainers_of(self, scorer: str) -> tuple[str, ...]:
        """The explainers whose explanations a scorer scores; `none` where it reads none."""
        return self.explainers if self.scorers[scorer].reads_explanations else (NO_EXPLAINER,)

    def metric_name(self, scorer: str, kind: str, contrast_source: str) -> str:
        """A kind of number as it is reported of one scorer."""
        asked = self.scorers[scorer]
        return reported_name(kind, contrast_source, asked.class_ratio, adaptive=asked.is_adaptive)

    def sae(self, sae: str) -> Path:
        """Folder of one SAE."""
        return self.data / "saes" / sae

    def latents(self, sae: str) -> Path:
        """Folder of one SAE's activations by latent."""
        return self.data / "latents" / sae

    def examples(self, sae: str) -> Path:
        """Folder of one SAE's examples."""
        return self.data / "examples" / sae

    def explanations(self, sae: str) -> Path:
        """Folder of one SAE's explanations."""
        return self.data / "explanations" / sae

    def scores(self, sae: str, scorer: str) -> Path:
        """Folder of one SAE's scores by one scorer."""
        return self.data / "scores" / sae / scorer

    def jacobian(self, jacobian: str) -> Path:
        """Folder of one Jacobian."""
        return self.data / "jacobians" / jacobian

    def edges(self, jacobian: str) -> Path:
        """Folder of its explained edges."""
        return self.data / "edges" / jacobian

    def inputs(self) -> list[Path]:
        """The complete folders that a comparison reads; those of cells that failed or are to come are not among them."""
        return [folder for folder in self._named() if is_complete(folder)]

    def _named(self) -> Iterator[Path]:
        for sae in self.saes:
            yield from (self.sae(sae), self.examples(sae), self.explanations(sae))
            yield from (self.scores(sae, scorer) for scorer in self.scorers)
        for jacobian in self.jacobians:
            yield from (self.jacobian(jacobian), self.edges(jacobian))


def is_complete(folder: Path) -> bool:
    """Whether a stage has finished the folder."""
    return (folder / MANIFEST).is_file()


def remove_unnamed_cells(grid: Grid) -> list[Path]:
    """Delete the results of SAEs, scorers and Jacobians that params no longer name, which DVC leaves behind; returns what went."""
    removed = []
    for room in ("saes", "latents", "examples", "explanations", "scores"):
        removed += remove_unnamed(grid.data / room, grid.saes)
    for sae in grid.saes:
        removed += remove_unnamed(grid.data / "scores" / sae, tuple(grid.scorers))
    for room in ("jacobians", "edges"):
        removed += remove_unnamed(grid.data / room, grid.jacobians)
    return removed


def remove_unnamed(folder: Path, names: Collection[str]) -> list[Path]:
    """Delete the subfolders of a folder that are not named; files, hidden folders and the targets of links stay."""
    if not folder.is_dir():
        return []
    unnamed = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name not in names and not path.name.startswith(".")]
    for path in unnamed:
        if path.is_symlink():
            path.unlink()
        else:
            shutil.rmtree(path)
    return unnamed
