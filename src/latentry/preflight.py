"""What can be known to be wrong before any work, beyond what params.yaml says of itself: files, keys, hookpoints, devices."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentry.errors import ContractError, LatentryError, ParamsError
from latentry.explainers.base import SaeFacts
from latentry.params import Params
from latentry.registry import SaeConfig, variant
from latentry.runtime import device_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The outcome of a check."""

    faults: tuple[str, ...]
    not_checked: tuple[str, ...]
    """What only a later stage can know, and why."""


def check(params: Params, models: Path = Path("data/models")) -> Found:
    """Look at everything that params name."""
    not_checked: list[str] = []
    faults = [
        *_corpus_faults(params),
        *_sae_faults(params, not_checked),
        *_client_faults(params, models, not_checked),
        *_file_faults(params),
        *_hookpoint_faults(params, models, not_checked),
        *_jacobian_faults(params),
        *_device_faults(params),
    ]
    return Found(faults=tuple(faults), not_checked=tuple(not_checked))


def mend_lock(root: Path) -> Iterator[str]:
    """Set aside a dvc.lock that a kill cut short while DVC wrote it: DVC itself would refuse to go on.

    Finished stages are in DVC's cache, so nothing is run again for it.
    """
    lock = root / "dvc.lock"
    if lock.is_file() and not re.match(r"schema: '?2", lock.read_text(encoding="utf-8", errors="replace")):
        aside = root / ".cache" / "dvc.lock.broken"
        aside.parent.mkdir(exist_ok=True)
        lock.replace(aside)
        yield f"{lock} was cut short, as by a kill; set aside as {aside}: finished stages come back from DVC's cache"


def _corpus_faults(params: Params) -> Iterator[str]:
    try:
        documents = variant("corpora", params.corpus.kind).build(params.corpus).documents()
        if not any(document.text.strip() for document in documents):
            yield "corpus: is empty; no document of it has any text"
    except LatentryError as error:
        yield str(error)


def _sae_faults(params: Params, not_checked: list[str]) -> Iterator[str]:
    for name, sae in params.saes.items():
        folder, distant = getattr(sae, "folder", None), getattr(sae, "hub", None) or getattr(sae, "pretrained", None)
        if distant is not None:
            not_checked.append(f"saes.{name}: its files are fetched from the hub by `dvc repro sae@{name}`, and looked at then")
        elif folder is not None and not Path(folder).is_dir():
            yield f"saes.{name}.folder: {folder} is not there; name a folder that holds the SAE's files"
        elif folder is not None:
            yield from _folder_faults(params, name, sae, not_checked)


def _folder_faults(params: Params, name: str, sae: SaeConfig, not_checked: list[str]) -> Iterator[str]:
    """A SAE's folder that cannot be used, does not fit the tokens, or is no longer what was copied from it."""
    room, copied = variant("saes", sae.kind), Path("data/saes", name)
    try:
        yield from _context_faults(params, name, room.check_folder(sae), not_checked)
        if (copied / "manifest.json").is_file() and not room.is_copy(sae, copied):
            yield f"saes.{name}.folder: changed since it was copied to {copied}, which is what is read; `dvc repro --force sae@{name}` copies it again"
    except LatentryError as error:
        yield f"saes.{name}.folder: {error}"


def _context_faults(params: Params, name: str, recorded: Mapping[str, Any], not_checked: list[str]) -> Iterator[str]:
    """A SAE applied to other contexts than it was trained on: with or without BOS, or longer ones."""
    begins, context = recorded.get("prepend_bos"), recorded.get("context_size")
    if begins is None or params.tokens.prepend_bos is None:
        not_checked.append(
            f"tokens.prepend_bos: whether SAE {name!r} is applied to contexts such as it was trained on is known at its gate"
        )
    elif begins != params.tokens.prepend_bos:
        yield (
            f"tokens.prepend_bos: is {json.dumps(params.tokens.prepend_bos)}; SAE {name!r} was trained on contexts"
            f" {'with' if begins else 'without'} BOS: set it to {json.dumps(begins)}"
        )
    if context is not None and context < params.tokens.context:
        yield f"tokens.context: is {params.tokens.context}; SAE {name!r} was trained on contexts of {context}: lower it to that"


def _client_faults(params: Params, models: Path, not_checked: list[str]) -> Iterator[str]:
    for name, config in params.clients.items():
        try:
            variant("clients", config.kind).build(config, name=name, run=params.run_of(name), models=models, device="cpu")
        except ContractError:
            not_checked.append(f"clients.{name}: its model is made by `dvc repro models`")
        except ParamsError as error:
            yield from (f"{error.source}: {fault}" for fault in error.faults)


def _file_faults(params: Params) -> Iterator[str]:
    """Files of explanations that are not there, are not those stated, or do not fit a SAE."""
    for name, config in params.explainers.items():
        if config.kind == "fixed":
            for sae, settings in params.saes.items():
                facts = SaeFacts(name=sae, width=settings.n_latents, promoted=dict)
                try:
                    variant("explainers", "fixed").build(config, name, params.seed, None, facts)
                except ParamsError as error:
                    yield from (f"{error.source}: {fault}" for fault in error.faults)


def _hookpoint_faults(params: Params, models: Path, not_checked: list[str]) -> Iterator[str]:
    folder = models / params.subject.model
    if not (folder / "manifest.json").is_file():
        not_checked.append(f"subject.hookpoints: the modules of {params.subject.model!r} are known after `dvc repro models`")
        return
    from latentry.subjects.causal_lm import check_hookpoints, hookpoints_of, modules_without_weights

    modules = modules_without_weights(folder)
    try:
        check_hookpoints(hookpoints_of(params.subject.hookpoints), list(modules))
    except LatentryError as error:
        yield from re.split(r"; (?=subject\.)", str(error))
    yield from _mlp_faults(params, modules)


def _mlp_faults(params: Params, modules: Mapping[str, Any]) -> Iterator[str]:
    """Modules that a Jacobian is wanted of, or a pair is trained on, and that are no MLPs that are understood."""
    from latentry.subjects.mlp import projections_of

    asked = {f"jacobians.{name}.output": params.saes[one.output].hookpoint for name, one in params.jacobians.items()}
    asked |= {f"saes.{name}": sae.pair[1] for name, sae in params.saes.items() if sae.pair}
    for path, point in asked.items():
        module = params.subject.hookpoints[point].module
        if module in modules and projections_of(modules[module]) is None:
            made_of = ", ".join(name for name, _ in modules[module].named_children()) or "nothing"
            yield (
                f"{path}: hookpoint {point!r} is the output of {module}, a {type(modules[module]).__name__} of {made_of}, which is not"
                " understood as an MLP; name the output of one, such as `model.layers.3.mlp`"
            )


def _jacobian_faults(params: Params) -> Iterator[str]:
    """DVC makes cells of the section, and stops without a word of it where it is not there."""
    if "jacobians" not in params.model_fields_set:
        yield "jacobians: is missing; dvc.yaml makes cells of its entries: write `jacobians: {}` where there are none"


def _device_faults(params: Params) -> Iterator[str]:
    try:
        device_of(params.run.device)
    except ParamsError as error:
        yield from error.faults
