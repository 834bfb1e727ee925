"""The pass over all contexts: what its folders hold, and what a run after a kill makes again."""

import json
import pickle
from pathlib import Path

import pytest
import torch

from latentry.activations.cache import finish
from latentry.contracts import ACTIVATIONS
from latentry.engines.run import run_job
from latentry.errors import HookpointError, ParamsError
from latentry.store import Work
from latentry.subjects.hooks import Hookpoint
from planted_subject import IDS, base, pass_over, stored


def stamps(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.glob("shard-*")}


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(("shard_contexts", "batch_contexts"), [(4, 3), (10, 1), (1, 16), (7, 2)])
def test_every_position_is_kept_in_order_whatever_the_shards_and_batches(project, caching, shard_contexts, batch_contexts):
    folders, model, _ = pass_over(project, caching, shard_contexts=shard_contexts, batch_contexts=batch_contexts)
    x = base(torch.from_numpy(IDS)).flatten(0, 1) + 1
    assert torch.equal(stored(folders["at-0"]), x)
    assert torch.equal(stored(folders["at-1"]), -x)
    assert len(list(folders["at-0"].glob("shard-*"))) == -(-10 // shard_contexts)
    assert torch.allclose(stored(folders["at-1"], "norm"), x.norm(dim=1))
    assert model.seen == IDS[:, 0].tolist()


def test_a_job_travels_to_another_process_and_knows_its_sizes(caching, tmp_path):
    job = caching({"resid-0": Work(tmp_path, tmp_path, ACTIVATIONS)}, n_contexts=10, context=6)
    there = pickle.loads(pickle.dumps(job))  # noqa: S301
    assert list(there.missing()) == [0, 1, 2]
    assert [there.size(shard) for shard in there.missing()] == [24, 24, 12]


def test_a_second_run_makes_only_the_shard_that_is_missing(project, caching):
    folders, _, _ = pass_over(project, caching)
    before, whole = stamps(folders["at-0"]), stored(folders["at-0"])
    (folders["at-0"] / "shard-00001.safetensors").unlink()
    _, model, _ = pass_over(project, caching)
    assert model.seen == IDS[4:8, 0].tolist()
    assert torch.equal(stored(folders["at-0"]), whole)
    after = stamps(folders["at-0"])
    assert {name for name in before if after[name] == before[name]} >= {"shard-00000.safetensors", "shard-00002.safetensors"}


def test_a_complete_cache_runs_the_subject_over_nothing(project, caching):
    pass_over(project, caching)
    assert pass_over(project, caching)[1].seen == []


def test_a_folder_says_where_it_is_from_and_nothing_of_how_it_was_made(made, token_set):
    described = json.loads((made("plain", dtype="bfloat16")["resid-2"] / "hookpoint.json").read_text())
    median = described.pop("median_norm")
    assert described == {
        "hookpoint": "resid-2",
        "module": "model.layers.2",
        "side": "output",
        "d_in": 16,
        "dtype": "bfloat16",
        "stored": True,
        "subject": "small",
        "subject_dtype": "float32",
        "attention": "sdpa",
        "quantisation": None,
        "n_special": int(token_set.special.sum()),
        "n_attention_sinks": 0,
        "n_dropped_contexts": 0,
    }
    assert median > 0


def test_a_run_that_stores_nothing_leaves_the_same_positions_and_no_shard(made):
    kept, recipe = made("kept"), made("recipe", store=False, shard_contexts=6, batch_contexts=2)
    for point, folder in recipe.items():
        assert sorted(path.name for path in folder.iterdir()) == ["hookpoint.json", "manifest.json", "positions.safetensors"]
        assert (folder / "positions.safetensors").read_bytes() == (kept[point] / "positions.safetensors").read_bytes()
        assert json.loads((folder / "hookpoint.json").read_text())["stored"] is False


class Dying(Work):
    """Is killed before or after its n-th commit, counted over all folders of a run."""

    left = 0

    def write_file(self, name, write, n_bytes=None):
        if Dying.left == 0:
            raise KeyboardInterrupt
        Dying.left -= 1
        super().write_file(name, write, n_bytes)


@pytest.mark.parametrize("store", [True, False])
def test_a_run_killed_between_any_two_commits_is_finished_with_the_same_bytes(caching, token_set, tmp_path, store):
    def run(name: str, dies_after: int) -> dict[str, Path]:
        folders = {point: tmp_path / name / point for point in ("resid-0", "resid-2")}
        for folder in folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        Dying.left = dies_after
        job = caching({point: Dying(folder, folder, ACTIVATIONS) for point, folder in folders.items()}, store=store, shard_contexts=6)
        run_job(job, engine="local", workers=None, address=None)
        finish(job, [], token_set.special, 10.0)
        return folders

    whole = run("whole", 1000)
    for n in range(2 * (1 + 2 + 1 + 1)):  # in each folder: its description, two shards, its description again, the positions
        with pytest.raises(KeyboardInterrupt):
            run(f"killed-{n}", n)
        again = run(f"killed-{n}", 1000)
        assert {point: bytes_in(folder) for point, folder in again.items()} == {point: bytes_in(folder) for point, folder in whole.items()}


def test_a_run_killed_while_it_deletes_its_shards_goes_on_deleting(caching, token_set, tmp_path):
    making = {"resid-2": Work(tmp_path / "work", tmp_path / "work", ACTIVATIONS)}
    making["resid-2"].folder.mkdir()
    job = caching(making, store=False)
    run_job(job, engine="local", workers=None, address=None)
    left = (tmp_path / "work" / "shard-00001.safetensors").read_bytes()
    finish(job, [], token_set.special, 10.0)
    whole = bytes_in(tmp_path / "work")
    (tmp_path / "work" / "shard-00001.safetensors").write_bytes(left)
    assert list(job.missing()) == []
    finish(job, [], token_set.special, 10.0)
    assert bytes_in(tmp_path / "work") == whole
    assert making["resid-2"].counts["n_kept"] == (~token_set.special).sum()


@pytest.mark.parametrize("store", [True, False])
def test_a_hookpoint_made_again_beside_a_finished_one_gets_the_same_bytes(made, caching, token_set, tmp_path, store):
    outs = made("both", store=store, max_norm_multiple=1.1)
    folder = tmp_path / "again"
    folder.mkdir()
    work = Work(folder, folder, ACTIVATIONS)
    job = caching({"resid-0": work}, store=store)
    run_job(job, engine="local", workers=None, address=None)
    finish(job, [outs["resid-2"]], token_set.special, 1.1)
    wanted = bytes_in(outs["resid-0"])
    del wanted["manifest.json"]
    assert bytes_in(folder) == wanted
    assert work.counts["n_attention_sinks"] > 0


def test_rows_longer_than_learned_positions_are_refused_before_the_pass(caching, project, tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    GPT2LMHeadModel(GPT2Config(vocab_size=200, n_embd=16, n_layer=2, n_head=2, n_positions=7)).save_pretrained(tmp_path / "gpt2")
    point = Hookpoint(name="resid", module="transformer.h.0", side="output")
    job = caching({"resid": Work(project, project, ACTIVATIONS)}, model=tmp_path / "gpt2", hookpoints=(point,))
    with pytest.raises(ParamsError, match=r"tokens\.context: is 8, the subject was trained for 7 positions .* set it to at most 7"):
        job.open()


def test_a_hookpoint_that_is_not_in_the_subject_is_told_before_anything_is_written(caching, project):
    point = Hookpoint(name="resid", module="model.layers.3", side="output")
    folder = project / "none"
    folder.mkdir()
    with pytest.raises(HookpointError, match=r"did you mean 'model\.layers\.[012]'"):
        caching({"resid": Work(folder, folder, ACTIVATIONS)}, hookpoints=(point,)).open()
    assert not list(folder.iterdir())
