"""The largest anonymous memory of this process while it is watched.

Not the resident size: mapped files (weights, shards) and what the kernel caches count there, and are the kernel's to drop.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INTERVAL_S = 0.02


class Peak(threading.Thread):
    """RssAnon of /proc/self/status, looked at every 20 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.n_bytes, self._over = 0, threading.Event()

    def run(self) -> None:
        """Look until told to stop."""
        while not self._over.wait(INTERVAL_S):
            status = Path("/proc/self/status").read_text()
            self.n_bytes = max(self.n_bytes, 1024 * int(status.split("RssAnon:")[1].split()[0]))

    @classmethod
    @contextmanager
    def watched(cls) -> Iterator["Peak"]:
        """Watch while the block runs."""
        peak = cls()
        peak.start()
        try:
            yield peak
        finally:
            peak._over.set()
            peak.join()
