"""Folders come whole or not at all: after exceptions, kills, other versions and two processes at once."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from latentry.atomic import write_atomic
from latentry.contracts import EXAMPLES, EXPLANATIONS, LATENTS, MODEL, SCORES, Contract
from latentry.errors import ContractError
from latentry.records import Example, Explanation, Judgment, Kind, Split, Status
from latentry.store import (
    MANIFEST,
    Work,
    cache_folder,
    content_digest,
    digest_of,
    file_digest,
    manifest_digest,
    project_root,
    read_manifest,
    read_records,
    read_table,
    table_of,
    work,
)

pytestmark = pytest.mark.usefixtures("project")

NOTES = Contract(name="notes", version=3, stage="note", holds="Notes.", tables={"notes.parquet": pa.schema([("number", pa.int64())])})


def make(out: Path, *, value: int = 1, **named) -> str:
    """Write one number; says whether it was written or there already."""
    settings = {"cell": "note@one", "params": {"value": value}} | named
    with work(out, NOTES, **settings) as making:
        if making is None:
            return "there"
        making.write_table("notes.parquet", [{"number": value}])
        making.counts["n"] = 1
    return "written"


def work_folders() -> list[str]:
    return sorted(path.name for path in cache_folder("work").iterdir() if path.is_dir())


def test_a_finished_folder_has_its_files_with_their_digests_and_says_what_it_was_made_of(project):
    make(Path("data/source"), cell="source")
    make(Path("data/out"), inputs=[Path("data/source")])
    manifest = read_manifest(Path("data/out"), NOTES)
    assert (manifest.contract, manifest.version, manifest.cell) == ("notes", 3, "note@one")
    assert manifest.params == {"value": 1}
    assert manifest.counts == {"n": 1}
    bytes_of = {name: (project / "data/out" / name).read_bytes() for name in ("notes.parquet",)}
    assert manifest.files == {name: hashlib.sha256(content).hexdigest() for name, content in bytes_of.items()}
    source = (project / "data/source" / MANIFEST).read_bytes()
    assert manifest.inputs == {"data/source": hashlib.sha256(source).hexdigest()}
    assert sorted(path.name for path in Path("data/out").iterdir()) == ["manifest.json", "notes.parquet"]
    assert work_folders() == []


@pytest.mark.parametrize("damaged", ["", "[]", "1", '{"key": 1}', None])
def test_a_result_whose_manifest_is_damaged_is_made_anew(damaged):
    make(Path("out"))
    manifest = Path("out", MANIFEST)
    was = manifest.read_text()
    manifest.write_text(was.replace('"files"', '"filez"') if damaged is None else damaged)
    assert make(Path("out")) == "written"
    assert manifest.read_text() == was


def test_a_folder_may_be_read_by_whom_the_umask_allows(tmp_path):
    """A model is copied with the mode of the folder it was fetched into, which only its owner may enter."""
    tmp_path.joinpath("fetched").mkdir(mode=0o700)
    with work(Path("out"), MODEL, cell="models@one", params={}) as making:
        assert making
        shutil.copytree(tmp_path / "fetched", making.folder, dirs_exist_ok=True)
    tmp_path.joinpath("plain").mkdir()
    assert Path("out").stat().st_mode == tmp_path.joinpath("plain").stat().st_mode


def test_the_same_work_gives_the_same_bytes_again():
    make(Path("a"))
    make(Path("b"))
    assert [path.read_bytes() for path in sorted(Path("a").iterdir())] == [path.read_bytes() for path in sorted(Path("b").iterdir())]


def test_work_whose_very_result_stands_is_not_made_again():
    assert make(Path("out")) == "written"
    assert make(Path("out")) == "there"


@pytest.mark.parametrize("change", [{"value": 2}, {"cell": "note@two"}, {"how": {"shard": 2}}])
def test_any_change_of_what_it_is_made_of_makes_it_anew(change):
    make(Path("out"))
    assert make(Path("out"), **change) == "written"
    assert make(Path("out"), **change) == "there"


def test_a_changed_input_makes_it_anew():
    make(Path("source"), cell="source")
    make(Path("out"), inputs=[Path("source")])
    make(Path("source"), cell="source", value=2)
    assert make(Path("out"), inputs=[Path("source")]) == "written"


def test_another_version_of_the_contract_makes_it_anew():
    make(Path("out"))
    with work(Path("out"), replace(NOTES, version=4), cell="note@one", params={"value": 1}) as making:
        assert making is not None


def test_how_work_is_done_is_in_no_manifest():
    make(Path("out"), how={"shard_size": 12345})
    assert "shard_size" not in Path("out", MANIFEST).read_text()


def test_what_an_exception_left_is_continued_by_the_same_work_only():
    out = Path("out")
    with pytest.raises(RuntimeError), work(out, NOTES, cell="note@one", params={"value": 1}) as making:
        making.write_json("first.json", 1)
        raise RuntimeError
    assert not out.exists()
    with work(out, NOTES, cell="note@one", params={"value": 1}) as making:
        assert making.has("first.json")
        assert not making.has("second.json")
        making.write_json("second.json", 2)
    assert sorted(read_manifest(out, NOTES).files) == ["first.json", "second.json"]


def test_the_half_made_folder_of_other_settings_is_cleared_and_never_continued():
    for value in (1, 2):
        with pytest.raises(RuntimeError), work(Path("out"), NOTES, cell="note@one", params={"value": value}) as making:
            assert not making.has("first.json")
            making.write_json("first.json", value)
            raise RuntimeError
        assert len(work_folders()) == 1


def test_clearing_leaves_the_half_made_folders_of_other_cells():
    with pytest.raises(RuntimeError), work(Path("other"), NOTES, cell="note@one-more", params={}) as making:
        making.write_json("first.json", 1)
        raise RuntimeError
    make(Path("out"))
    assert [name.split(".")[0] for name in work_folders()] == ["note@one-more"]


def test_a_failed_remake_leaves_the_old_result_whole():
    make(Path("out"))
    before = manifest_digest(Path("out"))
    with pytest.raises(RuntimeError), work(Path("out"), NOTES, cell="note@one", params={"value": 2}):
        raise RuntimeError
    assert manifest_digest(Path("out")) == before


def test_a_file_written_half_is_never_under_its_name(tmp_path):
    def write_half(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError

    path = tmp_path / "deep" / "file.txt"
    with pytest.raises(RuntimeError):
        write_atomic(path, write_half)
    assert list(path.parent.iterdir()) == []


def test_an_interrupted_rewrite_leaves_the_old_file(tmp_path):
    def write_half(path: Path) -> None:
        path.write_text("ha")
        raise KeyboardInterrupt

    path = tmp_path / "deep" / "file.txt"
    write_atomic(path, lambda partial: partial.write_text("old"))
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, write_half)
    assert [(found.name, found.read_text()) for found in path.parent.iterdir()] == [("file.txt", "old")]


@pytest.fixture
def small_disk(tmp_path):
    """A real disk of 4 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], check=False, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_names_the_path_what_is_needed_and_what_is_free_and_keeps_what_was_committed(small_disk):
    making = Work(small_disk, small_disk / "out", MODEL)
    making.write_arrays("one", {"x": np.zeros(2_000_000, dtype=np.uint8)})
    with pytest.raises(OSError, match=r"cannot write .*/two: No space left on device \(it needs 3\.0 MB, 2\.\d MB are free there\)"):
        making.write_arrays("two", {"x": np.zeros(3_000_000, dtype=np.uint8)})
    with pytest.raises(OSError, match=r"cannot write .*/three: No space left on device \(2\.\d MB are free there\)"):
        making.write_file("three", lambda path: path.write_bytes(bytes(3_000_000)))
    assert [path.name for path in small_disk.iterdir()] == ["one"]


def test_a_result_that_does_not_fit_on_the_disk_of_its_place_says_so_and_stays_where_it_is(small_disk):
    def big(out: Path) -> None:
        with work(out, NOTES, cell="note@big", params={}) as making:
            if making and not making.has("big"):
                making.write_arrays("big", {"x": np.zeros(9_000_000, dtype=np.uint8)})

    with pytest.raises(OSError, match=r"cannot write .*No space left on device \(it needs 9\.0 MB, [34]\.\d MB are free there\)"):
        big(small_disk / "out")
    assert not list(small_disk.iterdir())
    big(Path("elsewhere"))
    assert (Path("elsewhere") / "big").stat().st_size > 9_000_000


def test_what_a_killed_library_left_is_no_part_of_the_result():
    with pytest.raises(KeyboardInterrupt), work(Path("out"), NOTES, cell="note@one", params={}) as making:
        making.write_table("notes.parquet", [{"number": 1}])
        (making.folder / ".tmpBLDOyW").write_text("half a shard of safetensors")
        (making.folder / ".x.7.partial").write_text("half a file of ours")
        raise KeyboardInterrupt
    with work(Path("out"), NOTES, cell="note@one", params={}) as making:
        assert making.has("notes.parquet")
    assert sorted(path.name for path in Path("out").iterdir()) == ["manifest.json", "notes.parquet"]


def test_every_kind_of_file_may_be_read_by_whoever_may_read_the_folder(tmp_path):
    making = Work(tmp_path, tmp_path / "out", NOTES)
    making.write_arrays("arrays", {"x": np.zeros(3)})
    making.write_json("json", {})
    (tmp_path / "plain").write_text("")
    assert {path.stat().st_mode for path in tmp_path.iterdir() if path.is_file()} == {(tmp_path / "plain").stat().st_mode}


@pytest.mark.parametrize("write", ["arrays", "text"])
def test_a_file_larger_than_is_allowed_is_named_and_leaves_nothing(tmp_path, write):
    script = f"""
import resource
import numpy as np
from pathlib import Path
from latentry.contracts import MODEL
from latentry.store import Work
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
making = Work(Path({str(tmp_path / "work")!r}), Path("out"), MODEL)
try:
    making.write_arrays("a", {{"x": np.zeros(5000)}}) if {write == "arrays"} else making.write_file("a", lambda path: path.write_text("x" * 5000))
except OSError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "cannot write" in said and f"{tmp_path}/work/a: File too large" in said
    assert not list((tmp_path / "work").iterdir())


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("")
    with pytest.raises(OSError, match=r"cannot write .*folder"):
        write_atomic(tmp_path / "folder", lambda path: path.write_text("x"))


WRITER = """
    import os, sys, time
    from pathlib import Path
    from latentry.contracts import MODEL
    from latentry.store import work

    def slow(path):
        with path.open("w") as file:
            file.write("x" * 100)
            file.flush()
            print("half", flush=True)
            time.sleep(float(sys.argv[1]))
            file.write("y" * 100)

    with work(Path(sys.argv[2]), MODEL, cell="models@m", params={"out": sys.argv[2]}) as making:
        if making is None:
            print("there")
            raise SystemExit
        print(sorted(name for name in ("one", "two") if making.has(name)), flush=True)
        if not making.has("one"):
            making.write_file("one", lambda path: path.write_text("whole"))
        if not making.has("two"):
            making.write_file("two", slow)
"""


def writer(project: Path, sleep: float, out: str = "out") -> subprocess.Popen:
    script = project / "writer.py"
    script.write_text(textwrap.dedent(WRITER))
    return subprocess.Popen(
        [sys.executable, str(script), str(sleep), out],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ.copy(),
    )


def test_a_killed_writer_leaves_no_half_file_and_the_next_run_goes_on_where_it_stopped(project):
    first = writer(project, 600)
    assert [first.stdout.readline().strip() for _ in range(2)] == ["[]", "half"]
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not Path("out").exists()
    assert [path.name for path in cache_folder("work").glob("*/*") if not path.name.startswith(".")] == ["one"]

    second = writer(project, 0)
    said, _ = second.communicate(timeout=60)
    assert said.splitlines()[0] == "['one']"
    assert Path("out/two").read_text() == "x" * 100 + "y" * 100
    assert set(read_manifest(Path("out"), MODEL).files) == {"one", "two"}
    assert sorted(path.name for path in Path("out").iterdir()) == ["manifest.json", "one", "two"]

    third = writer(project, 0)
    assert third.communicate(timeout=60)[0].strip() == "there"


def test_a_second_process_waits_for_the_first_says_so_and_then_finds_its_result(project):
    first = writer(project, 1.5)
    assert [first.stdout.readline().strip() for _ in range(2)] == ["[]", "half"]
    started = time.monotonic()
    second = writer(project, 0)
    said, complained = second.communicate(timeout=60)
    first.communicate(timeout=60)
    assert first.returncode == second.returncode == 0, complained
    assert said.strip() == "there"
    assert f"pid {first.pid}" in complained
    assert time.monotonic() - started > 0.5


def test_the_same_cell_of_two_experiments_is_made_at_once_and_the_half_made_folder_of_a_living_one_is_left(project):
    first = writer(project, 600)
    assert [first.stdout.readline().strip() for _ in range(2)] == ["[]", "half"]
    said, complained = writer(project, 0, "other").communicate(timeout=60)
    assert said.split() == ["[]", "half"] and not complained
    assert Path("other", MANIFEST).is_file()
    assert len(work_folders()) == 1
    first.send_signal(signal.SIGKILL)
    first.wait()
    said, complained = writer(project, 0).communicate(timeout=60)
    assert said.splitlines()[0] == "['one']" and not complained


def test_many_processes_at_one_cell_end_with_whole_results_and_no_lock_of_a_cleared_folder(project):
    writers = [writer(project, 0.01, f"out{number % 3}") for number in range(6)]
    assert all(process.communicate(timeout=120) and process.returncode == 0 for process in writers)
    assert all(set(read_manifest(Path(f"out{number}"), MODEL).files) == {"one", "two"} for number in range(3))
    writer(project, 0, "last").communicate(timeout=60)
    assert work_folders() == []
    assert len(list(cache_folder("work").glob("models@m.*.lock"))) == 1


def test_a_folder_that_is_not_there_says_which_stage_to_rerun(tmp_path):
    with pytest.raises(ContractError, match=r"nowhere: holds no complete 'latents'.*rerun `dvc repro latents`"):
        read_manifest(tmp_path / "nowhere", LATENTS)


def test_a_folder_without_its_manifest_is_not_complete():
    make(Path("out"))
    Path("out", MANIFEST).unlink()
    with pytest.raises(ContractError, match="rerun `dvc repro note`"):
        read_table(Path("out"), NOTES, "notes.parquet")
    with pytest.raises(ContractError, match="out: holds no complete results"):
        manifest_digest(Path("out"))


def test_another_version_says_both_versions_and_which_stage_to_rerun():
    make(Path("out"))
    with pytest.raises(ContractError, match=r"holds contract 'notes' v3, this code reads 'notes' v4; rerun `dvc repro note`"):
        read_manifest(Path("out"), replace(NOTES, version=4))


def test_another_contract_is_refused():
    make(Path("out"))
    with pytest.raises(ContractError, match=r"holds contract 'notes' v3, this code reads 'scores' v\d+; rerun `dvc repro score`"):
        read_manifest(Path("out"), SCORES)


@pytest.mark.parametrize("text", ["{", "", "\x00"])
def test_a_damaged_manifest_says_which_stage_to_rerun(text):
    make(Path("out"))
    Path("out", MANIFEST).write_text(text)
    with pytest.raises(ContractError, match="rerun `dvc repro note`"):
        read_manifest(Path("out"), NOTES)


def test_other_columns_are_refused_with_both_lists():
    make(Path("out"))
    pq.write_table(pa.table({"numbre": [1]}), "out/notes.parquet")
    with pytest.raises(ContractError, match=r"numbre.*number.*rerun `dvc repro note`"):
        read_table(Path("out"), NOTES, "notes.parquet")


@pytest.mark.parametrize(
    "damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"PAR1"), lambda path: path.write_bytes(path.read_bytes()[:-9])]
)
def test_a_missing_or_damaged_table_says_which_stage_to_rerun(damage):
    make(Path("out"))
    damage(Path("out/notes.parquet"))
    with pytest.raises(ContractError, match=r"notes\.parquet: unreadable .*rerun `dvc repro note`"):
        read_table(Path("out"), NOTES, "notes.parquet")


def test_a_missing_input_stops_before_any_work():
    with pytest.raises(ContractError, match="no-such"):
        make(Path("out"), inputs=[Path("no-such")])
    assert work_folders() == []


EXAMPLE = Example(
    latent=3,
    example_id="3-1",
    split=Split.HELD_OUT,
    kind=Kind.ACTIVATING,
    source="windows",
    contrast="",
    rank=0,
    decile=10,
    document=2,
    context=4,
    start=8,
    tokens=(0, 5, 4_000_000_000),
    activations=(0.0, 0.5, 0.125),
    text="  日本 🙂\n",
    spans=(0, 2, 2, 4, 5, 6),
    marks=(2, 4),
)
JUDGMENT = Judgment(
    latent=3,
    explainer="lexical",
    example_id="3-1",
    null=False,
    is_activating=True,
    says_activating=None,
    confidence=0.25,
    status=Status.OK,
    detail="",
    reply_key=None,
)
FAILED = replace(JUDGMENT, confidence=None, status=Status.REFUSED, detail="would not", reply_key="abc")
EXPLANATION = Explanation(
    latent=3, explainer="lexical", text=None, status=Status.DEAD, detail="silent", prompt_digest="d", reply=None, reply_key=None
)


@pytest.mark.parametrize(
    ("contract", "name", "records"),
    [
        (EXAMPLES, "examples.parquet", [EXAMPLE]),
        (SCORES, "judgments.parquet", [JUDGMENT, FAILED]),
        (EXPLANATIONS, "explanations.parquet", [EXPLANATION]),
        (EXPLANATIONS, "explanations.parquet", []),
    ],
)
def test_records_come_back_equal(contract, name, records):
    with work(Path("out"), contract, cell="c", params={}) as making:
        making.write_table(name, records)
    found = read_records(Path("out"), contract, name, type(records[0]) if records else Explanation)
    assert found == records
    assert all(isinstance(one.status, Status) for one in found if hasattr(one, "status"))


@pytest.mark.parametrize(
    ("record", "change"),
    [
        (EXAMPLE, {"kind": Kind.CONTRAST}),
        (EXAMPLE, {"tokens": (1, 2)}),
        (EXAMPLE, {"spans": (0, 2)}),
        (EXPLANATION, {"status": Status.OK}),
        (EXPLANATION, {"text": "said"}),
        (JUDGMENT, {"status": Status.PARSE_ERROR}),
        (FAILED, {"status": Status.OK}),
    ],
)
def test_a_record_that_contradicts_itself_cannot_be_made(record, change):
    with pytest.raises(ValueError, match=r"\w"):
        replace(record, **change)


def test_a_value_that_does_not_fit_its_column_is_refused():
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)):
        table_of([{"number": "many"}], NOTES.tables["notes.parquet"])


def test_a_table_is_written_in_the_columns_and_types_of_its_contract():
    with work(Path("out"), NOTES, cell="c", params={}) as making:
        making.write_table("notes.parquet", pa.table({"extra": [1], "number": pa.array([7], pa.int8())}))
    assert read_table(Path("out"), NOTES, "notes.parquet").schema == NOTES.tables["notes.parquet"]


def test_json_with_nan_is_refused_and_leaves_nothing():
    with pytest.raises(ValueError, match="JSON"), work(Path("out"), NOTES, cell="c", params={}) as making:
        making.write_json("a.json", {"x": float("nan")})
    assert not any(path.name == "a.json" for path in cache_folder("work").rglob("*"))


def test_arrays_come_back_equal_also_when_they_were_views():
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T
    with work(Path("out"), NOTES, cell="c", params={}) as making:
        making.write_arrays("a.safetensors", {"x": array})
    assert np.array_equal(load_file("out/a.safetensors")["x"], array)


def test_digests_follow_content_and_not_the_order_of_keys(tmp_path):
    assert digest_of({"a": 1, "b": [2, "é"]}) == digest_of({"b": [2, "é"], "a": 1})
    assert digest_of({"a": [1, 2]}) != digest_of({"a": [2, 1]})
    (tmp_path / "x").write_bytes(b"abc")
    assert file_digest(tmp_path / "x") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_the_root_is_dvc_root_else_the_nearest_folder_with_dvc(tmp_path, monkeypatch):
    (tmp_path / "study" / ".dvc").mkdir(parents=True)
    (tmp_path / "study" / "deep" / "down").mkdir(parents=True)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.chdir(tmp_path / "study" / "deep" / "down")
    assert project_root() == tmp_path / "study"
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    assert project_root() == tmp_path


def test_a_manifest_is_plain_json_without_nan():
    make(Path("out"))
    assert set(json.loads(Path("out", MANIFEST).read_text())) == {
        "contract",
        "version",
        "cell",
        "key",
        "params",
        "inputs",
        "counts",
        "files",
        "sizes",
    }


@pytest.mark.parametrize("harm", ["truncated", "missing"])
def test_an_input_whose_file_is_damaged_is_refused_before_it_is_read(harm):
    make(Path("in"))
    file = Path("in", next(iter(json.loads(Path("in", MANIFEST).read_text())["files"])))
    if harm == "missing":
        file.unlink()
    else:
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content[:-1])
    with pytest.raises(ContractError, match=r"run `dvc repro`"):
        manifest_digest(Path("in"))


def test_an_empty_manifest_is_refused():
    make(Path("in"))
    Path("in", MANIFEST).write_text("")
    with pytest.raises(ContractError, match="is no manifest"):
        manifest_digest(Path("in"))


def test_content_is_told_apart_from_the_code_and_settings_that_made_it():
    """What was paid for under one model's weights stays good when the code that fetched them changes."""
    make(Path("one"))
    make(Path("again"), cell="note@other")
    make(Path("other"), value=2)
    assert manifest_digest(Path("one")) != manifest_digest(Path("again"))
    assert content_digest(Path("one")) == content_digest(Path("again"))
    assert content_digest(Path("one")) != content_digest(Path("other"))
