"""Whether results may leave the project: all there, each as its manifest says, and made from the parameters that stand now.

Always true: everything that is wrong is told at once, with what to rerun.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from latentry.errors import ContractError
from latentry.exchange.locked import Locks
from latentry.exchange.locked_params import lock_changes
from latentry.exchange.provenance import manifest_at
from latentry.exchange.verify import verify
from latentry.params import Params
from latentry.store import MANIFEST

COMPARISON = "data/comparison"


def folders_of(params: Params, saes: Sequence[str]) -> list[str]:
    """The folders that hold the results of some SAEs, by their places in the project."""
    found = []
    for sae in saes:
        found += [f"data/{room}/{sae}" for room in ("saes", "examples", "explanations")]
        found += [f"data/scores/{sae}/{scorer}" for scorer in params.scorers]
    return found


def require_complete(here: Path, folders: Sequence[str]) -> None:
    """See that folders are there and are what their manifests, `dvc.lock` and the folders made from them say.

    Raises:
        ContractError: every folder that is missing, or every file and folder that is not as it should be.
    """
    missing = [folder for folder in folders if not (here / folder / MANIFEST).is_file()]
    if missing:
        rerun = " ".join(_cell(folder) for folder in missing)
        raise ContractError(f"{', '.join(missing)}: no complete results there; rerun `dvc repro {rerun}`, or `dvc pull` them")
    found = verify([here / folder for folder in folders])
    if found.faults:
        raise ContractError("\n".join([*found.faults, "nothing was exported; run `dvc repro`, and `latentry verify` for all folders"]))


def require_report(here: Path) -> None:
    """See that the report is there, and is the one that `dvc.lock` names where it names one.

    Raises:
        ContractError: it is not.
    """
    report = here / "report"
    if not (report / "index.html").is_file():
        raise ContractError(f"{report}: no report there; rerun `dvc repro compare`, or `dvc pull compare`")
    if Locks().digest_of(report) and (faults := verify([report]).faults):
        raise ContractError("\n".join([*faults, "nothing was exported; run `dvc repro compare`"]))


def require_current(here: Path, params: Params, folders: Sequence[str]) -> None:
    """See that folders were made from the parameters as they stand, by their manifests and by `dvc.lock`.

    Raises:
        ContractError: each setting that was another one then, or there is no `dvc.lock`.
    """
    whole = params.model_dump(mode="json", serialize_as_any=True)
    said = [f"{folder}: {change}" for folder in folders for change in _changes(manifest_at(here / folder).params, whole)]
    said += lock_changes(here, [_cell(folder) for folder in folders])
    if said:
        raise ContractError(
            "\n".join([*said, "nothing was exported: params.yaml is not what these results were made from; run `dvc repro`"])
        )


def _changes(recorded: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[str]:
    for path, then in recorded.items():
        now: Any = whole
        for key in path.split("."):
            now = now.get(key) if isinstance(now, Mapping) else None
        yield from _difference(path, then, now)


def _difference(path: str, then: Any, now: Any) -> Iterator[str]:
    """What a manifest recorded and is another one now; a setting that it does not have is one that did not exist."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key, value in then.items():
            yield from _difference(f"{path}.{key}", value, now.get(key))
    elif then != now:
        yield f"made with {path} = {then!r}, which is {now!r} in params.yaml"


def _cell(folder: str) -> str:
    """The stage's cell that makes a folder, as `dvc repro` knows it."""
    _, room, *names = folder.split("/")
    stages = {"saes": "sae", "explanations": "explain", "scores": "score", "comparison": "compare"}
    return f"{stages.get(room, room)}@{'-'.join(names)}" if names else stages.get(room, room)
