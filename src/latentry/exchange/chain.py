"""The chain of manifests: each names the folders that it was made from by the digest of their manifests.

An input is looked for where the project has it, and among all folders that are verified, wherever they lie: what `dvc get`
fetched alone has lost its place. Always true: what is not here is told, never taken for right.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from latentry.exchange.result_files import FolderState, shown
from latentry.store import MANIFEST, file_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An input that a folder's manifest names."""

    folder: Path
    cell: str
    """Which wrote the folder, as DVC knows it."""
    named: str
    """The input's place in the project, such as `data/latents/topk-1k`."""
    stated: str
    """The digest that its manifest should have."""
    is_same: bool | None
    """None where that input is not here."""


def links_of(states: Mapping[Path, FolderState]) -> Iterator[Link]:
    """Every input of every folder."""
    here = {folder.resolve(): state.manifest_digest for folder, state in states.items() if state.manifest_digest}
    for folder, state in states.items():
        if state.manifest:
            for named, stated in sorted(state.manifest.inputs.items()):
                found = _digest_at(_place(folder, named), here)
                is_same = found == stated if found else stated in here.values() or None
                yield Link(folder=folder, cell=state.manifest.cell, named=named, stated=stated, is_same=is_same)


def broken(links: Sequence[Link]) -> Iterator[str]:
    """Of each input that is here and is another one, a sentence."""
    for link in links:
        if link.is_same is False:
            yield (
                f"{shown(link.folder)}: was made from another {shown(link.named)} than stands there (with manifest {link.stated[:12]});"
                f" `dvc repro {shown(link.cell)}` makes it anew"
            )


def absent(links: Sequence[Link]) -> Iterator[str]:
    """Of each input that is not here, a sentence, with who was made from it."""
    readers: dict[tuple[str, str], list[Path]] = {}
    for link in links:
        if link.is_same is None:
            readers.setdefault((link.named, link.stated), []).append(link.folder)
    for (named, stated), folders in sorted(readers.items()):
        whose = f"{shown(folders[0])} was" if len(folders) == 1 else f"{len(folders)} folders were"
        yield f"{shown(named)}: is not here; {whose} made from the one with manifest {stated[:12]}"


def _place(folder: Path, named: str) -> Path | None:
    """Where an input is, if the folder stands in a project: `data/latents/x` beside `data/examples/x`."""
    parts, inner = folder.resolve().parts, Path(named).parts
    if not inner or ".." in inner or Path(named).is_absolute() or inner[0] not in parts:
        return None
    last = len(parts) - 1 - parts[::-1].index(inner[0])
    return Path(*parts[:last], *inner)


def _digest_at(place: Path | None, here: Mapping[Path, str]) -> str | None:
    """The digest of the manifest there, also of a folder that was not asked for; None where there is none."""
    if place is None or place in here:
        return here[place] if place else None
    try:
        return file_digest(place / MANIFEST)
    except OSError:
        return None
