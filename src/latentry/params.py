"""params.yaml as one typed tree, checked whole: every fault at once, each with its path, before any work.

Variants (scorers, explainers, SAEs, clients, contrasts, corpora, sources) are reached through the registry only.
"""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, Field, ValidationError

from latentry.errors import ParamsError
from latentry.models.obtain import ModelSettings
from latentry.registry import ExplainerConfig, SaeConfig, ScorerConfig, VariantConfig, kinds, nearest, variant
from latentry.sections import (
    ActivationSettings,
    ClientRun,
    EvaluationSettings,
    ExampleSettings,
    GateSettings,
    LatentSettings,
    Name,
    Run,
    Section,
    Share,
    SubjectSettings,
    TokenSettings,
    TrackingSettings,
)


class Params(Section):
    """The whole of params.yaml."""

    seed: Annotated[int, Field(ge=0)]
    run: Run = Run()
    models: Annotated[dict[Name, ModelSettings], Field(min_length=1)]
    corpus: VariantConfig
    tokens: TokenSettings
    subject: SubjectSettings
    activations: ActivationSettings = ActivationSettings()
    saes: Annotated[dict[Name, SaeConfig], Field(min_length=1)]
    evaluation: EvaluationSettings = EvaluationSettings()
    gate: GateSettings = GateSettings()
    latents: LatentSettings = LatentSettings()
    examples: ExampleSettings
    clients: dict[Name, VariantConfig] = Field(default_factory=dict)
    explainers: Annotated[dict[Name, ExplainerConfig], Field(min_length=1)]
    scorers: Annotated[dict[Name, ScorerConfig], Field(min_length=1)]
    tracking: TrackingSettings
    max_failed_fraction: Share = 0.2
    """Largest share of rows of one cell that may fail by the world's fault before the stage fails."""

    def slice(self, *paths: str) -> dict[str, Any]:
        """The settings under dotted paths, with defaults filled in, as plain values: what a manifest records."""
        whole = self.model_dump(mode="json", serialize_as_any=True)
        return {path: _under(whole, path) for path in paths}

    def named(self, section: str, name: str) -> Any:
        """One entry of a section of names.

        Raises:
            ParamsError: there is none of that name.
        """
        entries = getattr(self, section)
        if name not in entries:
            raise ParamsError(section, [f"there is no {name!r}{nearest(name, entries)}"])
        return entries[name]

    def local_models(self, *entries: VariantConfig) -> list[str]:
        """The models under `models` that explainers or scorers run in this process: their own, and those of their clients."""
        asked = [self.clients[client] for entry in entries if (client := getattr(entry, "client", None))]
        named = {getattr(one, "model", None) for one in (*entries, *asked) if one.kind != "openai_compatible"}
        return sorted(name for name in named if name in self.models)

    def sources(self, name: str) -> list[VariantConfig]:
        """The sources of one model, in order."""
        return [variant("models", source["kind"]).Config(**source) for source in self.models[name].sources]

    def run_of(self, client: str) -> ClientRun:
        """How a client is driven."""
        return self.run.clients.get(client, ClientRun())


def _under(tree: Any, path: str) -> Any:
    for key in path.split("."):
        tree = tree[key]
    return tree


def load_params(path: Path = Path("params.yaml")) -> Params:
    """Read and check params.yaml.

    Raises:
        ParamsError: all that is wrong with it.
    """
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)  # noqa: S506 (a SafeLoader)
    except FileNotFoundError:
        raise ParamsError(str(path), ["is not there; run from the project's folder"]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParamsError(str(path), [str(error).replace("\n", " ")]) from error
    return parse_params(raw, str(path))


def parse_params(raw: Any, source: str = "params.yaml") -> Params:
    """As `load_params`, from the tree itself."""
    if not isinstance(raw, dict):
        raise ParamsError(source, [f"holds {type(raw).__name__}, wanted sections"])
    faults: list[str] = []
    tree = {section: value for section, value in raw.items() if (section, value) != ("run", None)}
    _parse_variants(tree, faults)
    params = _validated(Params, tree, "", faults)
    whole, left_out = (params, set[str]()) if params else _without_faults(tree)
    if whole is not None:
        faults += [fault for fault in _cross_faults(whole) if not any(f"{name!r} is not under" in fault for name in left_out)]
    if faults or params is None:
        raise ParamsError(source, list(dict.fromkeys(faults)))
    return params


def _without_faults(tree: dict[str, Any]) -> tuple[Params | None, set[str]]:
    """The tree with its faulty entries left out, so that what they hide can be told too, and the names left out; None
    where the rest is no tree."""
    pruned, left_out = copy.deepcopy(tree), set[str]()
    try:
        Params.model_validate(pruned)
    except ValidationError as error:
        for fault in error.errors():
            _leave_out(pruned, fault["loc"])
            left_out.add(str(fault["loc"][-1]))
    try:
        return Params.model_validate(pruned), left_out
    except ValidationError:
        return None, left_out


def _leave_out(tree: Any, location: tuple[Any, ...]) -> None:
    for part in location[:-1]:
        tree = tree.get(part) if isinstance(tree, dict) else None
    if isinstance(tree, dict):
        tree.pop(location[-1], None)


_ROOMS: tuple[tuple[str, type[VariantConfig]], ...] = (
    ("saes", SaeConfig),
    ("clients", VariantConfig),
    ("explainers", ExplainerConfig),
    ("scorers", ScorerConfig),
)
"""Sections of variants; each is the room of the same name, and all its variants share a base."""


def _parse_variants(tree: dict[str, Any], faults: list[str]) -> None:
    """Replace each raw variant by its own `Config`, or by an empty one when it is wrong (its faults are told)."""
    for section, base in _ROOMS:
        if isinstance(tree.get(section), dict):
            tree[section] = {
                name: _variant(section, f"{section}.{name}", entry, None if section == "saes" else name, base, faults)
                for name, entry in tree[section].items()
            }
    if "corpus" in tree:
        tree["corpus"] = _variant("corpora", "corpus", tree["corpus"], None, VariantConfig, faults)
    examples = tree.get("examples")
    if isinstance(examples, dict) and isinstance(examples.get("contrasts"), dict):
        parsed = {
            name: _variant("sampling", f"examples.contrasts.{name}", entry, name, VariantConfig, faults)
            for name, entry in examples["contrasts"].items()
        }
        tree["examples"] = examples | {"contrasts": parsed}
    models = tree.get("models")
    for name, model in models.items() if isinstance(models, dict) else ():
        sources = model.get("sources") if isinstance(model, dict) else None
        for number, source in enumerate(sources if isinstance(sources, list) else ()):
            _variant("models", f"models.{name}.sources.{number}", source, None, VariantConfig, faults)


def _variant(room: str, path: str, raw: Any, default_kind: str | None, base: type[VariantConfig], faults: list[str]) -> VariantConfig:
    entry = {} if raw is None else raw
    wrong = base.model_construct(kind="?")
    if not isinstance(entry, Mapping):
        faults.append(f"{path}: is {entry!r}, wanted settings")
        return wrong
    kind = entry.get("kind", default_kind)
    if kind not in kinds(room):
        said = "is missing" if kind is None else f"there is no {kind!r}"
        faults.append(f"{path}.kind: {said}{nearest(str(kind), kinds(room))}")
        return wrong
    return _validated(variant(room, str(kind)).Config, dict(entry) | {"kind": kind}, path, faults) or wrong


M = TypeVar("M", bound=BaseModel)


def _validated(model: type[M], tree: Mapping[str, Any], path: str, faults: list[str]) -> M | None:
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        said: dict[str, list[str]] = {}
        for fault in error.errors():
            place, sentence = _sentence(model, path, fault)
            said.setdefault(place, []).append(sentence)
        faults += [f"{place}: {', or '.join(sentences)}" for place, sentences in said.items()]
    return None


def _sentence(model: type[BaseModel], path: str, fault: Mapping[str, Any]) -> tuple[str, str]:
    """Where a fault is, and what it is. The tags that pydantic puts into the place for a union's members are left out."""
    location = [part for part in fault["loc"] if not (isinstance(part, str) and "[" in part)]
    place = ".".join(str(part) for part in (path, *location) if str(part)) or "the whole"
    if fault["type"] == "extra_forbidden":
        return place, f"unknown key{nearest(str(location[-1]), _fields_at(model, tuple(location[:-1])))}"
    if fault["type"] == "missing":
        return place, "is missing"
    return place, f"is {fault['input']!r}; {fault['msg'].removeprefix('Value error, ').rstrip('.').lower()}"


def _fields_at(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """The keys allowed at a place in a tree of models, found by walking annotations."""
    current: Any = model
    for part in location:
        if isinstance(current, type) and issubclass(current, BaseModel) and part in current.model_fields:
            current = current.model_fields[part].annotation
        current = next((inner for inner in _models_in(current)), current)
    return list(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else []


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _models_in(inner)


def _cross_faults(params: Params) -> list[str]:
    """What no section can see alone: names that must exist elsewhere, numbers that must fit each other."""
    faults: list[str] = []

    def must_name(path: str, name: Any, section: str, names: Mapping[str, Any], extra: tuple[str, ...] = ()) -> None:
        if name is not None and name not in names and name not in extra:
            faults.append(f"{path}: {name!r} is not under `{section}`{nearest(str(name), [*names, *extra])}")

    must_name("subject.model", params.subject.model, "models", params.models)
    for name, sae in params.saes.items():
        must_name(f"saes.{name}.hookpoint", getattr(sae, "hookpoint", None), "subject.hookpoints", params.subject.hookpoints)
    for section, entries in (("explainers", params.explainers), ("scorers", params.scorers), ("clients", params.clients)):
        for name, entry in entries.items():
            must_name(f"{section}.{name}.client", getattr(entry, "client", None), "clients", params.clients)
            if section != "clients" or entry.kind == "transformers":
                must_name(f"{section}.{name}.model", getattr(entry, "model", None), "models", params.models)
    for name, scorer in params.scorers.items():
        contrast = getattr(scorer, "contrast", None)
        own = ("wrong-position",) if scorer.kind == "fuzzing" else ()
        must_name(f"scorers.{name}.contrast", contrast, "examples.contrasts", params.examples.contrasts, own)
    for name in params.run.clients:
        must_name(f"run.clients.{name}", name, "clients", params.clients)
    return faults + list(_size_faults(params)) + list(_cell_faults(params))


def _cell_faults(params: Params) -> Iterator[str]:
    """DVC names a cell `sae-scorer`: two cells of one name would be one cell."""
    cells: dict[str, tuple[str, str]] = {}
    for cell in ((sae, scorer) for sae in params.saes for scorer in params.scorers):
        other = cells.setdefault("-".join(cell), cell)
        if other != cell:
            yield f"scorers.{cell[1]}: with SAE {cell[0]!r} it has the cell name {'-'.join(cell)!r}, as {other[1]!r} has with {other[0]!r}; rename one"
    for name, sae in params.saes.items():
        width, asked = getattr(sae, "width", None), params.examples.latents
        if width is not None and asked != "all" and max(asked) >= width:
            yield f"examples.latents: {max(asked)} is no latent of SAE {name!r}, which has 0 to {width - 1}"


def _size_faults(params: Params) -> Iterator[str]:
    if params.examples.window > params.tokens.context:
        yield f"examples.window: is {params.examples.window}; at most `tokens.context`, {params.tokens.context}"
    if params.tokens.n_tokens < params.tokens.context:
        yield f"tokens.n_tokens: is {params.tokens.n_tokens}; at least `tokens.context`, {params.tokens.context}"
    if params.evaluation.ce_contexts > params.evaluation.contexts:
        yield f"evaluation.ce_contexts: is {params.evaluation.ce_contexts}; at most `evaluation.contexts`, {params.evaluation.contexts}"
    n_contexts = params.tokens.n_tokens // params.tokens.context
    if params.evaluation.contexts >= n_contexts:
        yield f"evaluation.contexts: is {params.evaluation.contexts}; fewer than the {n_contexts} contexts of `tokens.n_tokens`, for some must train"
    wanted = params.examples.explain.n + params.examples.held_out.n_activating
    if params.examples.min_examples < wanted:
        yield f"examples.min_examples: is {params.examples.min_examples}; at least {wanted}, explain.n and held_out.n_activating together"
    for name, scorer in params.scorers.items():
        asked = getattr(scorer, "max_examples", None)
        most = min(params.examples.held_out.n_activating, params.examples.held_out.n_contrast)
        if asked is not None and asked > most:
            yield f"scorers.{name}.max_examples: is {asked}; at most the {most} that `examples.held_out` keeps"


class _UniqueKeys(yaml.SafeLoader):
    """YAML without the silent loss of a key that stands twice."""


def _mapping(loader: _UniqueKeys, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, f"line {line}: a key is a list or a mapping; a name is wanted")
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"line {line}: {key!r} stands twice in one section; each name once")
        seen.add(key)
    loader.flatten_mapping(node)
    return {loader.construct_object(key, deep=True): loader.construct_object(value, deep=True) for key, value in node.value}


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
