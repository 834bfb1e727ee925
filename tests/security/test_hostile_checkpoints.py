"""Checkpoints of SAEs as an attacker, or a bad disk, would make them: refused with an error of ours that names the file, and no code runs."""

import io
import json
import random
import shutil
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from latentry.errors import ContractError, LatentryError, ParamsError, SourceError
from latentry.registry import variant
from latentry.saes.pinned import of_entry
from native_saes import ALL, WIDTH

ODD = [None, True, -1, 10**30, 1.5, float("nan"), float("inf"), "x", "\x1b[31m", "\ud800", [], [1], {}, {"a": 1}, [[[]]]]
"""What no configuration means by any of its values."""


def copied(name: str, tmp_path: Path) -> Path:
    folder = tmp_path / ALL[name].folder.name
    shutil.copytree(ALL[name].folder, folder)
    return folder


def looked_at(name: str, folder: Path) -> None:
    """All that is done with a folder before and while it is used; what is wrong with it is told by errors of ours."""
    spec = ALL[name]
    config, room = spec.config(folder=folder), variant("saes", spec.kind)
    for look in (lambda: room.check_folder(config), lambda: room.build(config, "mine", folder), lambda: room.origin_digest(config)):
        try:
            look()
        except LatentryError as error:
            str(error).encode()


def places(tree: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items() if isinstance(tree, dict) else ():
        yield (*path, key)
        yield from places(value, (*path, key))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_whatever_a_configuration_says_the_outcome_is_a_sae_or_an_error_of_ours(name, tmp_path):
    folder = copied(name, tmp_path)
    for path in folder.glob("*.json"):
        written = path.read_text()
        more = [
            (key,) for key in ("metadata", "trainer", "buffer", "expansion_factor", "num_latents", "transcode", "architecture", "dtype")
        ]
        for place in [*places(json.loads(written)), *more]:
            for odd in ODD:
                tree = json.loads(written)
                inside = tree
                for key in place[:-1]:
                    inside = inside[key]
                inside[place[-1]] = odd
                path.write_text(json.dumps(tree))
                looked_at(name, folder)
        for text in ("[" * 100_000, '{"a":' * 100_000, "9" * 5_000, "", "null", "\0", '{"a": 1e999}', "\ufeff{}"):
            path.write_text(text)
            looked_at(name, folder)
        path.write_text(written)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_whatever_bytes_are_wrong_in_the_weights_the_outcome_is_a_sae_or_an_error_of_ours(name, tmp_path):
    folder, chance = copied(name, tmp_path), random.Random(0)
    path = folder / ALL[name].weights_file
    whole = path.read_bytes()
    for number in range(120):
        content = bytearray(whole)
        for _ in range(chance.choice((1, 2, 8))):
            content[chance.randrange(len(content) if number % 2 else min(600, len(content)))] = chance.randrange(256)
        path.write_bytes(content)
        looked_at(name, folder)
    longer = [whole + b"x"] if path.suffix == ".safetensors" else []  # after the end of a zip there may stand what will
    for content in (b"", b"\0" * 1_000, whole[:-3], b"\x80\x04}.", *longer):
        path.write_bytes(content)
        with pytest.raises(LatentryError):
            ALL[name].built(folder)


def refused(name: str, tmp_path: Path, content: bytes, said: str) -> None:
    folder = copied(name, tmp_path)
    (folder / ALL[name].weights_file).write_bytes(content)
    with pytest.raises((ContractError, SourceError), match=said):
        ALL[name].built(folder)


def header_of(content: bytes) -> tuple[dict, bytes]:
    n = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + n]), content[8 + n :]


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [10**9, 10**9]},
        {"shape": [2**62, 8]},
        {"data_offsets": [0, 2**60]},
        {"data_offsets": [-1, 4]},
        {"dtype": "OBJ"},
        {"shape": [24, 8], "data_offsets": [0, 4]},
    ],
    ids=str,
)
def test_a_safetensors_header_that_lies_is_refused(tmp_path, change):
    header, data = header_of((ALL["sae_lens-topk"].folder / "sae_weights.safetensors").read_bytes())
    key = next(key for key in header if key != "__metadata__")
    head = json.dumps({**header, key: {**header[key], **change}}).encode()
    refused("sae_lens-topk", tmp_path, struct.pack("<Q", len(head)) + head + data, "no whole safetensors file")


@pytest.mark.parametrize("length", [2**63, 99_000_000])
def test_a_safetensors_header_of_any_length_is_refused(tmp_path, length):
    refused("sae_lens-topk", tmp_path, struct.pack("<Q", length) + b"{" * 100, "no whole safetensors file")


def expanded(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**weights, "encoder.weight": torch.zeros(1).expand(weights["encoder.weight"].shape)}


def sparse(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**weights, "encoder.weight": weights["encoder.weight"].to_sparse()}


def meta(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**weights, "encoder.weight": weights["encoder.weight"].to("meta")}


@pytest.mark.parametrize("change", [expanded, sparse, meta])
def test_a_tensor_that_claims_more_numbers_than_the_file_holds_is_refused(tmp_path, change):
    name, held = "dictionary_learning-AutoEncoderTopK", io.BytesIO()
    torch.save(change(torch.load(ALL[name].folder / "ae.pt", weights_only=True)), held)
    refused(name, tmp_path, held.getvalue(), "does not lie whole in the file")


def npz(**members: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return held.getvalue()


def npy(shape: tuple[int, ...], dtype: str = "<f4", content: bytes = b"") -> bytes:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": dtype, "fortran_order": False, "shape": shape})
    return head.getvalue() + content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (npz(W_enc=npy((10**6, 10**6))), "damaged|no npz file"),
        (npz(W_enc=npy((2**62, 2**62))), "no npz file"),
        (npz(W_enc=npy((4,), "|O", b"\x80\x04N." * 8)), "pickles are never read"),
        (npz(W_enc=npy((20_000_000,), content=b"\0" * 80_000_000)), "unpack to 80,000"),
        (npz(W_enc=b"no array"), "wanted floating-point numbers"),
    ],
    ids=["a shape that lies", "a shape beyond any", "objects", "a bomb", "no array"],
)
def test_a_npz_file_that_lies_or_unpacks_to_any_size_is_refused(tmp_path, content, said):
    refused("gemma_scope-1", tmp_path, content, said)


@pytest.mark.parametrize("name", ["sae_lens-topk", "sparsify-topk", "gemma_scope-1", "dictionary_learning-AutoEncoder"])
def test_a_link_out_of_a_saes_folder_is_refused_and_nothing_is_copied(name, tmp_path):
    folder, spec, into = copied(name, tmp_path), ALL[name], tmp_path / "copy"
    weights = folder / spec.weights_file
    weights.rename(tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    into.mkdir()
    with pytest.raises(SourceError, match="is a link to a file outside its folder"):
        variant("saes", spec.kind).FORMAT.make(spec.config(folder=folder), folder=into)
    assert not any(into.iterdir())


def test_what_is_wrong_with_a_copy_is_told_of_the_users_folder_as_a_fault_of_params(tmp_path):
    spec, copy = ALL["sae_lens-topk"], copied("sae_lens-topk", tmp_path)
    config = spec.config(folder=Path("/saes/mine"), width=WIDTH + 1)
    with (
        pytest.raises(ParamsError, match=r"saes\.mine\.folder: /saes/mine/cfg\.json: d_sae is 24") as error,
        of_entry("mine", config, copy),
    ):
        spec.built(copy, width=WIDTH + 1)
    assert error.value.exit_code == 2 and str(tmp_path) not in str(error.value)
