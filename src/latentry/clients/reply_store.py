"""The memory of replies: what was answered once is never asked, or paid for, again.

One SQLite file, with what was spent (`ledger.py`) and what is being asked (`claims.py`), safe with several processes; values are JSON. Always true: a reply stands in it exactly as it first
came, also when another process asked the same at the same time, and a failure that may pass never stands in it.
"""

import dataclasses
import json
import logging
import sqlite3
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from latentry.clients import claims, ledger
from latentry.clients.claims import Claims
from latentry.clients.ledger import Charge, Ledger
from latentry.databases import OneAtATime, primary_code
from latentry.errors import ContractError
from latentry.records import Reply, Request, Status
from latentry.store import digest_of

VERSION = 1
"""Of the file's format."""

_log = logging.getLogger(__name__)
_INSERT = "INSERT OR IGNORE INTO replies (key, reply, prompt_tokens, reply_tokens, usd, checksum) VALUES (?, ?, ?, ?, ?, ?)"
_LASTING = (Status.OK, Status.TRUNCATED, Status.REFUSED)
_FILE = "replies.sqlite"
_WAIT_S = 120
"""How long to wait for another process that is writing; a commit takes milliseconds."""
_PAUSE_S = 0.02
_REMEDY = "move it away to begin a new one (its replies are paid again)"
_WHOLE = "key, CAST(reply AS BLOB), checksum"
_KEYS_PER_QUERY = 500
"""SQLite's older builds allow 999 variables in a statement."""
_TABLE = """
CREATE TABLE IF NOT EXISTS replies (
    key TEXT PRIMARY KEY, reply TEXT NOT NULL, prompt_tokens INTEGER NOT NULL, reply_tokens INTEGER NOT NULL
) WITHOUT ROWID
"""
_LATER = {"usd": "REAL", "checksum": "INTEGER"}
"""Columns that came later, with their types: a file without them gets them, and what they say of its replies is unknown."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a set of replies took."""

    calls: int
    """Replies of the set that the store holds."""
    prompt_tokens: int
    reply_tokens: int
    usd: float | None
    """None where the price of any was not known when it came."""


def reply_key(identity: Mapping[str, Any], request: Request) -> str:
    """Key of a reply: everything that it depends on."""
    messages = [[message.role, message.content] for message in request.messages]
    asked = [dict(identity), messages, request.max_tokens, float(request.temperature), request.sample, list(request.alternatives)]
    # Wants of later versions stand in the key only where there are any, so that older replies keep theirs.
    wants = {name: value for name in ("schema", "continuation", "slots") if (value := getattr(request, name))}
    return digest_of([*asked, wants] if wants else asked)


class ReplyStore:
    """Replies by key, on disk."""

    def __init__(self, folder: Path) -> None:
        """Open the store in a folder (`<root>/.cache/replies`), or begin one.

        Raises:
            ContractError: the file is no reply store, or one of another version.
        """
        self.path = folder / _FILE
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = OneAtATime(self.path, _REMEDY)
        with self._lock:
            self._connection = _opened(self.path)
        self.ledger = Ledger(self._connection, self._lock)
        self.claims = Claims(self._connection, self._lock)

    def find(self, keys: Iterable[str]) -> dict[str, Reply]:
        """The replies there are among these keys; one that is not as it was written is deleted, to be asked again."""
        found = {key: _reply(key, content, checksum) for key, content, checksum in self._select(_WHOLE, keys)}
        damaged = [(key,) for key, reply in found.items() if reply is None]
        if damaged:
            _log.warning("%s: %d replies are damaged; they are asked again", self.path, len(damaged))
            with self._lock, self._connection:
                self._connection.executemany("DELETE FROM replies WHERE key = ?", damaged)
        return {key: reply for key, reply in found.items() if reply is not None}

    def keep(self, replies: Mapping[str, Reply], charge: Charge | None = None, usd: float | None = None) -> dict[str, Reply]:
        """Commit replies with what each cost (None: not known) and what is charged, and give them as they stand in the store: with their key, or as another process kept them first.

        Replies with status CLIENT_ERROR or UNSUPPORTED are given back, and not kept.
        """
        lasting = {key: reply for key, reply in replies.items() if reply.status in _LASTING}
        rows = [_row(key, reply, usd) for key, reply in lasting.items()]
        with self._lock, self._connection:
            new = self._connection.executemany(_INSERT, rows).rowcount if rows else 0
            if charge is not None:
                self.ledger.write(charge)
        standing = self.find(lasting) if new < len(rows) else {}
        return {key: standing.get(key) or dataclasses.replace(reply, key=key) for key, reply in replies.items()}

    def totals(self, keys: Iterable[str]) -> Totals:
        """Calls, tokens and money of the replies with these keys, each counted once."""
        rows = self._select("prompt_tokens, reply_tokens, usd", keys)
        return Totals(
            calls=len(rows),
            prompt_tokens=sum(row[0] for row in rows),
            reply_tokens=sum(row[1] for row in rows),
            usd=None if any(row[2] is None for row in rows) else sum((row[2] for row in rows), 0.0),
        )

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()

    def _select(self, columns: str, keys: Iterable[str]) -> list[tuple[Any, ...]]:
        distinct: Sequence[str] = list(dict.fromkeys(keys))
        rows: list[tuple[Any, ...]] = []
        for start in range(0, len(distinct), _KEYS_PER_QUERY):
            part = distinct[start : start + _KEYS_PER_QUERY]
            places = ", ".join("?" * len(part))
            with self._lock:
                rows += self._connection.execute(f"SELECT {columns} FROM replies WHERE key IN ({places})", part).fetchall()
        return rows


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_WAIT_S, check_same_thread=False)
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found not in (0, VERSION):
        raise ContractError(f"{path}: is a reply store v{found}, this code reads v{VERSION}; move it away to begin a new one")
    _to_wal(connection)
    connection.execute("PRAGMA synchronous = NORMAL")
    with connection:
        connection.execute("BEGIN IMMEDIATE")  # another process may open the same new file
        connection.execute(_TABLE)
        connection.execute(ledger.TABLE)
        connection.execute(claims.TABLE)
        there = {column[1] for column in connection.execute("PRAGMA table_info(replies)")}
        for name in _LATER.keys() - there:
            connection.execute(f"ALTER TABLE replies ADD COLUMN {name} {_LATER[name]}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    return connection


def _to_wal(connection: sqlite3.Connection) -> None:
    """With NORMAL a commit survives the death of the process, and readers never wait for a writer.

    SQLite does not wait here for others that open the same new file, whatever the connection's timeout.
    """
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)


def _json(reply: Reply) -> str:
    values = {field.name: getattr(reply, field.name) for field in dataclasses.fields(reply) if field.name != "key"}
    values |= {"status": reply.status.value, "alternatives": dict(reply.alternatives)}
    return json.dumps(values, ensure_ascii=False, allow_nan=False)


def _row(key: str, reply: Reply, usd: float | None) -> tuple[Any, ...]:
    text = _json(reply)
    return key, text, reply.prompt_tokens, reply.reply_tokens, usd, zlib.crc32(text.encode())


def _reply(key: str, content: bytes, checksum: int | None) -> Reply | None:
    """None where it is not as it was written, as far as that is known."""
    if checksum is not None and zlib.crc32(content) != checksum:
        return None
    try:
        values = json.loads(content)
    except ValueError:
        return None
    restored = {"status": Status(values["status"]), "key": key} | {name: tuple(values.get(name, ())) for name in ("continuation", "slots")}
    return Reply(**{**values, **restored})
