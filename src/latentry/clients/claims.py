"""Which calls other processes have in flight, so that the same request is not paid by two of them.

A claim is one row of the reply store's file. Always true: a claim whose process is dead, or that is older than its call can
take, holds nobody up.
"""

import os
import socket
import sqlite3
import time
import uuid

from latentry.databases import OneAtATime

TABLE = """
CREATE TABLE IF NOT EXISTS claims (
    key TEXT PRIMARY KEY, holder TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, until REAL NOT NULL
) WITHOUT ROWID
"""


class Claims:
    """The claims of one opened reply store, beside those of all others."""

    def __init__(self, connection: sqlite3.Connection, lock: OneAtATime) -> None:
        self._connection, self._lock = connection, lock
        self._holder, self._host = uuid.uuid4().hex, socket.gethostname()

    def take(self, key: str, for_s: float) -> bool:
        """Claim a key for so long, anew where the claim is ours; false while another holds it."""
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            found = self._connection.execute("SELECT holder, host, pid, until FROM claims WHERE key = ?", (key,)).fetchone()
            if found is not None and self._holds(*found):
                return False
            row = (key, self._holder, self._host, os.getpid(), time.time() + for_s)
            self._connection.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?)", row)
        return True

    def release(self, key: str) -> None:
        """Give a claim back, if it is ours."""
        with self._lock, self._connection:
            self._connection.execute("DELETE FROM claims WHERE key = ? AND holder = ?", (key, self._holder))

    def _holds(self, holder: str, host: str, pid: int, until: float) -> bool:
        """Whether a claim is another's, and stands. A process id says something on its own machine only."""
        return holder != self._holder and until > time.time() and (host != self._host or _is_alive(pid))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
