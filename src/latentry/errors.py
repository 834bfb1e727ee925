"""The exception tree: one class per thing a caller may want to do differently.

A failure of the outside world on one row is a `Status` in that row, never an exception; what is raised
here stops a stage. `exit_code` is what the process ends with: 1 a fault of ours, 2 wrong parameters or
missing sources, 3 a budget reached, or an endpoint or a cluster that is down.
"""

from collections.abc import Sequence


class LatentryError(Exception):
    """Base of every error that latentry raises on purpose."""

    exit_code = 1


class ParamsError(LatentryError):
    """`params.yaml` is wrong; carries every fault found, not only the first."""

    exit_code = 2

    def __init__(self, source: str, faults: Sequence[str]) -> None:
        self.source, self.faults = source, tuple(faults)
        plural = "fault" if len(self.faults) == 1 else "faults"
        super().__init__("\n".join([f"{source}: {len(self.faults)} {plural}", *(f"  - {fault}" for fault in self.faults)]))

    def __reduce__(self) -> tuple[type["ParamsError"], tuple[str, tuple[str, ...]]]:
        """It comes back whole from another process."""
        return type(self), (self.source, self.faults)


class SourceError(LatentryError):
    """Weights, a text or a package could not be had from any of its sources."""

    exit_code = 2


class CorpusError(LatentryError):
    """The corpus is empty, unreadable or too short for what was asked."""

    exit_code = 2


class HookpointError(LatentryError):
    """A hookpoint does not exist in the subject, or gives something that is no tensor of activations."""

    exit_code = 2


class ContractError(LatentryError):
    """A folder does not hold the contract, version or content that its reader needs."""


class NumericsError(LatentryError):
    """Numbers that cannot be used: NaN, infinity or an overflow of the stated dtype."""


class GateError(LatentryError):
    """A SAE does not fit the activations it is applied to."""


class TooManyFailuresError(LatentryError):
    """More rows failed than `max_failed_fraction` allows."""


class EndpointError(LatentryError):
    """An endpoint is down or refuses us; nothing that was paid for is lost, run again."""

    exit_code = 3


class MemoryShortError(LatentryError):
    """The memory there is does not hold one batch or block; smaller ones make the same results, up to rounding."""

    exit_code = 2


class EngineError(LatentryError):
    """Workers or the cluster were lost more often than can be made good; committed shards are kept, run again."""

    exit_code = 3


class BudgetError(LatentryError):
    """`run.budget` does not allow the next call; every reply so far is kept, raise it and run again."""

    exit_code = 3


class UnsupportedError(LatentryError):
    """Something real that latentry does not do yet, with what it does instead."""

    exit_code = 2


class ExchangeError(LatentryError):
    """A file of another format, or one that is to become one, breaks that format's rules, or stands where nothing may be overwritten."""

    exit_code = 2
