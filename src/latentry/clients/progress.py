"""Shows how far a long call is: a bar with rate and time left on a terminal, plain lines elsewhere."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

LINE_EVERY_S = 30.0
"""Seconds between two lines where there is no terminal."""

_log = logging.getLogger(__name__)


class Progress:
    """Counts what is done of a known total."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total, self._done = label, total, 0
        self._began = self._said = time.monotonic()
        self._bar = tqdm(total=total, desc=label, unit="reply", file=sys.stderr) if sys.stderr.isatty() else None

    def add(self, n: int) -> None:
        """That many more are done."""
        self._done += n
        if self._bar is not None:
            self._bar.update(n)
        elif time.monotonic() - self._said >= LINE_EVERY_S:
            self._say()

    def close(self) -> None:
        """Ends the bar, or says the last line."""
        if self._bar is not None:
            self._bar.close()
        else:
            self._say()

    def _say(self) -> None:
        self._said = time.monotonic()
        rate = self._done / max(self._said - self._began, 1e-9)
        left = (self._total - self._done) / rate if rate else float("inf")
        _log.info("%s: %d of %d replies, %.2f a second, %.0f s left", self._label, self._done, self._total, rate, left)


@contextmanager
def progress(label: str, total: int) -> Iterator[Progress]:
    """Progress over one block; ended also when the block raises."""
    shown = Progress(label, total)
    try:
        yield shown
    finally:
        shown.close()
