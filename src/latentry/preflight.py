"""What can be known to be wrong before any work, beyond what params.yaml says of itself: files, keys, hookpoints, devices."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentry.contracts import IMPORT
from latentry.dvc_lock import parsed_lock
from latentry.errors import ContractError, LatentryError, ParamsError
from latentry.explainers.base import SaeFacts
from latentry.params import Params
from latentry.pinned_files import check_pinned
from latentry.registry import ExplainerConfig, variant
from latentry.runtime import device_of
from latentry.sae_folders import Told, sae_faults, told_once

MARKERS = ("data/jacobians/.keep", "data/edges/.keep")


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
        *sae_faults(params, models, not_checked),
        *_client_faults(params, models, not_checked),
        *_file_faults(params),
        *_hookpoint_faults(params, models, not_checked),
        *_held_out_faults(params),
        *_device_faults(params),
    ]
    return Found(faults=tuple(faults), not_checked=tuple(not_checked))


def unwritten(params: Params, pipeline: Path = Path("dvc.yaml")) -> Iterator[str]:
    """Sections that may be left out by their defaults, but that a stage declares: DVC stops at a stage whose params are not written."""
    text = pipeline.read_text(encoding="utf-8") if pipeline.is_file() else ""
    declared = {name.strip(" \"'") for names in re.findall(r"^ *params: \[(.*)\]$", text, re.MULTILINE) for name in names.split(",")}
    for name, field in Params.model_fields.items():
        if name in declared and name not in params.model_fields_set:
            default = field.get_default(call_default_factory=True)
            wanted = json.dumps(default) if isinstance(default, int | float) else "{}"
            yield f"{name}: is missing; a stage declares it, and DVC looks for it: write `{name}: {wanted}` for the defaults"


def mend_lock(root: Path) -> Iterator[str]:
    """Set aside a dvc.lock that a kill cut short while DVC wrote it: DVC itself would refuse to go on.

    Finished stages are in DVC's cache, so nothing is run again for it.
    """
    lock = root / "dvc.lock"
    if lock.is_file() and parsed_lock(lock) is None:
        aside = root / ".cache" / "dvc.lock.broken"
        aside.parent.mkdir(exist_ok=True)
        lock.replace(aside)
        yield f"{lock} was cut short, as by a kill; set aside as {aside}: finished stages come back from DVC's cache"


def make_markers(root: Path) -> None:
    """Put back the folders that `compare` reads also where there is no Jacobian: git keeps them by a file, which `rm -rf data` deletes."""
    for name in MARKERS:
        marker = root / name
        if not marker.exists():
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()


def _corpus_faults(params: Params) -> Iterator[str]:
    try:
        documents = variant("corpora", params.corpus.kind).build(params.corpus).documents()
        if not any(document.text.strip() for document in documents):
            yield "corpus: is empty; no document of it has any text"
    except LatentryError as error:
        yield str(error)


def _client_faults(params: Params, models: Path, not_checked: list[str]) -> Iterator[str]:
    for name, config in params.clients.items():
        try:
            variant("clients", config.kind).build(config, name=name, run=params.run_of(name), models=models, device="cpu")
        except ContractError:
            not_checked.append(f"clients.{name}: its model is made by `dvc repro models`")
        except ParamsError as error:
            yield from (f"{error.source}: {fault}" for fault in error.faults)


def _file_faults(params: Params) -> Iterator[str]:
    """Files of explanations or scores that are not there, are not those stated, or do not fit a SAE."""
    for name, config in params.explainers.items():
        if config.kind == "fixed":
            yield from _fixed_faults(params, name, config)
    for name, imported in params.comparison.imported.items():
        try:
            check_pinned(Path(imported.path), imported.sha256, f"comparison.imported.{name}", "the scores of an import")
            yield from _scores_faults(Path(imported.path), f"comparison.imported.{name}.path")
        except ParamsError as error:
            yield from (f"{error.source}: {fault}" for fault in error.faults)


def _scores_faults(path: Path, where: str) -> Iterator[str]:
    """Whether a file has the columns of an import's scores; rows are not read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted, again = IMPORT.tables["scores.parquet"], "name the scores.parquet that `latentry import` wrote, and its digest"
    try:
        found = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        yield f"{where}: {path} cannot be read as Parquet ({' '.join(str(error).split())}); {again}"
        return
    if found.names != wanted.names:
        yield f"{where}: {path} has the columns {', '.join(found.names)}, wanted are {', '.join(wanted.names)}; {again}"
    elif other := [
        f"{field.name} is {field.type}, not {wanted.field(field.name).type}"
        for field in found
        if field.type != wanted.field(field.name).type
    ]:
        yield f"{where}: {path}: {'; '.join(other)}; {again}"


def _fixed_faults(params: Params, name: str, config: ExplainerConfig) -> Iterator[str]:
    built, faults = [], list[Told]()
    for sae, settings in params.saes.items():
        facts = SaeFacts(name=sae, width=settings.n_latents, promoted=dict)
        try:
            built.append(variant("explainers", "fixed").build(config, name, params.seed, None, facts))
        except ParamsError as error:
            faults += [(sae, f"{error.source}: {fault}".replace(f"SAE {sae!r}", "{sae}")) for fault in error.faults]
    yield from told_once(faults)
    if len(built) == len(params.saes) and not any(one.texts for one in built):
        yield f"explainers.{name}.path: no row is of a SAE under `saes` ({', '.join(params.saes)}); name one of these in the column `sae`"


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
                f" understood as an MLP; {_mlps_offered(module, [name for name, one in modules.items() if projections_of(one)])}"
            )


def _mlps_offered(module: str, mlps: list[str]) -> str:
    """Which MLPs of the subject to name: those of the same layer first."""
    if not mlps:
        return "the subject has no module that is, so leave the entry out or take another subject"
    layer = re.match(r".*?\.\d+(?=\.|$)", module)
    near = sorted(mlps, key=lambda name: not (layer and f"{name}.".startswith(f"{layer[0]}.")))
    return f"name the output of one, such as {', '.join(f'`{name}`' for name in near[:3])}"


def _held_out_faults(params: Params) -> Iterator[str]:
    """Scorers that need more held-out windows than are kept: what they lack would be rows of status undersampled."""
    kept = params.examples.held_out.n_activating
    for name, scorer in params.scorers.items():
        if kept < scorer.least_activating:
            yield f"examples.held_out.n_activating: is {kept}; scorer {name!r} ({scorer.kind}) needs at least {scorer.least_activating}"


def _device_faults(params: Params) -> Iterator[str]:
    try:
        device_of(params.run.device)
    except ParamsError as error:
        yield from error.faults
