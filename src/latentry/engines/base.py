"""What an engine runs: a job whose shards do not depend on each other, each committed by whoever makes it."""

from collections.abc import Callable, Sequence
from typing import Protocol

Tick = Callable[[int], object]
"""Told how many tokens more are done."""


class Job(Protocol):
    """Shards to be made. It travels to other processes, so it holds plain values and absolute paths only."""

    @property
    def title(self) -> str:
        """What the progress bar says, such as `activations`."""
        ...

    @property
    def threads(self) -> int:
        """CPU threads of torch in each worker; the same wherever it runs, for the same bytes."""
        ...

    @property
    def device(self) -> str:
        """`run.device` as it stands in params.yaml: `auto` is for the worker to resolve, whose machine may be another."""
        ...

    def missing(self) -> Sequence[int]:
        """Numbers of the shards that were not committed yet."""
        ...

    def size(self, shard: int) -> int:
        """Tokens in a shard."""
        ...

    def open(self) -> Callable[[int, Tick], None]:
        """Load what every shard needs, once a worker; returns what makes and commits one shard."""
        ...
