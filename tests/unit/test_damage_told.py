"""Damage and full disks, one fault at a time: what is damaged is named or made anew, and never used. The whole runs are in `tests/faults`."""

import errno
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from latentry.atomic import full_disk_named, is_whole
from latentry.clients.reply_store import ReplyStore
from latentry.contracts import TOKENS
from latentry.databases import telling
from latentry.dvc_lock import parsed_lock
from latentry.embeddings import Embedder
from latentry.errors import ContractError
from latentry.records import Reply, Status
from latentry.saes.checkpoint import Checkpoint
from latentry.store import Work, manifest_digest
from planted_folders import token_folder

REPLY = Reply(status=Status.OK, text="naïve 🐋\n", detail="", alternatives={}, prompt_tokens=11, reply_tokens=2, model="m")
LOCK = """schema: '2.0'
stages:
  tokens:
    cmd: python stages/tokens.py
    deps:
    - path: stages/tokens.py
      hash: md5
      md5: 0123456789abcdef0123456789abcdef
      size: 10
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_bit_that_flipped_in_a_result_is_named_before_it_is_read(here):
    folder = token_folder(here / "tokens", np.zeros((4, 8), dtype=np.uint32))
    before = manifest_digest(folder)
    path = folder / "shard-00000.safetensors"
    flip(path, -20)
    with pytest.raises(ContractError, match=r"shard-00000.safetensors: has another content than was written; delete"):
        manifest_digest(folder)
    flip(path, -20)
    assert manifest_digest(folder) == before


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_shard_that_lacks_its_end_does_not_count_as_committed(here, share):
    making = Work(here / "work", here / "out", TOKENS)
    making.write_arrays("a.safetensors", {"x": np.arange(999)})
    making.write_table("documents.parquet", [{"document": n, "name": "a", "text": "b"} for n in range(99)])
    assert making.has("a.safetensors") and making.has("documents.parquet")
    for name in ("a.safetensors", "documents.parquet"):
        whole = making.path(name).read_bytes()
        making.path(name).write_bytes(whole[: int(share * len(whole))])
        assert not making.has(name)
    assert not is_whole(here / "never")


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), OSError("[('a', 'b', '[Errno 28] No space left on device')]")],
    ids=["of a write", "of a copied tree"],
)
def test_a_full_disk_that_nobody_named_is_told_with_the_folder(tmp_path, error):
    with (
        pytest.raises(OSError, match=rf"cannot write {tmp_path}: No space left on device \(.* are free there\)"),
        full_disk_named(tmp_path),
    ):
        raise error


def test_other_errors_of_files_pass_as_they_are(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^\[Errno 2\] gone$"), full_disk_named(tmp_path):
        raise FileNotFoundError(errno.ENOENT, "gone")


def test_a_store_without_room_names_its_file_and_keeps_what_it_has(tmp_path):
    store = ReplyStore(tmp_path)
    store.keep({"first": REPLY})
    store._connection.execute("PRAGMA max_page_count = 8")
    with pytest.raises(OSError, match=r"cannot write .*replies.sqlite: No space left on device"):
        store.keep({f"k{n}": replace(REPLY, text="long " * 500) for n in range(50)})
    store._connection.execute("PRAGMA max_page_count = 100000")
    assert set(store.find(["first", "k0"])) == {"first"}
    store.keep({"k0": REPLY})
    assert set(store.find(["first", "k0"])) == {"first", "k0"}


def test_a_reply_that_is_not_as_it_was_written_is_asked_again(tmp_path):
    store = ReplyStore(tmp_path)
    store.keep({"good": REPLY, "bad": REPLY, "broken": REPLY})
    with sqlite3.connect(store.path) as beside:
        beside.execute("UPDATE replies SET reply = replace(reply, 'na', 'ma') WHERE key = 'bad'")
        beside.execute("UPDATE replies SET reply = CAST(x'7bff' AS TEXT), checksum = NULL WHERE key = 'broken'")
    assert set(store.find(["good", "bad", "broken"])) == {"good"}
    assert store.keep({"bad": REPLY})["bad"].text == REPLY.text
    assert store.find(["bad"])["bad"].text == REPLY.text


def test_a_vector_that_is_not_as_it_was_written_is_made_again(tmp_path):
    class Model:
        def encode_document(self, texts, **_):
            return np.array([[len(text), 1.0] for text in texts], np.float32)

    (tmp_path / "model").mkdir()
    embedder = Embedder(tmp_path / "model", "cpu", 4, tmp_path / "c.sqlite", load=lambda *_: Model())
    right = embedder.documents(["a", "bb"])
    with sqlite3.connect(tmp_path / "c.sqlite") as beside:
        beside.execute("UPDATE checked_vectors SET vector = zeroblob(8)")
    assert embedder.documents(["a", "bb"]).tobytes() == right.tobytes()


def test_a_file_that_is_no_database_is_told_with_what_to_do(tmp_path):
    path = tmp_path / "c.sqlite"
    path.write_bytes(b"x" * 5000)
    with pytest.raises(ContractError, match=r"c.sqlite: is damaged .*; delete it"), telling(path, "delete it"):
        sqlite3.connect(path).execute("SELECT * FROM a")


def test_a_lock_that_is_cut_anywhere_is_none_or_holds_whole_entries(tmp_path):
    path = tmp_path / "dvc.lock"
    for end in range(len(LOCK)):
        path.write_text(LOCK[:end])
        found = parsed_lock(path)
        assert found is None or all(entry["cmd"].startswith("p") for entry in found["stages"].values())
    path.write_text(LOCK)
    assert parsed_lock(path)["stages"]["tokens"]["deps"][0]["size"] == 10


def test_a_checkpoint_in_which_a_bit_flipped_or_that_is_cut_is_as_none(tmp_path):
    checkpoint = Checkpoint(path=tmp_path / "checkpoint.safetensors", every=1)
    checkpoint.save({"weights": torch.arange(64, dtype=torch.bfloat16).reshape(8, 8), "step": torch.tensor(3)}, {"loss": 0.5})
    tensors, numbers = checkpoint.load()
    assert (tensors["weights"].sum().item(), tensors["step"].item(), numbers) == (2016, 3, {"loss": 0.5})
    whole = checkpoint.path.read_bytes()
    for at in range(-130, -1, 7):
        flip(checkpoint.path, at)
        assert checkpoint.load() is None
        checkpoint.path.write_bytes(whole)
    checkpoint.path.write_bytes(whole[:-1])
    assert checkpoint.load() is None
