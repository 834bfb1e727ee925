"""sae-lens's registry of pretrained SAEs: from a release and an id to a folder in the SAELens layout, converted by sae-lens itself.

The registry pins nothing and sae-lens downloads what is newest; here the files are fetched at a commit, and sae-lens runs in a process of
its own that sees these files and no network. What it reads wrongly, or cannot pin, is refused with the kind to use instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from latentry.errors import SourceError, UnsupportedError
from latentry.hub import snapshot
from latentry.registry import nearest
from latentry.saes.pinned import licence_of, read_source, write_source
from latentry.saes.sae_lens_layout import CONFIG_FILE, WEIGHTS_FILE
from latentry.store import digest_of, file_digest

OWN_KINDS = {"sparsify": "sparsify", "dictionary_learning_1": "dictionary_learning", "gemma_3": "gemma_scope"}
"""sae-lens's converters that latentry does without, and the kind that reads those files."""


class Pretrained(BaseModel):
    """An entry of sae-lens's registry, at one commit of the repository that it names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    release: str
    """Such as `gpt2-small-res-jb`."""
    sae_id: str
    """Such as `blocks.8.hook_resid_pre`."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    """The commit, in full, of the repository that the release names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """Where the registry says that a SAE is."""

    repository: str
    path: str
    converter: str
    l0: float | None


def fetch(pretrained: Pretrained, folder: Path) -> None:
    """Fill the folder with `cfg.json`, `sae_weights.safetensors` and `source.json`.

    Raises:
        SourceError: there is no such entry, the hub does not give it, or sae-lens cannot read it.
        UnsupportedError: files that another kind reads.
    """
    entry = _entry(pretrained)
    wanted = ["*"] if entry.path in ("", ".") else [entry.path, f"{entry.path}/*", "README.md"]
    held = snapshot(
        entry.repository, pretrained.revision, wanted, instead="a `folder` with the SAE as sae-lens saves it, in place of `pretrained`"
    )
    with TemporaryDirectory() as cache:
        _hold(Path(cache), entry.repository, pretrained.revision, held)
        _convert(pretrained, entry, Path(cache), folder)
    recorded = {"release": pretrained.release, "sae_id": pretrained.sae_id} | ({} if entry.l0 is None else {"l0": entry.l0})
    write_source(
        folder,
        {
            "format": "sae_lens",
            "source": f"{entry.repository}/{entry.path}",
            "revision": pretrained.revision,
            "digest": digest_of([file_digest(folder / name) for name in (CONFIG_FILE, WEIGHTS_FILE)]),
            "licence": licence_of(held),
            "metadata": recorded,
        },
    )


def origin_digest(pretrained: Pretrained) -> str:
    """Of what pins the entry."""
    return digest_of([pretrained.release, pretrained.sae_id, pretrained.revision])


def is_copy(pretrained: Pretrained, folder: Path) -> bool:
    """Whether a folder holds what would be fetched now."""
    recorded: dict[str, Any] = read_source(folder) or {"metadata": {}}
    held = recorded["metadata"].get("release"), recorded["metadata"].get("sae_id"), recorded.get("revision")
    return held == (pretrained.release, pretrained.sae_id, pretrained.revision)


def _entry(pretrained: Pretrained) -> _Entry:
    """What the registry of the sae-lens that is installed says; it is imported here and nowhere else."""
    from sae_lens.loading.pretrained_saes_directory import get_pretrained_saes_directory

    known, named = get_pretrained_saes_directory(), f"sae-lens's registry: release {pretrained.release!r}"
    release = known.get(pretrained.release)
    if release is None:
        raise SourceError(f"{named} is not there{nearest(pretrained.release, known)}; correct `release`, or name a `hub` or `folder`")
    if pretrained.sae_id not in release.saes_map:
        raise SourceError(f"{named} has no sae_id {pretrained.sae_id!r}{nearest(pretrained.sae_id, release.saes_map)}; correct `sae_id`")
    converter, path = release.conversion_func or "sae_lens", release.saes_map[pretrained.sae_id]
    if converter in OWN_KINDS:
        raise UnsupportedError(
            f"{named}, {pretrained.sae_id!r}: sae-lens's converter {converter!r} is not used; these files are read as they are: write"
            f" `kind: {OWN_KINDS[converter]}` with `hub: {{id: {release.repo_id}, path: {path}, revision: {pretrained.revision}}}`"
        )
    return _Entry(repository=release.repo_id, path=path, converter=converter, l0=release.expected_l0.get(pretrained.sae_id) or None)


def _hold(cache: Path, repository: str, revision: str, held: Path) -> None:
    """A cache of the hub in which the repository's newest commit is that one, and nothing else is."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(revision)
    (folder / "snapshots").mkdir()
    (folder / "snapshots" / revision).symlink_to(held, target_is_directory=True)


def _convert(pretrained: Pretrained, entry: _Entry, cache: Path, folder: Path) -> None:
    """Let sae-lens read what is in that cache, and save it; a process of its own, for the hub's client reads its surroundings at import."""
    surroundings = os.environ | {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-m", __name__, pretrained.release, pretrained.sae_id, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=surroundings, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:300]
        raise SourceError(
            f"hub {entry.repository}@{pretrained.revision}, {entry.path}: sae-lens's converter {entry.converter!r} failed on it ({said});"
            " it reads the files of that commit only, without a network: save the SAE with sae-lens yourself, and name its `folder`"
        )


def _save(release: str, sae_id: str, folder: str) -> None:
    from sae_lens import SAE

    sae = SAE.from_pretrained(release, sae_id, device="cpu")
    sae.save_model(folder)


if __name__ == "__main__":
    _save(*sys.argv[1:])
