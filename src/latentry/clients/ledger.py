"""What was spent at endpoints, over all runs and processes of a project, and whether a budget allows another call.

A call is charged at its most before it is sent, where there is a budget, and corrected when its reply is there. Always
true: several processes together never pass a budget; a call that a kill cut off stays charged, for it may be paid.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from latentry.databases import OneAtATime

TABLE = """
CREATE TABLE IF NOT EXISTS spending (
    client TEXT PRIMARY KEY, calls INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, reply_tokens INTEGER NOT NULL, usd REAL NOT NULL
) WITHOUT ROWID
"""
_ADD = """
INSERT INTO spending VALUES (?, ?, ?, ?, ?) ON CONFLICT (client) DO UPDATE SET calls = calls + excluded.calls,
prompt_tokens = prompt_tokens + excluded.prompt_tokens, reply_tokens = reply_tokens + excluded.reply_tokens, usd = usd + excluded.usd
"""
_SUMS = "COALESCE(SUM(calls), 0), COALESCE(SUM(prompt_tokens), 0), COALESCE(SUM(reply_tokens), 0), COALESCE(SUM(usd), 0.0)"
_MILLION = 1_000_000


class Price(Protocol):
    """US dollars for a million tokens."""

    @property
    def prompt(self) -> float:
        """Of prompts."""
        ...

    @property
    def reply(self) -> float:
        """Of replies."""
        ...


class Budget(Protocol):
    """Most that may be spent; None: no limit."""

    @property
    def calls(self) -> int | None:
        """Calls sent, further tries and those that brought nothing included."""
        ...

    @property
    def tokens(self) -> int | None:
        """Of prompts and replies."""
        ...

    @property
    def usd(self) -> float | None:
        """US dollars."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What some calls took."""

    calls: int = 0
    prompt_tokens: int = 0
    reply_tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            calls=self.calls + other.calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            reply_tokens=self.reply_tokens + other.reply_tokens,
            usd=self.usd + other.usd,
        )

    def __sub__(self, other: "Spent") -> "Spent":
        return self + Spent(calls=-other.calls, prompt_tokens=-other.prompt_tokens, reply_tokens=-other.reply_tokens, usd=-other.usd)


def call(prompt_tokens: int, reply_tokens: int, price: Price | None) -> Spent:
    """What one call takes; without a price, no money."""
    usd = (prompt_tokens * price.prompt + reply_tokens * price.reply) / _MILLION if price else 0.0
    return Spent(calls=1, prompt_tokens=prompt_tokens, reply_tokens=reply_tokens, usd=usd)


def exceeded(spent: Spent, budget: Budget) -> str:
    """Which limit of a budget that is above, as its name and its amount; empty where none is."""
    tokens = spent.prompt_tokens + spent.reply_tokens
    if budget.calls is not None and spent.calls > budget.calls:
        return f"calls ({budget.calls:,})"
    if budget.tokens is not None and tokens > budget.tokens:
        return f"tokens ({budget.tokens:,})"
    if budget.usd is not None and spent.usd > budget.usd * (1 + 1e-9):  # sums of money are rounded
        return f"usd ({budget.usd:g})"
    return ""


def is_limited(budget: Budget) -> bool:
    """Whether there is any limit."""
    return any(limit is not None for limit in (budget.calls, budget.tokens, budget.usd))


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What to add to a client's spending; less than nothing corrects what was charged before."""

    client: str
    spent: Spent


class Ledger:
    """The spending of a project, in the reply store's file."""

    def __init__(self, connection: sqlite3.Connection, lock: OneAtATime) -> None:
        self._connection, self._lock = connection, lock

    def spent(self) -> Spent:
        """All of it, calls in flight under a budget at their most."""
        with self._lock:
            return self._sum()

    def reserve(self, client: str, most: Spent, budget: Budget) -> str:
        """Charge a call at its most, unless that would pass a limit, which is then named."""
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            limit = exceeded(self._sum() + most, budget)
            if not limit:
                self.write(Charge(client=client, spent=most))
        return limit

    def write(self, charge: Charge) -> None:
        """Charge within the transaction that is open; the caller holds the lock."""
        spent = charge.spent
        self._connection.execute(_ADD, (charge.client, spent.calls, spent.prompt_tokens, spent.reply_tokens, spent.usd))

    def _sum(self) -> Spent:
        return _spent(self._connection.execute(f"SELECT {_SUMS} FROM spending").fetchone())


def _spent(sums: Sequence[float]) -> Spent:
    calls, prompt_tokens, reply_tokens, usd = sums
    return Spent(calls=int(calls), prompt_tokens=int(prompt_tokens), reply_tokens=int(reply_tokens), usd=max(0.0, float(usd)))
