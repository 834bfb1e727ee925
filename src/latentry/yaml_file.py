"""A YAML file as a plain tree, read as what it is: text that anyone may have written. Sole owner of yaml beside `dvc.lock`'s reader.

Always true: no tag makes an object, no name stands twice in one section, and what aliases and merges write out is bounded before it
is written out.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from latentry.errors import ParamsError
from latentry.safe_text import environment_keys, looks_like_key, without_keys

MOST_NODES = 2_000_000
"""Values in the tree, with every alias written out: a list of a million latents has half of that."""
_HOLDS_A_KEY = frozenset(
    ("api_key", "api-key", "apikey", "x-api-key", "authorization", "password", "passwd", "secret", "access_token", "auth_token")
)
"""Names whose value is a key, whatever it looks like."""
_NO_KEYS = "keys come from the environment only: export it, and name the variable in `run.clients.*.key_env`"


def read_yaml(path: Path) -> Any:
    """The tree.

    Raises:
        ParamsError: the file is not there, is no YAML of plain values, writes out to too much, or a name stands twice in a section.
    """
    try:
        loader = _Plain(path.read_text(encoding="utf-8"))
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_size(node, str(path))
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except FileNotFoundError:
        raise ParamsError(str(path), ["is not there; run from the project's folder"]) from None
    except yaml.YAMLError as error:
        raise ParamsError(str(path), [without_keys(str(error)).replace("\n", " ")]) from None
    except ValueError as error:  # no UTF-8, or a date or a number that cannot be
        raise ParamsError(str(path), [f"holds what cannot be read ({without_keys(str(error))}); put text in quotes"]) from None
    except RecursionError:
        raise ParamsError(str(path), ["is nested too deeply to be read; sections go a few levels deep"]) from None


def key_faults(tree: Any) -> Iterator[str]:
    """Values and names that are keys, by their paths; none of them is shown."""
    yield from _key_faults(tree, "", environment_keys(os.environ))


def _key_faults(tree: Any, path: str, keys: Sequence[str]) -> Iterator[str]:
    if isinstance(tree, str) and looks_like_key(tree, keys):
        yield f"{path or 'the whole'}: holds what looks like a key (not shown); {_NO_KEYS}, and revoke this one if the file was shared"
    elif isinstance(tree, dict):
        for name, value in tree.items():
            yield from _entry_faults(str(name), value, path, keys)
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from _key_faults(value, f"{path}.{number}", keys)


def _entry_faults(name: str, value: Any, path: str, keys: Sequence[str]) -> Iterator[str]:
    if looks_like_key(name, keys):
        yield f"{path or 'the whole'}: has a name that looks like a key (not shown); {_NO_KEYS}"
    elif name.lower() in _HOLDS_A_KEY and isinstance(value, str) and value:
        yield f"{path}.{name}: is where a key stands (not shown); {_NO_KEYS}".lstrip(".")
    else:
        yield from _key_faults(value, f"{path}.{name}".lstrip("."), keys)


def _check_size(node: yaml.Node, source: str) -> None:
    """See that the tree with every alias written out is not too large, without writing it out.

    Raises:
        ParamsError: it is, or a part holds itself.
    """
    if _written_out(node, {}, set(), source) > MOST_NODES:
        raise ParamsError(
            source, [f"holds more than {MOST_NODES:,} values once its aliases (`*name`) are written out; write out what is meant"]
        )


def _written_out(node: yaml.Node, known: dict[int, int], open_nodes: set[int], source: str) -> int:
    """Nodes in the tree under a node; each is counted once, and remembered."""
    if id(node) in open_nodes:
        raise ParamsError(source, [f"line {node.start_mark.line + 1}: a part holds itself by an alias; write out what is meant"])
    if id(node) not in known:
        open_nodes.add(id(node))
        known[id(node)] = 1 + sum(_written_out(child, known, open_nodes, source) for child in _children(node))
        open_nodes.remove(id(node))
    return known[id(node)]


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield name
            yield value
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


class _Plain(yaml.SafeLoader):
    """YAML without the silent loss of a key that stands twice."""


def _mapping(loader: _Plain, node: yaml.MappingNode) -> dict[Any, Any]:
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


_Plain.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
