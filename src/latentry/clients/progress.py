"""Shows how far a long call is, and what it took: a bar with rate and time left on a terminal, plain lines elsewhere."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from latentry.clients.ledger import Spent

LINE_EVERY_S = 30.0
"""Seconds between two lines where there is no terminal."""

_log = logging.getLogger(__name__)


class Progress:
    """Counts what is done of a known total, and sums what it took."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total, self._done, self._failed = label, total, 0, 0
        self._spent = Spent()
        self._began = self._said = time.monotonic()
        self._bar = tqdm(total=total, desc=label, unit="reply", file=sys.stderr) if sys.stderr.isatty() else None

    def add(self, n: int, spent: Spent, *, failed: int = 0) -> None:
        """That many more are done, some of them without a reply, and that was spent on them."""
        self._done += n
        self._failed += failed
        self._spent += spent
        if self._bar is not None:
            self._bar.set_postfix_str(shown(self._spent), refresh=False)
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
        failed = f", {self._failed} failed" if self._failed else ""
        replies = f"{self._label}: {self._done - self._failed} of {self._total} replies{failed}"
        _log.info("%s, %.2f a second, %.0f s left; %s", replies, rate, left, shown(self._spent))


def shown(spent: Spent) -> str:
    """A total as a person reads it: calls, tokens of prompts and of replies, and money where a price is known."""
    money = f", ${spent.usd:.2f}" if spent.usd >= 0.995 else f", ${spent.usd:.4f}" if spent.usd else ""
    return f"{spent.calls:,} calls, {spent.prompt_tokens:,} + {spent.reply_tokens:,} tokens{money}"


@contextmanager
def progress(label: str, total: int) -> Iterator[Progress]:
    """Progress over one block; ended also when the block raises."""
    begun = Progress(label, total)
    try:
        yield begun
    finally:
        begun.close()
