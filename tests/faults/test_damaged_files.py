"""Files that a disk or a person damaged: each is told with what to do, or made anew; no traceback, and never other results.

A damaged file keeps its size where it can, and its time always, so that nothing but its content tells.
"""

import random
import shutil
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faults.disturbed import CELLS, MAKERS, STORES, assert_undisturbed, content, ended, replace_bytes, results, start, take_away
from pipeline.tiny import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

READERS = {
    "data/models/subject": ("activations", "sae@tiny"),
    "data/models/judge": ("score@tiny-detection",),
    "data/models/encoder": ("score@tiny-embedding",),
    "data/tokens": ("activations", "examples@tiny"),
    "data/activations": ("sae@tiny", "latents@tiny"),
    "data/saes/tiny": ("latents@tiny", "compare"),
    "data/latents/tiny": ("examples@tiny",),
    "data/examples/tiny": ("explain@tiny", "score@tiny-embedding"),
    "data/explanations/tiny": ("score@tiny-detection", "compare"),
    "data/scores/tiny/detection": ("compare",),
    "data/scores/tiny/embedding": ("compare",),
    "data/comparison": ("track",),
}
"""Which stages read what, the first and the farthest."""


def flipped(whole: bytes, moments: random.Random) -> bytes:
    """One bit of one byte, anywhere."""
    at = moments.randrange(len(whole))
    return whole[:at] + bytes([whole[at] ^ (1 << moments.randrange(8))]) + whole[at + 1 :]


def cut(whole: bytes, moments: random.Random) -> bytes:
    """The end is missing."""
    return whole[: moments.randrange(len(whole))]


def emptied(_whole: bytes, _moments: random.Random) -> bytes:
    """Nothing is left."""
    return b""


def is_clear(stopped) -> bool:
    """One error, ours, with what to do."""
    says_what_to_do = any(hint in stopped.error for hint in ("run", "delete", "move", "name ", "check"))
    return stopped.code in (1, 2, 3) and bool(stopped.error) and says_what_to_do and "Traceback" not in stopped.said


@pytest.mark.parametrize("damage", [flipped, cut, emptied], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("folder", READERS)
def test_every_file_of_every_folder_is_told_when_damaged(project, whole, stages, folder, damage):
    moments, wrong = random.Random(f"{folder} {damage.__name__}"), {}
    readers = [CELLS[name] for name in READERS[folder]]
    for cell in readers:
        if cell.name != "track":
            take_away(project, cell)
    for path in sorted(path for path in (project / folder).rglob("*") if path.is_file()):
        was = path.read_bytes()
        replace_bytes(path, damage(was, moments))
        for cell in readers:
            seen = stages.run(project, *cell.command.split())
            if not is_clear(seen) and not is_harmless(project, whole, cell, seen, path):
                wrong[f"{cell.name} reads {path.relative_to(project)}"] = seen.said[-600:]
            if cell.name != "track":
                take_away(project, cell)
        replace_bytes(path, was)
    for cell in readers:
        assert stages.run(project, *cell.command.split()).code == 0
        assert cell.name == "track" or results(project, cell) == results(whole, cell)
    assert not wrong


def is_harmless(project, whole, cell, seen, path) -> bool:
    """Nothing that the stage makes follows from what was damaged: its files are the same.

    Manifests and the report also show the digest of each manifest that was read, so they differ where one was damaged and can be read.
    """
    if seen.code or "Traceback" in seen.said:
        return False
    if cell.name == "track":
        return path.name == "manifest.json"
    shows = ("manifest.json", *((".html", ".js") if path.name == "manifest.json" else ()))
    made = {name: digest for name, digest in results(project, cell).items() if not name.endswith(shows)}
    return made == {name: digest for name, digest in results(whole, cell).items() if not name.endswith(shows)}


def test_dvc_makes_damaged_results_anew(project, whole):
    """Results of every cell are damaged at once, each in another way, and DVC puts them right."""
    moments = random.Random(0)
    for number, cell in enumerate(MAKERS):
        path = moments.choice(sorted(path for path in (project / cell.out).rglob("*") if path.is_file()))
        damaged = (flipped, cut, emptied)[number % 3](path.read_bytes(), moments)
        path.unlink()
        path.write_bytes(damaged)
    code, said = ended(start(project, "dvc", "repro"))
    assert code == 0, said
    assert_undisturbed(project, whole)


def test_dvc_finds_damage_that_reaches_its_cache_and_makes_the_results_anew(project, whole):
    """A result and DVC's cache are one file with two names, so a program that writes into the one damages both."""
    path = project / "data" / "explanations" / "tiny" / "explanations.parquet"
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\0\0\0\0")
    code, said = ended(start(project, "dvc", "repro"))
    assert code == 0, said
    assert_undisturbed(project, whole)


@pytest.mark.parametrize("damage", [cut, emptied, flipped], ids=lambda damage: damage.__name__)
def test_a_damaged_corpus_is_told(project, whole, stages, damage):
    cell, path = CELLS["tokens"], project / "corpus" / "sotu-and-moby-dick.jsonl.xz"
    was, moments = path.read_bytes(), random.Random(damage.__name__)
    take_away(project, cell)
    replace_bytes(path, damage(was[: len(was) // 20], moments) if damage is cut else damage(was, moments))
    seen = stages.run(project, *cell.command.split())
    assert is_clear(seen) or is_harmless(project, whole, cell, seen, path), seen.said
    shutil.rmtree(project / ".cache" / "work")
    replace_bytes(path, was)
    take_away(project, cell)
    assert stages.run(project, *cell.command.split()).code == 0
    assert results(project, cell) == results(whole, cell)


@pytest.mark.parametrize("keep", [0, 1, 40, 700, 1500])
def test_params_that_are_cut_are_told(project, stages, keep):
    path = project / "params.yaml"
    was = path.read_bytes()
    path.write_bytes(was[:keep])
    for command in ("stages/tokens.py", "stages/compare.py", "stages/track.py"):
        seen = stages.run(project, command)
        assert (seen.code, "params.yaml" in seen.error, "Traceback" in seen.said) == (2, True, False), seen.said
    checked = run(project, "latentry", "check", check=False, capture_output=True)
    assert checked.returncode == 2 and "Traceback" not in checked.stderr
    path.write_bytes(was)


@pytest.mark.parametrize("keep", [0, 5, 20, 300, 0.5, 0.99])
def test_a_dvc_lock_that_is_cut_is_set_aside_and_costs_nothing(project, whole, stages, keep):
    path = project / "dvc.lock"
    was = path.read_bytes()
    path.write_bytes(was[: int(keep * len(was)) if isinstance(keep, float) else keep])
    tracked = stages.run(project, "stages/track.py")
    assert "Traceback" not in tracked.said
    run(project, "latentry", "check", capture_output=True)
    code, said = ended(start(project, "dvc", "repro"))
    assert code == 0, said
    assert "to ask" not in said, "a finished stage was run again"
    assert_undisturbed(project, whole)


def damaged_store(project, name, change):
    (path,) = (project / ".cache" / name).glob("*.sqlite")
    was = path.read_bytes()
    replace_bytes(path, change(was))
    return path, was


SQLITE = {
    "empty": lambda _: b"",
    "no database": lambda was: b"x" * len(was),
    "cut": lambda was: was[: len(was) // 2],
    "header": lambda was: was[:20] + b"\xff" * 40 + was[60:],
    "zeroed": lambda was: was[:4096] + b"\0" * (len(was) - 4096),
}


@pytest.mark.parametrize("how", SQLITE)
@pytest.mark.parametrize(("name", "reader"), [("replies", "score@tiny-detection"), ("embeddings", "score@tiny-embedding")])
def test_a_damaged_store_is_told_with_what_to_do(project, whole, stages, name, reader, how):
    cell = CELLS[reader]
    path, was = damaged_store(project, name, SQLITE[how])
    take_away(project, cell)
    seen = stages.run(project, *cell.command.split())
    if seen.code:
        assert is_clear(seen) and str(path.name) in seen.error, seen.said
        path.unlink()
        assert stages.run(project, *cell.command.split()).code == 0
    assert results(project, cell) == results(whole, cell)
    path.write_bytes(was)


@pytest.mark.parametrize(("name", "reader"), [("replies", "score@tiny-detection"), ("embeddings", "score@tiny-embedding")])
def test_bits_that_flip_in_a_store_change_no_result_beyond_rounding(project, whole, stages, name, reader):
    cell, moments = CELLS[reader], random.Random(name)
    for _ in range(12):
        path, was = damaged_store(project, name, lambda was: _many_flips(was, moments))
        take_away(project, cell)
        seen = stages.run(project, *cell.command.split())
        assert is_clear(seen) or (seen.code == 0 and is_same_to_rounding(project, whole, cell)), seen.said
        path.with_name(path.name + "-wal").unlink(missing_ok=True)
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
        path.write_bytes(was)
    shutil.rmtree(project / ".cache" / "work")
    take_away(project, cell)
    assert stages.run(project, *cell.command.split()).code == 0
    assert results(project, cell) == results(whole, cell)


def is_same_to_rounding(project, whole, cell):
    """What was lost is computed again in a batch of its own, where numbers may differ in their last digits; nothing else differs."""
    for name in ("judgments.parquet", "scores.parquet"):
        made, wanted = (pq.read_table(root / cell.out / name) for root in (project, whole))
        floats = [field.name for field in wanted.schema if pa.types.is_floating(field.type)]
        assert made.drop_columns(floats) == wanted.drop_columns(floats)
        for column in floats:
            one, other = (np.array(table[column].to_pylist(), dtype=float) for table in (made, wanted))
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True)
    return True


def _many_flips(was, moments):
    for _ in range(20):
        was = flipped(was, moments)
    return was


def test_a_damaged_checkpoint_of_a_training_is_told_or_left(project, whole, stages):
    """The training is killed when its checkpoint stands, which is then damaged."""
    cell = CELLS["sae@tiny"]
    for damage in (flipped, cut, emptied):
        take_away(project, cell)
        checkpoint = killed_with_checkpoint(project, cell)
        replace_bytes(checkpoint, damage(checkpoint.read_bytes(), random.Random(1)))
        seen = stages.run(project, *cell.command.split())
        assert seen.code == 0 or is_clear(seen), seen.said
        if seen.code:
            shutil.rmtree(project / ".cache" / "work")
            assert stages.run(project, *cell.command.split()).code == 0
        assert results(project, cell) == results(whole, cell)


def killed_with_checkpoint(project, cell):
    process = start(project, "python", *cell.command.split())
    while process.poll() is None:
        found = list((project / ".cache" / "work").glob("sae@tiny.*/checkpoint.safetensors"))
        if found:
            process.kill()
            process.communicate()
            return found[0]
        time.sleep(0.001)
    raise AssertionError("it ended before it had a checkpoint")


def test_damaged_shards_of_a_killed_stage_are_told_or_made_again(project, whole, stages):
    """What an earlier run committed is damaged before the next run takes it up."""
    cell = CELLS["activations"]
    assert content(project / "data" / "activations") == content(whole / "data" / "activations")
    take_away(project, cell)
    process = start(project, "python", *cell.command.split())
    while not (shards := list((project / ".cache" / "work").glob("activations*/shard-00000.safetensors"))) and process.poll() is None:
        time.sleep(0.001)
    process.kill()
    process.communicate()
    replace_bytes(shards[0], cut(shards[0].read_bytes(), random.Random(2)))
    seen = stages.run(project, *cell.command.split())
    assert seen.code == 0 or is_clear(seen), seen.said
    if seen.code:
        shutil.rmtree(project / ".cache" / "work")
        assert stages.run(project, *cell.command.split()).code == 0
    assert results(project, cell) == results(whole, cell)


def test_stores_that_are_gone_are_begun_anew(project, whole, stages):
    for name in STORES:
        shutil.rmtree(project / name)
    for cell in (CELLS["explain@tiny"], CELLS["score@tiny-embedding"]):
        take_away(project, cell)
        assert stages.run(project, *cell.command.split()).code == 0
        assert results(project, cell) == results(whole, cell)
