"""What holds for every client file found."""

import ast
import inspect
import subprocess
import sys

import pytest

from latentry import registry

KINDS = registry.kinds("clients")


def test_the_two_clients_are_found():
    assert {"openai_compatible", "transformers"} <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_is_built_as_the_pool_builds_it(kind):
    variant = registry.variant("clients", kind)
    assert issubclass(variant.Config, registry.VariantConfig)
    inspect.signature(variant.build).bind(object(), name="judge", run=object(), models=object(), device="cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_every_knob_is_explained_beneath_it(kind):
    tree = ast.parse(inspect.getsource(registry.variant("clients", kind)))
    (config,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Config"]
    for field, below in zip(config.body, [*config.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign):
            assert isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant), ast.unparse(field)


def test_no_client_file_loads_a_heavy_library():
    names = "; ".join(f"import latentry.clients.{name}" for name in (*KINDS, "pool"))
    heavy = "[name for name in ('torch', 'transformers', 'aiohttp') if name in sys.modules]"
    done = subprocess.run([sys.executable, "-c", f"{names}; import sys; print({heavy})"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
