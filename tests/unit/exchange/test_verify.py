"""Verification: what was written is fine wherever it lies, and every single change of it is found and named."""

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from latentry.cli import commands
from latentry.contracts import EXAMPLES, EXPLANATIONS, SAE, Contract
from latentry.errors import ContractError
from latentry.exchange.remotes import why_nothing
from latentry.exchange.verify import remove_empty_folders, verify, version_faults
from latentry.store import work

LOCKED = "74e6274343c25e0f2c019cb8e9e71674.dir"
"""What `dvc add report` of DVC 3.67 gives for REPORT."""
REPORT = {"index.html": "one\n", "data/b/2.js": "two\n", "data/10.js": "ten\n"}
LISTED = [
    {"md5": "5d143f4f47b62ab4a22f01b285d05a06", "relpath": "data/10.js"},
    {"md5": "c193497a1a06b2c72230e6146ff47080", "relpath": "data/b/2.js"},
    {"md5": "5bbf5a52328e7439ae6e719dfe712200", "relpath": "index.html"},
]
"""What its cache then holds of it."""


def made(folder: str, contract: Contract, content: str, *inputs: str) -> None:
    """A finished folder, as a stage writes it from the project's root."""
    with work(Path(folder), contract, cell=f"{contract.stage}@x", params={}, inputs=map(Path, inputs)) as making:
        assert making is not None
        making.write_json("content.json", content)
        making.write_json("below/more.json", [content])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of three folders, each made from those before it, and a locked report."""
    root = tmp_path_factory.mktemp("whole")
    (root / ".dvc").mkdir()
    with contextlib.chdir(root):
        made("data/saes/x", SAE, "a SAE")
        made("data/examples/x", EXAMPLES, "examples", "data/saes/x")
        made("data/explanations/x", EXPLANATIONS, "explanations", "data/saes/x", "data/examples/x")
        for name, text in REPORT.items():
            Path("report", name).parent.mkdir(parents=True, exist_ok=True)
            Path("report", name).write_text(text)
        lock = f"stages:\n  compare:\n    cmd: compare\n    outs:\n    - path: report\n      hash: md5\n      md5: {LOCKED}\n"
        Path("dvc.lock").write_text(f"schema: '2.0'\n{lock}")
    return root


@pytest.fixture
def project(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(whole, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return Path("data")


def faults_of(*folders: str | Path) -> list[str]:
    return list(verify([Path(folder) for folder in folders or ("data", "report")]).faults)


def test_what_was_written_is_fine_and_counted(project: Path) -> None:
    found = verify([project, Path("report")])
    assert (found.faults, found.not_checked) == ((), ())
    assert {folder.as_posix() for folder in found.folders} == {"data/saes/x", "data/examples/x", "data/explanations/x", "report"}
    files = [path for folder in ("data", "report") for path in Path(folder).rglob("*") if path.is_file()]
    assert (found.n_files, found.n_bytes) == (len(files), sum(path.stat().st_size for path in files))
    assert found.n_links == 3


@pytest.mark.parametrize("path", sorted(["below/more.json", "content.json"]))
def test_every_changed_byte_of_a_file_is_found(project: Path, path: str) -> None:
    file = project / "examples" / "x" / path
    written = file.read_bytes()
    for at in range(len(written)):
        file.write_bytes(written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :])
        (fault,) = faults_of()
        assert fault.startswith(f"data/examples/x/{path}: has changed")


def test_a_changed_manifest_is_found_by_what_was_made_from_it(project: Path) -> None:
    manifest = project / "saes" / "x" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"params": {}', '"params": {"seed": 1}'))
    assert [fault.split(" than ")[0] for fault in faults_of()] == [
        f"data/{kind}/x: was made from another data/saes/x" for kind in ("examples", "explanations")
    ]


@pytest.mark.usefixtures("project")
def test_a_changed_manifest_of_a_folder_that_nobody_reads_is_found_by_the_lock() -> None:
    lock = Path("dvc.lock")
    lock.write_text(
        lock.read_text() + "    - path: data/explanations/x\n      hash: md5\n      md5: 0123456789abcdef0123456789abcdef.dir\n"
    )
    (fault,) = faults_of()
    assert fault.startswith("data/explanations/x: is not what dvc.lock names")


def test_all_that_is_wrong_is_told_at_once(project: Path) -> None:
    (project / "saes" / "x" / "content.json").unlink()
    (project / "saes" / "x" / "extra\x1b[2J.txt").write_text("?")
    (project / "examples" / "x" / "content.json").write_text("longer than it was")
    (project / "explanations" / "x" / "below" / "more.json").write_bytes(b"[]" + b" " * (16))
    manifest = project / "explanations" / "x" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"version": {EXPLANATIONS.version}', '"version": 99'))
    (project / "scores" / "x").mkdir(parents=True)
    (project / "scores" / "x" / "scores.parquet").write_bytes(b"PAR1")
    faults = "\n".join(faults_of())
    for said in (
        "data/saes/x/content.json: is missing",
        "data/saes/x/extra␛[2J.txt: is extra",
        "data/examples/x/content.json: has 18 bytes, the manifest says 11",
        "data/explanations/x: holds contract 'explanations' v99",
        "data/explanations/x/below/more.json: has",
        "data/scores/x: holds files and no manifest.json",
    ):
        assert said in faults
    assert faults.count("\n") == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "is no manifest"), ("[]", "is no manifest"), ('{"files": {"a": 1}}', "is no manifest"), ("\xff", "is no manifest")],
)
def test_a_manifest_that_cannot_be_read_is_a_fault(project: Path, text: str, said: str) -> None:
    (project / "explanations" / "x" / "manifest.json").write_bytes(text.encode("latin-1"))
    assert any(said in fault for fault in faults_of())


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/passwd", "a/../../outside.txt", "..\\outside.txt"])
def test_no_manifest_leads_out_of_its_folder(project: Path, name: str) -> None:
    (project / "explanations" / "outside.txt").write_text("")
    manifest = project / "explanations" / "x" / "manifest.json"
    held = json.loads(manifest.read_text())
    held["files"][name], held["sizes"][name] = "0" * 64, 0
    manifest.write_text(json.dumps(held))
    assert any("is no path within the folder" in fault for fault in faults_of("data/explanations/x"))


def test_a_pipe_and_a_dead_link_are_told_and_not_waited_for(project: Path) -> None:
    (project / "examples" / "x" / "content.json").unlink()
    os.mkfifo(project / "examples" / "x" / "content.json")
    (project / "saes" / "x" / "content.json").unlink()
    (project / "saes" / "x" / "content.json").symlink_to("/nowhere")
    assert [fault.partition(":")[0] for fault in faults_of()] == ["data/examples/x/content.json", "data/saes/x/content.json"]


def test_files_that_are_links_into_a_cache_are_as_good_as_files(project: Path, tmp_path: Path) -> None:
    file = project / "saes" / "x" / "content.json"
    shutil.move(file, tmp_path / "cached")
    file.symlink_to(tmp_path / "cached")
    assert faults_of() == []
    (tmp_path / "cached").write_text('"a SAe"\n')
    assert len(faults_of()) == 1


def test_a_folder_fetched_alone_is_checked_and_what_it_was_made_from_is_told(project: Path, tmp_path: Path) -> None:
    alone, other = tmp_path / "got", tmp_path / "examples-got"
    shutil.copytree(project / "explanations" / "x", alone)
    shutil.copytree(project / "examples" / "x", other)
    found = verify([alone])
    assert found.faults == ()
    assert [line.split(":")[0] for line in found.not_checked] == ["data/examples/x", "data/saes/x"]
    both = verify([alone, other])
    assert both.n_links == 1
    assert [line.split(" made")[0] for line in both.not_checked] == ["data/saes/x: is not here; 2 folders were"]
    (alone / "content.json").write_text('"Explanations"\n')
    assert len(faults_of(alone)) == 1


@pytest.mark.usefixtures("project")
def test_a_report_is_compared_with_what_dvc_locked() -> None:
    page = Path("report/data/b/2.js")
    page.write_text("tvo\n")
    assert [fault.partition(";")[0] for fault in faults_of()] == ["report: is not what dvc.lock names"]
    cached = Path(".dvc/cache/files/md5", LOCKED[:2], LOCKED[2:])
    cached.parent.mkdir(parents=True)
    cached.write_text(json.dumps(LISTED))
    Path("report/data/10.js").unlink()
    Path("report/more.js").write_text("more\n")
    assert [" ".join(fault.split()[:4]) for fault in faults_of()] == [
        "report/data/10.js: is missing; dvc.lock",
        "report/data/b/2.js: is not what",
        "report/more.js: is extra; dvc.lock",
    ]


def test_a_lock_cut_short_is_told_and_stops_nothing(project: Path) -> None:
    Path("dvc.lock").write_text("stages:\n  compare: {outs: [")
    found = verify([project])
    assert found.faults == ()
    assert any("dvc.lock: cannot be read" in line for line in found.not_checked)


def test_a_report_that_nothing_tells_of_is_not_checked_and_no_fault(project: Path, tmp_path: Path) -> None:
    Path("dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
    found = verify([project, Path("report")])
    assert (found.faults, {line.split("/")[0] for line in found.not_checked}) == ((), {"report"})
    shutil.copytree("report", tmp_path / "got")
    with pytest.raises(ContractError, match=r"no manifest\.json in it, and no dvc\.lock that names it"):
        verify([tmp_path / "got"])


def test_in_a_projects_data_a_folder_without_its_manifest_is_a_fault_also_without_a_lock(project: Path) -> None:
    Path("dvc.lock").unlink()
    Path("dvc.yaml").touch()
    (project / "saes" / "x" / "manifest.json").unlink()
    assert any(fault.startswith("data/saes/x: holds files and no manifest.json") for fault in faults_of("data"))


def test_where_there_are_no_results_nothing_is_called_fine(project: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ContractError, match="no results there"):
        verify([tmp_path / "empty", Path("nowhere")])
    (project / "saes" / "notes.txt").write_text("mine")
    (project / "saes" / "x.dvc").write_text("")
    assert verify([project]).not_checked == ("data/saes/notes.txt: belongs to no results that have a manifest or a lock",)


def test_an_export_is_no_damaged_folder_of_results(project: Path) -> None:
    (project / "exported").mkdir()
    for name in ("provenance.json", "README.md"):
        (project / "exported" / name).touch()
    found = verify([project])
    assert (found.faults, found.not_checked) == ((), ("data/exported: belongs to no results that have a manifest or a lock",))
    with pytest.raises(ContractError, match="no results there"):
        verify([project / "exported"])


@pytest.mark.usefixtures("project")
def test_the_command_tells_of_folders_and_bundles_together(tmp_path: Path) -> None:
    said = CliRunner().invoke(commands, ["verify"])
    assert said.exit_code == 0
    assert said.output.startswith("all is as written: 4 folders (12 files, ")
    (tmp_path / "study.zip").write_bytes(b"PK")
    Path("data/saes/x/content.json").unlink()
    wrong = CliRunner().invoke(commands, ["verify", "data/saes", str(tmp_path / "study.zip")])
    assert isinstance(wrong.exception, ContractError)
    faults = [line for line in str(wrong.exception).splitlines() if line.startswith("  - ")]
    assert [fault.split(": ")[0] for fault in faults] == ["  - data/saes/x/content.json", f"  - {tmp_path / 'study.zip'}"]


def test_versions_are_known_from_manifests_alone(project: Path) -> None:
    assert version_faults(project) == []
    (project / "saes" / "x" / "content.json").unlink()
    manifest = project / "examples" / "x" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"contract": "examples"', '"contract": "pictures"'))
    assert version_faults(project) == ["data/examples/x: holds contract 'pictures', which this version of latentry does not know"]


def test_only_empty_folders_are_removed(project: Path) -> None:
    (project / "models" / "subject" / "deep").mkdir(parents=True)
    remove_empty_folders(project)
    assert not (project / "models").exists()
    assert faults_of() == []


@pytest.mark.parametrize(
    ("listed", "remote", "said"),
    [
        ("", None, "no default remote is set"),
        ("other\t/somewhere\n", None, "no default remote is set"),
        ("other\t/somewhere\n", "gone", "remote 'gone' is not set (there are: other)"),
        ("storage\t/somewhere\t(default)\n", "mine", "remote 'mine' is not set (there are: storage)"),
        ("storage /not there/dvc     (default)\n", None, "remote 'storage' at /not there/dvc is not there"),
        ("storage {here}\t(default)\n", None, "does not hold these results"),
        ("a /x\t(default)\nweb https://me:secret@example.org/x\n", "web", "remote 'web' at https://example.org/x is down, refuses you"),
        ("b s3://bucket/x (default)\n", None, "remote 'b' at s3://bucket/x is down, refuses you"),
    ],
)
def test_a_remote_that_gave_nothing_is_explained(tmp_path: Path, listed: str, remote: str | None, said: str) -> None:
    told = why_nothing(listed.replace("{here}", str(tmp_path)), remote)
    assert said in told
    assert "secret" not in told
    assert "`dvc " in told


@pytest.mark.parametrize("below", ["", "files", "files/md5"])
def test_a_folder_that_may_not_be_read_is_told_as_such(below: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        closed = Path(folder, "storage", below)
        closed.mkdir(parents=True)
        closed.chmod(0)
        was = os.geteuid()
        if was == 0:  # root may read everything: be nobody for the moment
            os.seteuid(65534)
        try:
            said = why_nothing(f"storage {folder}/storage (default)")
        finally:
            os.seteuid(was)
            closed.chmod(0o700)
    assert "may not be read by you" in said


def test_a_folder_that_only_git_keeps_is_nothing_to_check(project: Path) -> None:
    (project / "edges").mkdir()
    (project / "edges" / ".keep").write_text("")
    found = verify([project])
    assert (found.faults, found.not_checked) == ((), ())
