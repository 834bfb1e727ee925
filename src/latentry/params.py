"""params.yaml as one typed tree, checked whole: every fault at once, each with its path, before any work.

Variants (scorers, explainers, SAEs, clients, contrasts, corpora, sources) are reached through the registry only.
"""

import contextlib
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from latentry.crosschecks import cross_faults
from latentry.errors import ParamsError
from latentry.models.obtain import ModelSettings
from latentry.registry import ContrastConfig, ExplainerConfig, SaeConfig, ScorerConfig, VariantConfig, kinds, nearest, variant
from latentry.safe_text import without_keys
from latentry.sections import (
    ActivationSettings,
    ClientRun,
    ComparisonSettings,
    EvaluationSettings,
    ExampleSettings,
    GateSettings,
    JacobianSettings,
    LatentSettings,
    Name,
    Run,
    Section,
    Share,
    SubjectSettings,
    TokenSettings,
    TrackingSettings,
)
from latentry.yaml_file import key_faults, read_yaml

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 200
"""What stands in a message of a wrong value: its beginning."""


class Params(Section):
    """The whole of params.yaml."""

    seed: Annotated[int, Field(ge=0)]
    """Of all chance that is not of a model's own weights."""
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
    jacobians: dict[Name, JacobianSettings] = Field(default_factory=dict)
    """Pairs of SAEs around an MLP; `{}` where there are none: DVC needs the name to be there."""
    comparison: ComparisonSettings = ComparisonSettings()
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
        asked = [self.clients[client] for entry in entries for role in ("client", "judge") if (client := getattr(entry, role, None))]
        named = {getattr(one, "model", None) for one in (*entries, *asked) if one.kind != "openai_compatible"}
        return sorted(name for name in named if name in self.models)

    def sources(self, name: str) -> list[VariantConfig]:
        """The sources of one model, in order."""
        return [variant("models", source["kind"]).Config(**source) for source in self.models[name].sources]

    def known_as(self, name: str) -> tuple[str, ...]:
        """Every name of a model: its own under `models`, and those of its sources on the hub or on disk."""
        asked = (getattr(source, "id", None) or getattr(source, "path", None) for source in self.sources(name))
        return (name, *filter(None, asked))

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
    return parse_params(read_yaml(path), str(path))


def parse_params(raw: Any, source: str = "params.yaml") -> Params:
    """As `load_params`, from the tree itself."""
    if not isinstance(raw, dict):
        raise ParamsError(source, [f"holds {type(raw).__name__}, wanted sections"])
    faults = list(key_faults(raw))
    tree = {section: value for section, value in raw.items() if (section, value) != ("run", None)}
    _parse_variants(tree, faults)
    params = _validated(Params, tree, "", faults)
    faults += cross_faults(params or _sound_sections(tree))
    if faults or params is None:
        raise ParamsError(source, list(dict.fromkeys(map(without_keys, faults))))
    return params


def _sound_sections(tree: Mapping[str, Any]) -> Params:
    """What is right of a tree with faults, so that what they hide can be told too: sections that are wrong are not there."""
    sections: dict[str, Any] = {}
    for name, field in Params.model_fields.items():
        if name in tree:
            adapter: TypeAdapter[Any] = TypeAdapter(field.annotation or Any)
            with contextlib.suppress(ValidationError):
                sections[name] = adapter.validate_python(tree[name])
        elif not field.is_required():
            sections[name] = field.get_default(call_default_factory=True)
    return Params.model_construct(**sections)


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
            name: _variant("sampling", f"examples.contrasts.{name}", entry, name, ContrastConfig, faults)
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
        faults.append(f"{path}: is {_REPR.repr(entry)}, wanted settings")
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
    found = "" if isinstance(fault["input"], Mapping) else f"is {_REPR.repr(fault['input'])}; "
    return place, f"{found}{fault['msg'].removeprefix('Value error, ').rstrip('.').lower()}"


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
