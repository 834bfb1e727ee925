"""Where labels come from: subject, tokens, SAE, prompts, judges, parameters and commit, as the chain of manifests tells it.

What is not in this project (models and activations are not shared) is named by the digest of its manifest alone. Always true: no path
of this machine, no address of an endpoint and nothing under `run` is among it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from latentry.commits import commit_of
from latentry.errors import ContractError
from latentry.params import Params
from latentry.store import MANIFEST, Manifest, digest_of, file_digest

_BESIDE_WEIGHTS = ("evaluation.json", "loss.csv", "source.json")
"""Files of a SAE's folder that say something of it."""
_PLACES = ("path", "folder")
_ROLES = ("client", "judge")
"""Under which explainers and scorers name those that they ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Every folder that some results rest on, by its place in the project."""

    manifests: Mapping[str, Manifest]
    """Of those that are here."""
    digests: Mapping[str, str]
    """Of every folder's manifest, those that are not here too: what a folder is named by."""

    def described(self) -> dict[str, Any]:
        """As JSON: of each folder its digest and, where it is here, its cell, its key and what it was made from."""
        found: dict[str, Any] = {}
        for folder, digest in sorted(self.digests.items()):
            found[folder] = {"manifest": digest}
            if manifest := self.manifests.get(folder):
                inputs = {_placed(folder, name): stated for name, stated in sorted(manifest.inputs.items())}
                found[folder] |= {"cell": manifest.cell, "key": manifest.key, "inputs": inputs}
        return found

    def files(self, folder: str) -> Mapping[str, str]:
        """sha256 of a folder's files; none where it is not here."""
        return self.manifests[folder].files if folder in self.manifests else {}


def chain_of(here: Path, folders: Sequence[str]) -> Chain:
    """The chain behind some folders (`data/scores/S/C`), followed through their inputs.

    Raises:
        ContractError: a manifest is unreadable.
    """
    manifests: dict[str, Manifest] = {}
    digests: dict[str, str] = {}
    waiting = list(folders)
    while waiting:
        folder = waiting.pop()
        path = here / folder / MANIFEST
        if folder in manifests or not path.is_file():
            continue
        manifests[folder], digests[folder] = manifest_at(path.parent), file_digest(path)
        for name, stated in manifests[folder].inputs.items():
            digests.setdefault(_placed(folder, name), stated)
            waiting.append(_placed(folder, name))
    return Chain(manifests=manifests, digests=digests)


def manifest_at(folder: Path) -> Manifest:
    """What a folder says of itself, whatever its contract.

    Raises:
        ContractError: it has no manifest that can be read.
    """
    path = folder / MANIFEST
    try:
        return Manifest(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ContractError(f"{path}: is no manifest of latentry's ({error}); delete the folder and run `dvc repro` again") from error


def made_at(told: Mapping[str, Any]) -> str:
    """The commit of a study by its provenance, and whether what was run is in it."""
    return f"commit {told.get('commit')}{', with changes that are not in it' if told.get('dirty') == 'true' else ''}"


def provenance(here: Path, params: Params, chain: Chain, saes: Sequence[str]) -> dict[str, Any]:
    """All that the labels of some SAEs follow from, as JSON; `models` are those that explainers and scorers ask."""
    return {
        **commit_of(here),
        "params_digest": digest_of(params.model_dump(mode="json", serialize_as_any=True, exclude={"run"})),
        "seed": params.seed,
        "subject": {**model_of(params, chain, params.subject.model), "dtype": params.subject.dtype},
        "tokens": _tokens(params, chain),
        "saes": {name: _sae(here, params, chain, name) for name in saes},
        "explainers": {name: _plain(entry) for name, entry in params.explainers.items()},
        "scorers": {name: _plain(entry) for name, entry in params.scorers.items()},
        "clients": {name: _plain(entry) for name, entry in params.clients.items()},
        "models": {name: model_of(params, chain, name) for name in params.models},
        "folders": chain.described(),
    }


def model_of(params: Params, chain: Chain, name: str) -> dict[str, Any]:
    """One model of `models`: where it may be had, the digest that is asked of its weights, and of its files where they are here."""
    settings, folder = params.models[name], f"data/models/{name}"
    files = chain.files(folder)
    return {
        "name": name,
        "sources": [_without_places(source) for source in settings.sources],
        "sha256": settings.sha256,
        "files_digest": digest_of(files) if files else None,
        "manifest": chain.digests.get(folder),
    }


def sae_digest(chain: Chain, name: str) -> str | None:
    """sha256 of a SAE's one file of weights; of several, the digest of all. None where the SAE is not here."""
    weights = _weights(chain.files(f"data/saes/{name}"))
    return next(iter(weights.values())) if len(weights) == 1 else (digest_of(weights) if weights else None)


def served(chain: Chain, folder: str) -> Mapping[str, Sequence[str]]:
    """The models that answered while a folder was made, by client, as they named themselves (in process: by their files' digest)."""
    manifest = chain.manifests.get(folder)
    return manifest.counts.get("served", {}) if manifest else {}


def answered_by(chain: Chain, folder: str, entry: Any) -> list[str]:
    """Of the models that answered while a folder was made, those of one explainer or scorer."""
    clients = (getattr(entry, role, None) for role in _ROLES)
    return [model for client in clients if client for model in served(chain, folder).get(client, ())]


def asked_by(params: Params, entry: Any) -> dict[str, str]:
    """The models that an explainer or scorer asks, by its role for them: of an endpoint the name it serves, else the name in `models`."""
    found = {}
    for role in _ROLES:
        if name := getattr(entry, role, None):
            found[role] = str(getattr(params.clients[name], "model", name))
    own = getattr(entry, "model", None)
    return found | ({"model": str(own)} if own in params.models else {})


def _tokens(params: Params, chain: Chain) -> dict[str, Any]:
    manifest = chain.manifests.get("data/tokens")
    files = manifest.files if manifest else {}
    tokenizer = {name: digest for name, digest in files.items() if name.startswith("tokenizer/")}
    return {
        "corpus": _without_places(params.corpus.model_dump(mode="json")),
        "corpus_digest": files.get("documents.parquet"),
        "tokenizer_digest": digest_of(tokenizer) if tokenizer else None,
        "settings": params.tokens.model_dump(mode="json"),
        "counts": dict(manifest.counts) if manifest else None,
        "manifest": chain.digests.get("data/tokens"),
    }


def _sae(here: Path, params: Params, chain: Chain, name: str) -> dict[str, Any]:
    config, folder = params.saes[name], f"data/saes/{name}"
    point = params.subject.hookpoints[config.hookpoint].model_dump(mode="json")
    source = here / folder / "source.json"
    return {
        **_plain(config),
        "place": point,
        "source": json.loads(source.read_text(encoding="utf-8")) if source.is_file() else None,
        "weights": _weights(chain.files(folder)),
        "digest": sae_digest(chain, name),
        "manifest": chain.digests.get(folder),
    }


def _weights(files: Mapping[str, str]) -> dict[str, str]:
    """The files of a SAE that hold its numbers."""
    said = {name: digest for name, digest in files.items() if name not in _BESIDE_WEIGHTS}
    weights = {name: digest for name, digest in said.items() if name.endswith((".safetensors", ".npz", ".pt"))}
    return weights or said


def _plain(entry: Any) -> dict[str, Any]:
    return _without_places(entry.model_dump(mode="json"))


def _without_places(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in which a path of this machine is its last name only."""
    return {key: _last_name(value) if key in _PLACES and isinstance(value, str) else value for key, value in settings.items()}


def _last_name(path: str) -> str:
    is_of_machine = path.startswith(("/", "~")) or PureWindowsPath(path).is_absolute() or ".." in Path(path).parts
    return PureWindowsPath(path).name if is_of_machine else path


def _placed(folder: str, name: str) -> str:
    """An input's place in the project, also where a manifest names it from the root of a disk."""
    parts, first = Path(name).parts, folder.split("/")[0]
    if not Path(name).is_absolute() or first not in parts:
        return Path(name).as_posix()
    return Path(*parts[len(parts) - 1 - parts[::-1].index(first) :]).as_posix()
