"""A job small enough to count: each shard is a file, and each beginning of one leaves a mark."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from latentry.engines.base import Tick
from latentry.errors import NumericsError


@dataclass(frozen=True, kw_only=True)
class ToyJob:
    """Shard n is a product of matrices, and the number of threads that made it."""

    folder: Path
    n_shards: int = 6
    threads: int = 2
    device: str = "cpu"
    fails_at: int | None = None
    dies_at: int | None = None
    waits_at: int | None = None
    """Begins, then makes nothing until a file `go` is there."""

    @property
    def title(self) -> str:
        return "toy"

    def missing(self) -> Sequence[int]:
        return [shard for shard in range(self.n_shards) if not self.file(shard).exists()]

    def size(self, shard: int) -> int:
        return 10 + shard

    def open(self) -> Callable[[int, Tick], None]:
        mark = self.folder / f"opened-{os.getpid()}-{time.monotonic_ns()}"
        mark.write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
        return self._make

    def file(self, shard: int) -> Path:
        return self.folder / f"shard-{shard}"

    def begun(self, shard: int) -> list[int]:
        """The processes that began a shard."""
        return [int(path.name.split("-")[2]) for path in self.folder.glob(f"begun-{shard}-*")]

    def opened(self) -> list[int]:
        """The processes that opened the job, once for each time."""
        return [int(path.name.split("-")[1]) for path in self.folder.glob("opened-*")]

    def gpus(self) -> list[str]:
        """What each process that opened the job saw of the machine's GPUs."""
        return sorted(path.read_text() for path in self.folder.glob("opened-*"))

    def bytes(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.glob("shard-*")}

    def _make(self, shard: int, tick: Tick) -> None:
        (self.folder / f"begun-{shard}-{os.getpid()}").touch()
        while shard == self.waits_at and not (self.folder / "go").exists():
            time.sleep(0.02)
        if shard == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if shard == self.fails_at:
            raise NumericsError(f"shard {shard} holds NaN")
        noise = torch.randn(200, 300, generator=torch.Generator().manual_seed(shard))
        partial = self.folder / f"partial-{shard}-{os.getpid()}"
        partial.write_bytes((noise @ noise.T).numpy().tobytes() + bytes([torch.get_num_threads()]))
        partial.rename(self.file(shard))
        tick(self.size(shard))
