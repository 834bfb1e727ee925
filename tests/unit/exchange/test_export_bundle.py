"""Bundles: the same results give the same bytes, and a file from elsewhere is believed only where it is what it lists."""

import hashlib
import json
import shutil
import stat
import struct
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from exportable_study import make_exportable, study_params
from latentry.cli.verification import verify
from latentry.errors import ContractError, ExchangeError
from latentry.exchange.bundle import export_bundle
from latentry.exchange.bundle_file import open_bundle
from latentry.store import MANIFEST, file_digest

ABOUT = {"format": "latentry bundle", "version": 1, "commit": "abc"}


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("study")
    make_exportable(root)
    return root


@pytest.fixture(scope="module")
def bundle(study, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("bundle") / "results.zip"
    export_bundle(study, study_params(), out)
    return out


def packed(path: Path, files: Mapping[str, bytes], sums: Mapping[str, bytes] | None = None, about: Mapping[str, object] = ABOUT) -> Path:
    """A zip made by hand with a right list of checksums, or one of other contents."""
    whole = {"bundle.json": json.dumps(about).encode(), **files}
    listed = {"bundle.json": whole["bundle.json"], **(files if sums is None else sums)}
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in listed.items()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as into:
        for name, content in {**whole, "SHA256SUMS": "".join(lines).encode()}.items():
            into.writestr(name, content)
    return path


def test_the_same_results_give_the_same_bytes(study, bundle, tmp_path):
    done = export_bundle(study, study_params(), tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()
    assert done.digest == file_digest(bundle)


@pytest.mark.parametrize("name", ["params.yaml", "notes.zip"])
def test_force_replaces_an_earlier_bundle_and_no_other_file(study, bundle, tmp_path, name):
    mine = tmp_path / name
    mine.write_text("seed: 0")
    if name.endswith(".zip"):
        with zipfile.ZipFile(mine, "w") as file:
            file.writestr("bundle.json", "{}")
    before = mine.read_bytes()
    with pytest.raises(ExchangeError, match="there already"):
        export_bundle(study, study_params(), mine)
    with pytest.raises(ExchangeError, match="is no bundle of latentry's"):
        export_bundle(study, study_params(), mine, force=True)
    assert mine.read_bytes() == before
    earlier = packed(tmp_path / "earlier.zip", {}, about=ABOUT | {"version": 0})
    export_bundle(study, study_params(), earlier, force=True)
    assert earlier.read_bytes() == bundle.read_bytes()


def test_it_holds_report_tables_manifests_and_what_reproduces_them(study, bundle):
    opened = open_bundle(bundle)
    wanted = ["report/index.html", "params.yaml", "dvc.yaml", "dvc.lock", "data/comparison/cells.parquet", "data/tokens/manifest.json"]
    wanted += ["data/latents/topk-1k/manifest.json", "data/scores/topk-1k/detection/judgments.parquet", "data/saes/topk-1k/evaluation.json"]
    for name in wanted:
        assert opened.read(name) == (study / name).read_bytes(), name
    assert not [name for name in opened.sums if name.endswith((".safetensors", "cfg.json"))]
    assert set(opened.about["saes"]) == {"topk-1k", "jumprelu-1k"}
    manifest = json.loads(opened.read("data/comparison/manifest.json"))
    assert opened.sums["data/comparison/cells.parquet"] == manifest["files"]["cells.parquet"]


def test_other_tools_unpack_and_check_it(bundle, tmp_path):
    with zipfile.ZipFile(bundle) as file:
        file.extractall(tmp_path)
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    listed = {line.split("  ", 1)[1] for line in (tmp_path / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()} - {"SHA256SUMS"}


def test_missing_extra_and_changed_files_are_all_named(tmp_path):
    path = packed(
        tmp_path / "b.zip", {"a.txt": b"new", "extra.txt": b"", "same.txt": b"s"}, sums={"a.txt": b"old", "gone.txt": b"", "same.txt": b"s"}
    )
    with pytest.raises(ExchangeError) as refused:
        open_bundle(path)
    said = str(refused.value)
    assert "a.txt has changed" in said
    assert "gone.txt is missing" in said
    assert "extra.txt is extra" in said
    assert "same.txt" not in said


def test_a_flipped_byte_is_found_wherever_it_is(bundle, tmp_path):
    content = bytearray(bundle.read_bytes())
    with zipfile.ZipFile(bundle) as file:
        entry = file.getinfo("data/comparison/cells.parquet")
    content[entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2] ^= 1
    (tmp_path / "b.zip").write_bytes(content)
    with pytest.raises(ExchangeError, match=r"data/comparison/cells\.parquet has changed"):
        open_bundle(tmp_path / "b.zip")
    (tmp_path / "short.zip").write_bytes(bundle.read_bytes()[:-200])
    with pytest.raises(ExchangeError, match="cannot be read as a bundle"):
        open_bundle(tmp_path / "short.zip")


@pytest.mark.parametrize(
    "name", ["../up.txt", "a/../../up.txt", "/etc/passwd", "C:/windows/x", "a\\..\\b", "a//b", "./a", "folder/", "a\nb", "\u202etxt.exe"]
)
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path, name):
    with pytest.raises(ExchangeError, match=r"no path within a folder|no file"):
        open_bundle(packed(tmp_path / "b.zip", {name: b""}))


def test_a_name_cut_at_a_zero_byte_is_refused(tmp_path):
    path = packed(tmp_path / "b.zip", {"a.txtX.exe": b""})
    path.write_bytes(path.read_bytes().replace(b"a.txtX.exe", b"a.txt\x00.exe"))
    with pytest.raises(ExchangeError, match="no path within a folder"):
        open_bundle(path)


@pytest.mark.parametrize(("kind", "said"), [(stat.S_IFLNK, "is a link"), (stat.S_IFIFO, "is no file")])
def test_links_and_devices_are_refused(tmp_path, kind, said):
    path = packed(tmp_path / "b.zip", {})
    entry = zipfile.ZipInfo("report")
    entry.create_system, entry.external_attr = 3, (kind | 0o777) << 16
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(entry, "/etc")
    with pytest.raises(ExchangeError, match=f"report {said}"):
        open_bundle(path)


@pytest.mark.parametrize("names", [("a.txt", "a.txt"), ("a.txt", "A.TXT"), ("é", "e\u0301")])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_are_one_on_some_disk_are_refused(tmp_path, names):
    path = packed(tmp_path / "b.zip", {names[0]: b"one"})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(names[1], b"two")
    with pytest.raises(ExchangeError, match="stands twice"):
        open_bundle(path)


def test_a_bomb_is_refused_by_what_it_declares_and_one_that_lies_is_found_out(tmp_path):
    path = packed(tmp_path / "b.zip", {"zeros": bytes(5_000_000)})
    with pytest.raises(ExchangeError, match=r"unpacks to 5,000,\d{3} bytes by its own account, 1,000,000 are allowed"):
        open_bundle(path, max_bytes=1_000_000)
    content = path.read_bytes().replace(struct.pack("<I", 5_000_000), struct.pack("<I", 10))
    (tmp_path / "lies.zip").write_bytes(content)
    with pytest.raises(ExchangeError, match="zeros has changed"):
        open_bundle(tmp_path / "lies.zip", max_bytes=1_000_000)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version_is_refused_with_what_wrote_it(tmp_path, version):
    with pytest.raises(ExchangeError, match=r"version .*this latentry reads version 1.*commit abc"):
        open_bundle(packed(tmp_path / "b.zip", {}, about={**ABOUT, "version": version}))


@pytest.mark.parametrize("about", [{}, {"format": "other"}, [], {"format": ["latentry bundle"]}])
def test_another_format_is_refused(tmp_path, about):
    with pytest.raises(ExchangeError, match=r"bundle\.json is not that of"):
        open_bundle(packed(tmp_path / "b.zip", {}, about=about))


def test_what_is_no_zip_or_no_bundle_is_refused(tmp_path):
    (tmp_path / "text").write_text("no zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("a.txt", "x")
    for name, said in {"text": "cannot be read", "other.zip": r"no readable bundle\.json", "absent.zip": "cannot be read"}.items():
        with pytest.raises(ExchangeError, match=said):
            open_bundle(tmp_path / name)


def test_results_that_are_not_whole_make_no_bundle(study, tmp_path):
    for lost, said in {
        "report/index.html": "dvc repro compare",
        "dvc.lock": "dvc.lock: is not there",
        f"data/scores/topk-1k/fuzzing/{MANIFEST}": "fuzzing",
    }.items():
        own = Path(shutil.copytree(study, tmp_path / lost.replace("/", "-")))
        (own / lost).unlink()
        with pytest.raises(ContractError, match=said):
            export_bundle(own, study_params(), tmp_path / "out.zip")
    assert not list(tmp_path.glob("*out.zip*"))


def test_nothing_is_exported_to_where_stages_write(study, tmp_path):
    own = Path(shutil.copytree(study, tmp_path / "own"))
    with pytest.raises(ExchangeError, match=r"lies in a project's data.* exports/results\.zip"):
        export_bundle(own, study_params(), own / "data" / "results.zip")


def test_a_bundle_of_changed_code_says_so(study, tmp_path, monkeypatch):
    monkeypatch.setattr("latentry.exchange.provenance.commit_of", lambda _: {"commit": "abc", "dirty": "true"})
    done = export_bundle(study, study_params(), tmp_path / "out.zip")
    assert done.made_at == "commit abc, with changes that are not in it"
    assert done.made_at in CliRunner().invoke(verify, [str(tmp_path / "out.zip")]).output


def test_the_command_checks_a_bundle(bundle):
    done = CliRunner().invoke(verify, [str(bundle)])
    assert done.output.startswith(f"all is as written: {bundle} (")
    assert "topk-1k, jumprelu-1k" in done.output
    small = CliRunner().invoke(verify, [str(bundle), "--max-bytes", "1000"])
    assert isinstance(small.exception, ContractError)
    assert "raise it by --max-bytes" in str(small.exception)


def test_the_command_counts_faults_and_says_what_to_do_once(tmp_path):
    changed = packed(tmp_path / "changed.zip", {"a": b"1", "b": b"2", "c": b"3"}, {"a": b"other", "b": b"other", "c": b"3"})
    wrong = CliRunner().invoke(verify, [str(changed)])
    first, *faults, last = str(wrong.exception).splitlines()
    assert first == f"2 faults in {changed}"
    assert [fault.split(" has changed")[0] for fault in faults] == [f"  - {changed}: a", f"  - {changed}: b"]
    assert last == "to mend a bundle: get it anew from where it was exported"


def test_the_command_checks_what_a_bundle_was_unpacked_to(bundle, tmp_path):
    with zipfile.ZipFile(bundle) as whole:
        whole.extractall(tmp_path / "study")
    done = CliRunner().invoke(verify, [str(tmp_path / "study")])
    assert done.output.startswith(f"all is as written: {tmp_path / 'study'} (")
    (tmp_path / "study" / "params.yaml").write_text("seed: 1")
    (tmp_path / "study" / "dvc.lock").unlink()
    (tmp_path / "study" / "mine").touch()
    cells = tmp_path / "study" / "data" / "comparison" / "cells.parquet"
    cells.rename(tmp_path / "cells.parquet")
    cells.symlink_to(tmp_path / "cells.parquet")
    wrong = str(CliRunner().invoke(verify, [str(tmp_path / "study")]).exception).splitlines()
    assert wrong[0] == f"4 faults in {tmp_path / 'study'}"
    told = ("dvc.lock is missing", "mine is extra", "data/comparison/cells.parquet has changed", "params.yaml has changed")
    assert [line.startswith(f"  - {tmp_path / 'study'}: {begins}") for line, begins in zip(wrong[1:5], told, strict=True)] == [True] * 4
