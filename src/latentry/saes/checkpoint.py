"""How far a training has come, so that a killed one goes on: one safetensors file, numbers as JSON in its header, never a pickle."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from latentry.atomic import is_whole, write_atomic
from latentry.store import digest_of, file_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A place for one state, each in place of the one before."""

    path: Path
    every: int
    """Tokens between two states: what a kill costs at most."""

    def save(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Commit a state; `numbers` is anything that JSON holds."""
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        header = {"code": code_digest(), "numbers": json.dumps(numbers)}
        header["checksum"] = _checksum(whole, header["numbers"])
        write_atomic(self.path, lambda path: save_file(whole, path, metadata=header), sum(tensor.nbytes for tensor in whole.values()))

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The state committed last; None where there is none, it is damaged, or other code than this wrote it."""
        if not is_whole(self.path):
            return None
        with safe_open(self.path, framework="pt") as file:
            header = {"code": "", "numbers": "", "checksum": ""} | (file.metadata() or {})
            if header["code"] != code_digest():
                return None
            # a copy each: torch aligns its own memory, and some sums depend on that
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        return (tensors, json.loads(header["numbers"])) if _checksum(tensors, header["numbers"]) == header["checksum"] else None

    def remove(self) -> None:
        """Forget it."""
        self.path.unlink(missing_ok=True)


def _checksum(tensors: Mapping[str, Tensor], numbers: str) -> str:
    """Of all values, by name: a bit that flipped on the disk would go on through the whole training."""
    found = zlib.crc32(numbers.encode())
    for name in sorted(tensors):
        found = zlib.crc32(name.encode(), found)
        found = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, found)
    return f"{found:08x}"


def code_digest() -> str:
    """Digest of this room, and of what its training computes with: a state means something to the code that wrote it."""
    room = Path(__file__).parent
    return digest_of({path.name: file_digest(path) for path in (*room.glob("*.py"), room.with_name("mlp_jacobian.py"))})
