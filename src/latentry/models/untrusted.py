"""A model's folder looked at as what it is before it is copied or loaded: written by somebody else.

Always true: nothing in it that could run as code is taken along, and no size that it states is believed beyond what any model has.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from latentry.errors import SourceError

CODE = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".py", ".pyc", ".so", ".dll", ".sh")
"""Endings of files that could run code when read or imported: neither read nor copied."""

_LARGEST_JSON = 1 << 26
_MOST_LAYERS, _WIDEST = 10_000, 1 << 24
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "decoder_layers")
_WIDTHS = ("hidden_size", "n_embd", "d_model", "intermediate_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim")
_KNOWN_MODULE = re.compile(r"sentence_transformers(\.[a-z_][a-z0-9_]*)*\.[A-Z]\w*")


def check_folder(folder: Path) -> None:
    """See that a folder in transformers' layout asks for no code of its own and states sizes that a model can have.

    Raises:
        SourceError: it does not.
    """
    encoders = [inside for kind, inside in _modules(folder / "modules.json") if kind.endswith(".Transformer")]
    for path in (path for inside in ("", *filter(None, encoders)) if (path := folder / inside / "config.json").is_file()):
        described = _object(path)
        _check_code(path, described)
        for place, part in _parts(described):
            _check_sizes(path, place, part)


def check_links(folder: Path) -> None:
    """See that a folder from elsewhere does not make us copy other files of this machine; the hub's cache links to its own blobs.

    Raises:
        SourceError: a file of it is a link out of it.
    """
    inside = folder.resolve()
    cache = next((parent.parent for parent in inside.parents if parent.name == "snapshots"), inside)
    for path in folder.rglob("*"):
        if path.is_symlink() and not path.resolve().is_relative_to(cache):
            raise SourceError(f"{path}: is a link to a file outside its folder, which is not followed; put the file itself there")


def _object(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise ValueError(f"{path.stat().st_size:,} bytes")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: unreadable JSON ({error}), wanted an object; download the model again") from error
    if not isinstance(found, Mapping):
        raise SourceError(f"{path}: holds a {type(found).__name__}, wanted an object; download the model again")
    return found


def _check_code(path: Path, described: Mapping[str, Any]) -> None:
    if not described.get("auto_map"):
        return
    from transformers import CONFIG_MAPPING

    kind = described.get("model_type")
    if kind not in CONFIG_MAPPING:
        raise SourceError(
            f"{path}: model_type {kind!r} needs code that comes with the model (`auto_map`), which is never run; allowed are the models that"
            " transformers has itself: use one of those"
        )


def _parts(described: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The configuration, and those inside it (of the text, of images)."""
    yield "", described
    yield from ((f"{name}.", part) for name, part in described.items() if isinstance(part, Mapping) and name.endswith("_config"))


def _check_sizes(path: Path, place: str, part: Mapping[str, Any]) -> None:
    for names, most in ((_LAYERS, _MOST_LAYERS), (_WIDTHS, _WIDEST)):
        for name in names:
            found = part.get(name)
            stated = found if isinstance(found, list) else [found]  # some state one number a layer
            if len(stated) > _MOST_LAYERS or any(isinstance(one, int | float) and not 0 <= one <= most for one in stated):
                raise SourceError(
                    f"{path}: {place}{name} is {str(found)[:40]}, allowed are numbers from 0 to {most:,}; no model is so large: use another"
                )


def _modules(path: Path) -> list[tuple[str, str]]:
    """The classes of which sentence-transformers makes its model, and their folders."""
    if not path.is_file():
        return []
    try:
        modules = json.loads(path.read_text(encoding="utf-8"))
        kinds = [(str(module["type"]), str(module["path"])) for module in modules]
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise SourceError(f"{path}: is no list of modules ({error}), wanted type and path of each; download the model again") from error
    for kind, inside in kinds:
        if not _KNOWN_MODULE.fullmatch(kind) or ".." in Path(inside).parts or Path(inside).is_absolute():
            raise SourceError(
                f"{path}: names the module {kind!r} at {inside!r}, allowed are classes of sentence_transformers inside the folder; code from"
                " elsewhere is never run: use another model"
            )
    return kinds
