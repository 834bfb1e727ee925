"""Hookpoints of the subject and of the same with redrawn weights, in one run."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from latentry.activations.activation_store import ActivationStore
from latentry.activations.cache import finish
from latentry.activations.opened import open_activations
from latentry.contracts import ACTIVATIONS
from latentry.engines.run import run_job
from latentry.store import Work, work
from latentry.subjects.causal_lm import load_subject
from latentry.subjects.hooks import Hookpoint, Redrawn

CLEAN = tuple(Hookpoint(name=f"resid-{layer}", module=f"model.layers.{layer}", side="output") for layer in (0, 2))
RANDOM = tuple(replace(CLEAN[1], name=f"random-{seed}", random=Redrawn(seed=seed, all=False)) for seed in (0, 1))
CPU = torch.device("cpu")


@pytest.fixture
def passes(project, caching, token_set):
    """Finished folders of some hookpoints, as the stage makes them."""

    def make(name: str, points, *, max_norm_multiple: float = 1.2, **changed) -> dict[str, Path]:
        outs = {point.name: project / name / point.name for point in points}
        opened = {one: work(out, ACTIVATIONS, cell=f"{name}@{one}", params={}) for one, out in outs.items()}
        making = {one: stage.__enter__() for one, stage in opened.items()}
        job = caching(making, hookpoints=tuple(points), **changed)
        for one in job.passes():
            run_job(one, engine="local", workers=None, address=None)
        finish(job, [], token_set.special, max_norm_multiple)
        for stage in opened.values():
            stage.__exit__(None, None, None)
        return outs

    return make


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("shard-*")}


def kept(folder: Path) -> np.ndarray:
    return ActivationStore(folder).kept


def test_each_hookpoint_holds_what_its_own_subject_gives_and_one_set_of_positions_counts_for_all(passes, token_set, small_llama):
    alone, mixed = passes("alone", CLEAN), passes("mixed", (RANDOM[0], *CLEAN, RANDOM[1]))
    for point in CLEAN:
        assert shards(mixed[point.name]) == shards(alone[point.name])
    for point in RANDOM:
        store = ActivationStore(mixed[point.name])
        subject = load_subject(small_llama, [point], dtype="float32", device=CPU)
        found = torch.cat([subject.activations(token_set.rows(first, min(first + 2, 11)))[point.name] for first in range(0, 11, 2)])
        assert torch.equal(store.rows(range(11)), found[torch.from_numpy(store.kept)])
    only = [kept(passes(f"only-{point.name}", [point])[point.name]) for point in (*CLEAN, *RANDOM)]
    assert not all(np.array_equal(some, only[0]) for some in only)
    for folder in mixed.values():
        assert np.array_equal(kept(folder), np.all(only, axis=0))


def test_a_folder_says_how_its_subject_was_redrawn_and_one_that_was_not_says_nothing(passes):
    folders = passes("mixed", (*CLEAN, RANDOM[1]))
    assert "random" not in json.loads((folders["resid-2"] / "hookpoint.json").read_text())
    assert ActivationStore(folders["resid-2"]).random is None
    assert ActivationStore(folders["random-1"]).random == Redrawn(seed=1, all=False)


def test_a_recipe_of_a_redrawn_subject_streams_what_the_pass_would_have_stored(passes, token_set, small_llama):
    points = (*CLEAN, *RANDOM)
    stored, recipe = passes("stored", points), passes("recipe", points, store=False)
    for name, folder in recipe.items():
        stream = open_activations(folder, tokens=token_set.folder, model=small_llama, dtype="float32", device=CPU, batch_contexts=2)
        assert torch.equal(stream.rows(range(11)), ActivationStore(stored[name]).rows(range(11)))


def test_a_pass_has_the_hookpoints_of_its_own_subject_alone_and_so_ends_at_the_deepest_of_them(caching):
    shallow = replace(RANDOM[0], module="model.layers.0")
    job = caching({}, hookpoints=(CLEAN[0], shallow, CLEAN[1]))
    assert [one.hookpoints for one in job.passes()] == [CLEAN, (shallow,)]


class Dying(Work):
    """Is killed at its n-th commit, counted over all folders of a run."""

    left = 0

    def write_file(self, name, write, n_bytes=None):
        if Dying.left == 0:
            raise KeyboardInterrupt
        Dying.left -= 1
        super().write_file(name, write, n_bytes)


def test_a_run_killed_in_either_pass_or_between_them_is_finished_with_the_same_bytes(caching, token_set, tmp_path):
    points = (CLEAN[0], RANDOM[0])

    def run(name: str, dies_after: int) -> dict[str, dict[str, bytes]]:
        folders = {point.name: tmp_path / name / point.name for point in points}
        for folder in folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        Dying.left = dies_after
        job = caching({one: Dying(folder, folder, ACTIVATIONS) for one, folder in folders.items()}, hookpoints=points, shard_contexts=6)
        for one in job.passes():
            run_job(one, engine="local", workers=None, address=None)
        finish(job, [], token_set.special, 1.2)
        return {one: {path.name: path.read_bytes() for path in folder.iterdir()} for one, folder in folders.items()}

    whole = run("whole", 1000)
    for n in range(2 * (1 + 2 + 1 + 1)):  # in each folder: its description, two shards, its description again, the positions
        with pytest.raises(KeyboardInterrupt):
            run(f"killed-{n}", n)
        assert run(f"killed-{n}", 1000) == whole
