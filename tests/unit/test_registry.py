"""A variant is a file: what is found, and what is said when it is not."""

import ast
import inspect
import textwrap

import pytest
from pydantic import ValidationError

from latentry.errors import ParamsError
from latentry.registry import VariantConfig, kinds, nearest, variant

ROOMS = ["corpora", "models", "saes", "clients", "explainers", "scorers", "sampling"]


def test_the_kinds_of_a_room_are_its_files_with_a_config():
    assert {"files"} <= set(kinds("corpora"))
    assert set(kinds("models")) == {"folder", "hub", "packages", "random"}
    assert "base" not in {kind for room in ROOMS for kind in kinds(room)}


@pytest.mark.parametrize(("room", "kind"), [(room, kind) for room in ROOMS for kind in kinds(room)])
def test_every_variant_has_a_frozen_config_that_refuses_unknown_keys_and_a_build(room, kind):
    module = variant(room, kind)
    assert issubclass(module.Config, VariantConfig)
    assert module.Config.model_config["frozen"]
    assert callable(module.build)
    with pytest.raises(ValidationError, match="no_such_key"):
        module.Config(kind=kind, no_such_key=1)


@pytest.mark.parametrize(("room", "kind"), [(room, kind) for room in ROOMS for kind in kinds(room)])
def test_every_knob_says_what_it_means_beneath_it(room, kind):
    for owner in variant(room, kind).Config.__mro__:
        if owner.__module__.startswith("latentry."):
            assert without_docstring(owner) == [], f"{owner.__module__}.{owner.__name__}"


def without_docstring(model: type) -> list[str]:
    """The fields of a class that no text follows."""
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0].body
    followed = zip(body, [*body[1:], ast.Pass()], strict=True)
    return [one.target.id for one, after in followed if isinstance(one, ast.AnnAssign) and not is_text(after)]


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def test_a_kind_that_does_not_exist_is_answered_with_the_nearest_and_all_there_are():
    with pytest.raises(ParamsError, match=r"there is no 'packges'; did you mean 'packages'\? \(there are: folder, hub, packages, random\)"):
        variant("models", "packges")


@pytest.mark.parametrize("kind", ["../errors", "base", "obtain", "", "random.Config"])
def test_only_variants_can_be_named(kind):
    with pytest.raises(ParamsError):
        variant("models", kind)


def test_a_room_that_does_not_exist_is_a_fault_of_ours():
    with pytest.raises(ValueError, match="no room"):
        kinds("kitchen")


def test_nearest_names_none_when_none_is_near_and_counts_what_it_leaves_out():
    assert nearest("zzz", ["alpha", "beta"]) == " (there are: alpha, beta)"
    assert nearest("x", []) == " (there are: none)"
    said = nearest("m-7", [f"m-{number}" for number in range(100)])
    assert said.startswith("; did you mean 'm-7'?")
    assert said.endswith("and 60 more)")
