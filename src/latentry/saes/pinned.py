"""SAEs from elsewhere, of any format: a local folder, or one on the hub at a commit; copied as it is, and the copy is what is read.

What a format is (its files, and what their place says of them) is its variant's. Beside the copy stands `source.json`: where it came
from, by names and digests only, never a path of this machine.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from latentry.errors import ContractError, NumericsError, ParamsError, SourceError, UnsupportedError
from latentry.hub import snapshot
from latentry.registry import SaeConfig, Width
from latentry.store import digest_of, file_digest

SOURCE_FILE = "source.json"
_CARD = "README.md"


class HubFolder(BaseModel):
    """A folder of a repository on the Hugging Face hub, at one commit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """Name on the hub, such as `EleutherAI/sae-pythia-160m-32k`."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    """The commit, in full: a branch or tag may mean other weights tomorrow."""
    path: str = ""
    """The folder in it that holds the SAE's files, such as `layers.5`; empty: the repository's own."""

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        if path and any(part in ("", ".", "..") for part in path.split("/")):
            raise ValueError(f"{path!r} is no folder inside the repository; write it as `layers.5` or `a/b`, without a slash at either end")
        return path


class PinnedConfig(SaeConfig):
    """A SAE from elsewhere: exactly one of `folder` and `hub`."""

    width: Width
    """Number of latents, as its files have it."""
    folder: Path | None = None
    """A folder on this machine with the SAE's files; they are copied, and the copy is what is read."""
    hub: HubFolder | None = None
    """The same on the hub."""

    @model_validator(mode="after")
    def _one_origin(self) -> PinnedConfig:
        if (self.folder is None) == (self.hub is None):
            found = "neither" if self.folder is None else "both"
            raise ValueError(f"found {found} of `folder` and `hub`; name exactly one")
        return self


class Origin(Protocol):
    """What of a `Config` says where a SAE comes from."""

    @property
    def folder(self) -> Path | None: ...

    @property
    def hub(self) -> HubFolder | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """Which files make a SAE of a format; fetches and pins them."""

    name: str
    files: tuple[tuple[str, ...], ...]
    """The sets of files that it may consist of; the first that is complete counts."""
    besides: tuple[str, ...] = ()
    """Copied where they are there."""
    around: tuple[str, ...] = ()
    """Read where they are there, relative to the SAE's folder, for what they say of it; not copied."""
    told: Callable[[Path, str], Mapping[str, Any]] = lambda _, __: {}
    """From the folder it comes from, and its name (on the hub: `id/path`), to metadata that its own files do not hold."""

    def names_in(self, folder: Path) -> tuple[str, ...]:
        """The files that make the SAE in a folder.

        Raises:
            SourceError: a file is missing, or is a link out of the folder.
        """
        for names in self.files:
            if all((folder / name).is_file() for name in names):
                found = (*names, *(name for name in self.besides if (folder / name).is_file()))
                _check_links(folder, found)
                return found
        missing = next(name for name in self.files[0] if not (folder / name).is_file())
        there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else "no such folder"
        wanted = ", or ".join(" and ".join(names) for names in self.files)
        raise SourceError(
            f"{folder}: no {missing} (found: {there}); a {self.name} folder holds {wanted}, and pickles are never read;"
            " name the folder that holds them"
        )

    def opened(self, config: Origin) -> Path:
        """The folder that the SAE's files are copied from; of the hub, its cache on this machine.

        Raises:
            SourceError: the hub does not give it, or a file is missing.
        """
        folder, hub = config.folder, config.hub
        if hub is not None:
            names = {name for names in self.files for name in names} | {*self.besides, *self.around}
            wanted = sorted({_joined(hub.path, name) for name in names} | {_CARD})
            folder = snapshot(hub.id, hub.revision, wanted, instead="a `folder` that holds the SAE's files, in place of `hub`") / hub.path
        if folder is None:
            raise SourceError("a SAE from elsewhere: found neither of `folder` and `hub`, exactly one is allowed; name it in params.yaml")
        self.names_in(folder)
        return folder

    def make(self, config: Origin, *_: Any, folder: Path, **__: Any) -> None:
        """Copy a SAE's files, and nothing else of its folder, and record where they came from. Others trained it.

        Raises:
            SourceError: as `opened`.
        """
        origin = self.opened(config)
        for name in self.names_in(origin):
            shutil.copyfile(origin / name, folder / name)
        write_source(folder, self._recorded(origin, config.hub))

    def origin_digest(self, config: Origin) -> str:
        """Digest of what is copied, so that others in its place are noticed: of the files, or of what pins them on the hub.

        Raises:
            SourceError: a file is missing.
        """
        hub = config.hub
        return digest_of([hub.id, hub.revision, hub.path]) if hub is not None else self._digest(self.opened(config))

    def is_copy(self, config: Origin, folder: Path) -> bool:
        """Whether a folder holds what would be copied now."""
        if config.hub is None:
            return self._digest(self.opened(config)) == self._digest(folder)
        recorded = read_source(folder) or {}
        return (recorded.get("source"), recorded.get("revision")) == (_name_of(config.hub), config.hub.revision)

    def provenance(
        self, folder: Path, *, architecture: str, k: int | None = None, metadata: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """What `Sae.provenance` holds, of a copy, or of a folder that was never copied; `metadata` is what its own files say."""
        recorded = read_source(folder) or self._recorded(folder, None)
        known = _joined_metadata(recorded["metadata"], metadata)
        return {**recorded, "architecture": architecture, "metadata": known} | ({} if k is None else {"k": k})

    def metadata(self, folder: Path, own: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a SAE's place and its own files say of it, before it is copied."""
        return _joined_metadata(self.told(folder, folder.resolve().name), own)

    def _recorded(self, origin: Path, hub: HubFolder | None) -> dict[str, Any]:
        """Where a SAE came from, and what its place says of it."""
        named = origin.resolve().name if hub is None else _name_of(hub)
        return {
            "format": self.name,
            "source": named,
            "revision": None if hub is None else hub.revision,
            "digest": self._digest(origin),
            "licence": licence_of(origin.parents[hub.path.count("/")] if hub is not None and hub.path else origin),
            "metadata": dict(self.told(origin, named)),
        }

    def _digest(self, folder: Path) -> str:
        return digest_of([file_digest(folder / name) for name in self.names_in(folder)])


def _check_links(folder: Path, names: Sequence[str]) -> None:
    """A folder from elsewhere may not make us copy and share another file of this machine; the hub's cache links to its own blobs.

    Raises:
        SourceError: a file is a link out of the folder.
    """
    inside = folder.resolve()
    cache = next((parent.parent for parent in inside.parents if parent.name == "snapshots"), inside)
    for name in names:
        if not (folder / name).resolve().is_relative_to(cache):
            raise SourceError(f"{folder / name}: is a link to a file outside its folder, which is not followed; put the file itself there")


def _joined_metadata(told: Mapping[str, Any], own: Mapping[str, Any] | None) -> dict[str, Any]:
    """Its own files know better than its place; what is not of its kind, as a number for a name, is as if it were not said."""
    joined = {**told, **{key: value for key, value in (own or {}).items() if value is not None}}
    return {key: value for key, value in joined.items() if isinstance(value, _KINDS.get(key, object)) and not _is_odd(key, value)}


def _is_odd(key: str, value: Any) -> bool:
    return isinstance(value, bool) and _KINDS.get(key) in (int, _NUMBER)


_NUMBER = (int, float)
_KINDS: dict[str, Any] = {
    **dict.fromkeys(("model_name", "dataset_path", "subject_digest", "hook_name", "hf_hook_name", "hook_side"), str),
    **dict.fromkeys(("hook_name_out", "hf_hook_name_out", "hook_side_out"), str),
    **dict.fromkeys(("l0", "fvu"), _NUMBER),
    "context_size": int,
    "prepend_bos": bool,
    "training_architecture_details": dict,
}
"""What metadata has to be where something is read from it."""


@contextmanager
def of_entry(name: str, config: SaeConfig, copy: Path | None = None) -> Iterator[None]:
    """A local folder that does not hold what its entry in params says is a fault of params, told with the user's folder and not its copy.

    Raises:
        ParamsError: in place of the error that the folder gives.
    """
    folder = getattr(config, "folder", None)
    try:
        yield
    except (ContractError, NumericsError, SourceError, UnsupportedError) as error:
        if folder is None:
            raise
        said = str(error) if copy is None else str(error).replace(str(copy), str(folder))
        raise ParamsError("params.yaml", [f"saes.{name}.folder: {said}"]) from error


def _name_of(hub: HubFolder) -> str:
    return "/".join(part for part in (hub.id, hub.path) if part)


def _joined(path: str, name: str) -> str:
    """`name` relative to a folder of the repository; `../x` is beside it."""
    kept: list[str] = []
    for part in _parts(path) + _parts(name):
        kept = kept[:-1] if part == ".." else [*kept, part]
    return "/".join(kept)


def _parts(path: str) -> list[str]:
    return path.split("/") if path else []


def write_source(folder: Path, recorded: Mapping[str, Any]) -> None:
    """Put `source.json` beside the copy."""
    (folder / SOURCE_FILE).write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_source(folder: Path) -> dict[str, Any] | None:
    """What stands in `source.json`; None where the folder is no copy."""
    path = folder / SOURCE_FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def licence_of(folder: Path) -> str | None:
    """What the card of a repository states at its head; None where it states none."""
    try:
        card = (folder / _CARD).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    head = re.match(r"---\s*\n(.*?)\n---", card, flags=re.DOTALL)
    stated = re.search(r"^license:[ \t]*([^\s#]+)", head[1], flags=re.MULTILINE) if head else None
    return stated[1].strip("'\"") if stated else None


def written_hookpoint(config: SaeConfig, where: Path, *, is_transcoder: bool) -> str:
    """What the SAE rebuilds: what it reads, or, of a transcoder, what params name.

    Raises:
        ContractError: a transcoder without `writes`, or a plain SAE with one.
    """
    if is_transcoder and config.writes is None:
        raise ContractError(
            f"{where}: is a transcoder, and params name no `writes`; allowed is a name in `subject.hookpoints`: add the one it was trained to rebuild"
        )
    if not is_transcoder and config.writes not in (None, config.hookpoint):
        raise ContractError(
            f"{where}: is no transcoder, but params say it writes {config.writes!r}; allowed is what it reads, {config.hookpoint!r}: leave `writes` out"
        )
    return config.writes or config.hookpoint
