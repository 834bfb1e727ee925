"""The limits of Neuronpedia's `feature/upload-batch`, checked here before anything is sent.

It knows upload batches alone, whoever wrote them, and needs nothing else of latentry. Always true: every breach is told, with the
latent and the field; nothing is mended and nothing cut.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentry.errors import ExchangeError

MAX_LATENTS = 128
MAX_INDEX = 10_000_000
MAX_LOGITS = 20
MAX_CHARACTERS = 512
"""Of an explanation, counted as JavaScript does: a character outside the first 65,536 counts twice."""
MAX_TOKENS = 1024

METHODS = (
    "oai_token-act-pair",
    "oai_attention-head",
    "np_max-act",
    "np_max-act-logits",
    "np_acts-logits-general",
    "eleuther_acts_top20",
    "human",
)
"""Explanation methods seen in Neuronpedia's code and exports; it publishes no list."""
MODELS = (
    "gpt-3.5-turbo",
    "gpt-4",
    "gpt-4o",
    "gpt-4o-mini",
    "gpt-4.1-nano",
    "gpt-5",
    "o4-mini",
    "claude-3-5-sonnet",
    "claude-3-5-haiku-20241022",
    "claude-3-7-sonnet-20250219",
    "claude-4-5-haiku",
    "claude-4-5-sonnet",
    "gemini-2.0-flash",
    "gemini-2.5-flash",
    "gemini-2.5-flash-lite",
)
"""Explainer models seen there."""
KNOWN_NAMES = f"known here are the methods {', '.join(METHODS)}, and the explainer models {', '.join(MODELS)}"

_SOURCE = re.compile(r"\d+-[^\s/]+")
_ID = re.compile(r"[^\s/]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """One limit that one field breaks."""

    latent: int | None
    """Its index, or None where the breach is the whole batch's, or the latent has no index."""
    field: str
    """Such as `explanations[0].text`; of a latent without an index it begins with the latent's place, `features[3]`."""
    found: str
    allowed: str


def told(breaches: Iterable[Breach]) -> list[str]:
    """Breaches in words, one line for all latents of which the same is wrong with the same field; every latent is named."""
    latents: dict[tuple[str, str, str], list[int]] = {}
    for breach in breaches:
        whose = latents.setdefault((breach.field, breach.found, breach.allowed), [])
        if breach.latent is not None:
            whose.append(breach.latent)
    return [f"{_named(whose)}{field}: {found}; {allowed}" for (field, found, allowed), whose in latents.items()]


def _named(latents: Sequence[int]) -> str:
    if not latents:
        return ""
    return f"latent {latents[0]}: " if len(latents) == 1 else f"{len(latents):,} latents ({', '.join(map(str, latents))}): "


def breaches_of_files(files: Sequence[Path], also_known: Collection[str] = ()) -> Iterator[str]:
    """Every breach in upload batches on disk, as `told`, each line with its file; an index may stand once among all batches of one source.

    Raises:
        ExchangeError: a file cannot be read.
    """
    seen: dict[tuple[Any, Any], dict[int, str]] = {}
    for path in files:
        batch = _read(path)
        found = list(breaches(batch, also_known))
        if isinstance(batch, dict):
            source = (str(batch.get("modelId")), str(batch.get("source")))
            found += _repeated(batch, path, seen.setdefault(source, {}))
        yield from (f"{path}: {line}" for line in told(found))


def breaches(batch: Any, also_known: Collection[str] = ()) -> Iterator[Breach]:
    """Every breach in one upload batch, as JSON gives it; `also_known` are names of methods and models allowed beside those listed here."""
    if not isinstance(batch, dict):
        yield Breach(latent=None, field="the batch", found=f"is {_kind(batch)}", allowed="an object with modelId, source and features")
        return
    yield from _id_breaches(batch)
    features = batch.get("features")
    if not isinstance(features, list) or not 1 <= len(features) <= MAX_LATENTS:
        found = f"has {len(features):,} latents" if isinstance(features, list) else f"is {_kind(features)}"
        yield Breach(latent=None, field="features", found=found, allowed=f"a list of 1 to {MAX_LATENTS} latents")
    for place, feature in enumerate(features if isinstance(features, list) else ()):
        yield from latent_breaches(feature, place, also_known)


def latent_breaches(feature: Any, place: int, also_known: Collection[str] = ()) -> Iterator[Breach]:
    """Every breach of one latent of a batch, at its place in it."""
    if not isinstance(feature, dict):
        yield Breach(latent=None, field=f"features[{place}]", found=f"is {_kind(feature)}", allowed="an object with index and activations")
        return
    index = feature.get("index")
    latent = _whole(index)
    at = _At(latent=latent, before="" if latent is not None else f"features[{place}].")
    if latent is None or not 0 <= latent <= MAX_INDEX:
        yield at.breach("index", _value(index), f"a whole number from 0 to {MAX_INDEX:,}")
    density = feature.get("density")
    if density is not None and (not _is_number(density) or not 0 <= density <= 1):
        yield at.breach("density", _value(density), "a number from 0 to 1")
    for field in ("topLogits", "bottomLogits"):
        yield from _logit_breaches(at, field, feature.get(field))
    yield from _each(at, "explanations", feature.get("explanations"), 0, lambda one, item: _explanation_breaches(one, item, also_known))
    yield from _each(at, "activations", feature.get("activations"), 1, _activation_breaches)


def name_breaches(model_id: str, source: str, method: str, model: str, also_known: Collection[str] = ()) -> Iterator[Breach]:
    """Of the names that all batches and explanations of an export have."""
    yield from _id_breaches({"modelId": model_id, "source": source})
    yield from _known("methodName", method, METHODS, also_known)
    yield from _known("modelName", model, MODELS, also_known)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ExchangeError(
            f"{path}: is no JSON that can be read ({error}); give files of upload batches, as `export` writes them"
        ) from None


def _repeated(batch: Mapping[str, Any], path: Path, seen: dict[int, str]) -> Iterator[Breach]:
    features = batch.get("features")
    for feature in features if isinstance(features, list) else ():
        index = _whole(feature.get("index")) if isinstance(feature, dict) else None
        if index is not None:
            if index in seen:
                yield Breach(latent=index, field="index", found=f"stands a second time, first in {seen[index]}", allowed="once in a source")
            seen.setdefault(index, str(path))


def _id_breaches(batch: Mapping[str, Any]) -> Iterator[Breach]:
    for field, form, shape in (("modelId", _ID, "such as gpt2-small"), ("source", _SOURCE, "in the form {layer}-{set}, such as 6-res-jb")):
        value = batch.get(field)
        if not isinstance(value, str):
            yield Breach(latent=None, field=field, found=f"is {_kind(value)}", allowed=f"text {shape}")
            continue
        if value != value.lower():
            yield Breach(latent=None, field=field, found=f"is {value!r}", allowed="lower case only")
        if not form.fullmatch(value):
            yield Breach(latent=None, field=field, found=f"is {value!r}", allowed=f"a name {shape}, without spaces and slashes")


@dataclass(frozen=True, slots=True, kw_only=True)
class _At:
    """Where in a batch a check stands."""

    latent: int | None
    before: str

    def breach(self, field: str, found: str, allowed: str) -> Breach:
        return Breach(latent=self.latent, field=f"{self.before}{field}", found=found, allowed=allowed)

    def below(self, field: str) -> "_At":
        return _At(latent=self.latent, before=f"{self.before}{field}.")


def _each(at: _At, field: str, items: Any, least: int, check: Callable[[_At, Mapping[str, Any]], Iterable[Breach]]) -> Iterator[Breach]:
    if items is None and least == 0:
        return
    if not isinstance(items, list) or len(items) < least:
        yield at.breach(field, "is empty" if items == [] else f"is {_kind(items)}", "a list" if least == 0 else "a list of at least one")
        return
    for place, item in enumerate(items):
        if isinstance(item, dict):
            yield from check(at.below(f"{field}[{place}]"), item)
        else:
            yield at.breach(f"{field}[{place}]", f"is {_kind(item)}", "an object")


def _logit_breaches(at: _At, field: str, logits: Any) -> Iterator[Breach]:
    if isinstance(logits, list) and len(logits) > MAX_LOGITS:
        yield at.breach(field, f"has {len(logits)} tokens", f"at most {MAX_LOGITS}")
    yield from _each(at, field, logits, 0, _one_logit)


def _one_logit(at: _At, logit: Mapping[str, Any]) -> Iterator[Breach]:
    if not isinstance(logit.get("token"), str):
        yield at.breach("token", f"is {_kind(logit.get('token'))}", "text")
    if not _is_number(logit.get("value")):
        yield at.breach("value", _value(logit.get("value")), "a finite number")


def _explanation_breaches(at: _At, explanation: Mapping[str, Any], also_known: Collection[str]) -> Iterator[Breach]:
    text = explanation.get("text")
    if not isinstance(text, str):
        yield at.breach("text", f"is {_kind(text)}", f"text of 1 to {MAX_CHARACTERS} characters")
    elif not 1 <= javascript_length(text) <= MAX_CHARACTERS:
        yield at.breach("text", f"has {javascript_length(text):,} characters", f"1 to {MAX_CHARACTERS}")
    for field, names in (("methodName", METHODS), ("modelName", MODELS)):
        for breach in _known(field, explanation.get(field), names, also_known):
            yield at.breach(field, breach.found, breach.allowed)


def _known(field: str, name: Any, names: Sequence[str], also_known: Collection[str]) -> Iterator[Breach]:
    if not isinstance(name, str) or name not in (*names, *also_known):
        yield Breach(latent=None, field=field, found=_value(name), allowed="a name that Neuronpedia knows, or one given by --also-known")


def _activation_breaches(at: _At, activation: Mapping[str, Any]) -> Iterator[Breach]:
    tokens, values = activation.get("tokens"), activation.get("values")
    if not isinstance(tokens, list) or not 1 <= len(tokens) <= MAX_TOKENS:
        found = f"has {len(tokens):,} tokens" if isinstance(tokens, list) else f"is {_kind(tokens)}"
        yield at.breach("tokens", found, f"a list of 1 to {MAX_TOKENS} tokens")
    for place, token in enumerate(tokens if isinstance(tokens, list) else ()):
        if not isinstance(token, str):
            yield at.breach(f"tokens[{place}]", f"is {_kind(token)}", "text")
    if not isinstance(values, list):
        yield at.breach("values", f"is {_kind(values)}", "a list of numbers, one per token")
        return
    if isinstance(tokens, list) and len(values) != len(tokens):
        yield at.breach("values", f"has {len(values):,} values", f"one per token, of which there are {len(tokens):,}")
    for place, value in enumerate(values):
        if not _is_number(value):
            yield at.breach(f"values[{place}]", _value(value), "a finite number")


def javascript_length(text: str) -> int:
    """Length in UTF-16 units, by which a server in JavaScript counts."""
    return len(text) + sum(ord(character) > 0xFFFF for character in text)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number larger than any float
        return False


def _value(value: Any) -> str:
    """What was found, in words: a number or a name as it is, anything else by its kind."""
    return f"is {value!r}" if isinstance(value, int | float | str) and len(str(value)) <= 80 else f"is {_kind(value)}"


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)
