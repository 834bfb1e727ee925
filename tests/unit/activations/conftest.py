"""A subject of three layers and a token folder, both small, and one pass over them as the stage makes it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from latentry.activations.cache import Caching, finish
from latentry.contracts import ACTIVATIONS
from latentry.corpora.token_set import TokenSet
from latentry.engines.run import run_job
from latentry.models.random import Config, build
from latentry.store import Work, work
from latentry.subjects.hooks import Hookpoint
from planted_folders import token_folder

LAYERS = (0, 2)
POINTS = tuple(Hookpoint(name=f"resid-{layer}", module=f"model.layers.{layer}", side="output") for layer in LAYERS)
TOKENS = np.random.default_rng(0).integers(1, 200, size=(11, 8))
SPECIAL = TOKENS % 7 == 0


@pytest.fixture(scope="session")
def small_llama(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "small"
    folder.mkdir()
    return build(Config(kind="random", purpose="language_model", d_model=16, n_layers=3)).fetch(folder, folder)


@pytest.fixture
def damaged(small_llama, tmp_path) -> Callable[[Callable[[dict[str, Any]], object]], Path]:
    """The same model with its weights changed by a function."""

    def damage(change: Callable[[dict[str, Any]], object]) -> Path:
        folder = tmp_path / "damaged"
        folder.mkdir()
        for path in small_llama.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        return folder

    return damage


@pytest.fixture
def token_set(project) -> TokenSet:
    return TokenSet(token_folder(project / "tokens", TOKENS, SPECIAL))


@pytest.fixture
def caching(token_set, small_llama) -> Callable[..., Caching]:
    """A job over the token folder; parameters that a test does not name are the plainest."""

    def job(making: Mapping[str, Work], **changed: Any) -> Caching:
        plain: dict[str, Any] = {"hookpoints": POINTS, "model": small_llama, "tokens": token_set.folder, "n_contexts": token_set.n_contexts}
        plain |= {"context": token_set.context, "subject_dtype": "float32", "dtype": "float32", "store": True, "non_finite": "stop"}
        plain |= {"shard_contexts": 4, "batch_contexts": 2, "device": "cpu", "threads": 1}
        return Caching(making=making, **(plain | changed))

    return job


@pytest.fixture
def made(project, caching, token_set) -> Callable[..., dict[str, Path]]:
    """Finished folders by hookpoint, under a name of the test's."""

    def make(name: str, *, max_norm_multiple: float = 10.0, **changed: Any) -> dict[str, Path]:
        outs = {point.name: project / name / point.name for point in POINTS}
        opened = {point: work(out, ACTIVATIONS, cell=f"{name}@{point}", params={}) for point, out in outs.items()}
        making = {point: stage.__enter__() for point, stage in opened.items()}
        job = caching(making, **changed)
        run_job(job, engine="local", workers=None, address=None)
        finish(job, [], token_set.special, max_norm_multiple)
        for stage in opened.values():
            stage.__exit__(None, None, None)
        return outs

    return make
