"""What tells one result from another, and where it came from: dvc.lock, the manifest chain, the commit.

An identity is made of what DVC locked for the stages of a cell (commands, digests of inputs, parameters, outputs);
where DVC has locked nothing, of the manifests. It never depends on the machine or the time.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from latentry.commits import commit_of, uncommitted
from latentry.dvc_lock import parsed_lock
from latentry.errors import ContractError
from latentry.store import digest_of, manifest_digest

_SHOWN = 5
"""Files named of those that are not committed."""

STAGES = ("sae", "latents", "examples", "explain")


def read_lock(here: Path) -> dict[str, Any]:
    """The whole of `dvc.lock`; empty where there is none.

    Raises:
        ContractError: it is cut short.
    """
    path = here / "dvc.lock"
    if not path.is_file():
        return {}
    lock = parsed_lock(path)
    if lock is None:
        raise ContractError(f"{path}: is cut short or damaged; run `latentry check`, which sets it aside, and `dvc repro`")
    return lock


def lock_without_track(lock: Mapping[str, Any]) -> str:
    """`dvc.lock` as YAML without the entry of the stage that is writing runs: it cannot be final yet."""
    stages = {name: entry for name, entry in lock.get("stages", {}).items() if name.split("@")[0] != "track"}
    return yaml.safe_dump({**lock, "stages": stages}, sort_keys=False)


def cell_stages(sae: str, scorers: Iterable[str]) -> list[str]:
    """DVC's names of all the stages that make one SAE's results."""
    return [*(f"{stage}@{sae}" for stage in STAGES), *(f"score@{sae}-{scorer}" for scorer in scorers)]


def cell_folders(data: Path, sae: str, scorers: Iterable[str]) -> list[Path]:
    """The folders that those stages write."""
    folders = [data / kind / sae for kind in ("saes", "latents", "examples", "explanations")]
    return [*folders, *(data / "scores" / sae / scorer for scorer in scorers)]


def identity_of(lock: Mapping[str, Any], stages: Iterable[str], data: Path, folders: Iterable[Path], content: Any) -> str:
    """Digest of the locked entries of all stages, or of the folders' manifests when one is not locked, and of the numbers shown.

    `latents` and `models` are not shared by `dvc push`, so a folder may be absent; its manifest still stands in the
    chain of those that read it.
    """
    locked = lock.get("stages", {})
    wanted = list(stages)
    if wanted and all(name in locked for name in wanted):
        return digest_of([{name: locked[name] for name in wanted}, content])
    return digest_of([{folder.relative_to(data).as_posix(): manifest_digest(folder) for folder in folders if folder.is_dir()}, content])


def out_digests(lock: Mapping[str, Any], stages: Iterable[str]) -> dict[str, str]:
    """DVC's digest of every output of these stages, by path."""
    locked = lock.get("stages", {})
    outs = [out for name in stages for out in locked.get(name, {}).get("outs", [])]
    return {out["path"]: out["md5"] for out in outs if "md5" in out}


def source_tags(here: Path, lock: Mapping[str, Any]) -> dict[str, str]:
    """Commit, whether the tree and what the results were made from differ from it, and DVC's experiment: informative, never part of an
    identity.
    """
    commit, experiment, read = commit_of(here), os.environ.get("DVC_EXP_NAME"), _read_from_git(lock)
    beyond = [path for path in read if path.startswith(("/", ".."))]
    changed = [*beyond, *uncommitted(here, [path for path in read if path not in beyond])]
    said = f"not committed: {', '.join(changed[:_SHOWN])}{', ...' if len(changed) > _SHOWN else ''}" if changed else "committed"
    tags = {**commit, "code": said if commit["commit"] != "unknown" else "unknown"}
    return {**tags, "dvc.experiment": experiment} if experiment else tags


def _read_from_git(lock: Mapping[str, Any]) -> list[str]:
    """What the locked stages read and no stage writes: code and texts, which a commit has to hold for a result to be made again."""
    stages = lock.get("stages", {}).values()
    written = [PurePosixPath(out["path"]) for stage in stages for out in stage.get("outs", ())]
    read = {PurePosixPath(dep["path"]) for stage in stages for dep in stage.get("deps", ())}
    return sorted(str(path) for path in read if not any(path in (out, *out.parents) or out in path.parents for out in written))
