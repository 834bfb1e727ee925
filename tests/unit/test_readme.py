"""The README's pieces of params.yaml are params that are right."""

import re
from pathlib import Path

import pytest
import yaml

from latentry.params import parse_params
from small_params import small_params

README = Path(__file__).parents[2] / "README.md"
PIECES = re.findall(r"```yaml\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def joined(piece: dict) -> dict:
    """A small tree with the piece in it; SAEs and clients that the piece names elsewhere are made up."""
    tree = small_params()
    for section, value in piece.items():
        tree[section] = tree[section] | value if isinstance(tree.get(section), dict) and section != "corpus" else value
    points = tree["subject"]["hookpoints"]
    for sae in tree["saes"].values():
        points.setdefault(sae["hookpoint"], {"module": "somewhere"})
    for name in tree["run"].get("clients", {}):
        tree["clients"].setdefault(name, {"kind": "openai_compatible", "model": "any"})
    return tree


@pytest.mark.parametrize("text", PIECES)
def test_a_piece_of_params_in_the_readme_is_right(text):
    parse_params(joined(yaml.safe_load(text)))


def test_there_are_pieces():
    assert len(PIECES) >= 4
