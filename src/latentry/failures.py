"""How many rows may fail by the world's fault before a stage stops."""

from collections import Counter
from collections.abc import Sequence

from latentry.errors import TooManyFailuresError
from latentry.records import Status

WORLD_FAILURES = frozenset({Status.PARSE_ERROR, Status.REFUSED, Status.TRUNCATED, Status.CLIENT_ERROR})
"""What a model or an endpoint did wrong; a dead or undersampled latent is nobody's failure."""


def check_failures(statuses: Sequence[Status], max_failed_fraction: float, what: str) -> None:
    """Stop when too many rows failed by the world's fault.

    Raises:
        TooManyFailuresError: with the counts by status; every reply that was had is kept.
    """
    failed = Counter(status for status in statuses if status in WORLD_FAILURES)
    n_failed = sum(failed.values())
    if statuses and n_failed > max_failed_fraction * len(statuses):
        counts = ", ".join(f"{n} {status}" for status, n in failed.most_common())
        raise TooManyFailuresError(
            f"{what}: {n_failed} of {len(statuses)} rows failed ({counts}), above max_failed_fraction {max_failed_fraction:g};"
            " nothing is written, and every reply is kept: look at the model, or raise max_failed_fraction, and run again"
        )
