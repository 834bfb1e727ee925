"""The calls of one ask to an endpoint: bounded concurrency, retries of what may pass, a budget, and what stops them all.

Always true: a reply that was had is on disk before the worker that had it looks for the next request, and what stops
the calls lets those in flight end and keeps their replies.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from latentry.clients.base import AsyncClient, ClientRun, TransientError, client_error
from latentry.clients.counting import most_tokens
from latentry.clients.ledger import Budget, Charge, Spent, call, is_limited
from latentry.clients.progress import Progress
from latentry.clients.reply_store import ReplyStore
from latentry.errors import BudgetError, EndpointError, LatentryError
from latentry.records import Reply, Request, Status

FIRST_WAIT_S = 1.0
"""Wait before the first retry; doubled for each further one."""
LONGEST_WAIT_S = 60.0
"""Cap of a wait between two tries, also of one that the server asks for."""
START_APART_S = 0.002
"""Between the first calls of two workers. Begun at once, all replies come at once too, round after round, and each call waits until
those of all the others are read."""
DOWN_AFTER = 8
"""So many requests in a row that found nobody, each after all its retries, and the endpoint counts as down."""

NOTHING = Spent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How one client is asked."""

    client: str
    """Its name under `clients`."""
    run: ClientRun
    budget: Budget
    first_wait_s: float = FIRST_WAIT_S


class EndpointCalls:
    """As many workers as may be in flight, each taking the next request."""

    def __init__(self, client: AsyncClient, terms: Terms, store: ReplyStore, shown: Progress) -> None:
        self._client, self._terms, self._store, self._shown = client, terms, store, shown
        self._replies: dict[str, Reply] = {}
        self._stop = asyncio.Event()
        self._fatal: LatentryError | None = None
        self._n_down_in_row = 0
        self._n_in_flight = 0
        self._settled = asyncio.Event()

    async def all(self, missing: Mapping[str, Request]) -> dict[str, Reply]:
        """Every reply; after a fatal error those in flight are still waited for and kept, and it is raised."""
        todo = iter(missing.items())
        try:
            await asyncio.gather(*(self._work(todo, place) for place in range(min(self._terms.run.concurrency, len(missing)))))
        finally:
            await self._client.aclose()
        if self._fatal is not None:
            raise self._fatal
        if self._n_down_in_row >= len(missing):
            raise self._down(next(iter(self._replies.values())).detail)
        return self._replies

    async def _work(self, todo: Iterator[tuple[str, Request]], place: int) -> None:
        await asyncio.sleep(place * START_APART_S)
        for key, request in todo:
            if self._stop.is_set():
                return
            reserved = await self._reserve(request)
            if reserved is None:
                return
            reply = await self._one(request)
            spent = self._cost(reply)
            charge = Charge(client=self._terms.client, spent=spent - reserved)
            usd = spent.usd if self._terms.run.price else None
            self._replies |= self._store.keep({} if reply is None else {key: reply}, charge, usd)
            if reply is not None:
                self._shown.add(1, spent)
            self._n_in_flight -= 1
            self._settled.set()

    async def _reserve(self, request: Request) -> Spent | None:
        """What is charged of the call before it is sent; None when the budget does not allow it, not even alone."""
        if not is_limited(self._terms.budget):
            self._n_in_flight += 1
            return NOTHING
        most = self._most(request)
        while not self._stop.is_set():
            limit = self._store.ledger.reserve(self._terms.client, most, self._terms.budget)
            if not limit:
                self._n_in_flight += 1
                return most
            if self._n_in_flight == 0:
                self._give_up(self._spent_up(limit, most))
                self._settled.set()
            else:
                self._settled.clear()
                await self._settled.wait()
        return None

    def _most(self, request: Request) -> Spent:
        return call(most_tokens(request.messages), request.max_tokens, self._terms.run.price)

    def _cost(self, reply: Reply | None) -> Spent:
        if reply is None or reply.status in (Status.CLIENT_ERROR, Status.UNSUPPORTED):
            return NOTHING
        return call(reply.prompt_tokens, reply.reply_tokens, self._terms.run.price)

    def _spent_up(self, limit: str, most: Spent) -> BudgetError:
        spent = self._store.ledger.spent()
        tokens = spent.prompt_tokens + spent.reply_tokens
        return BudgetError(
            f"run.budget.{limit}: reached: {spent.calls:,} calls, {tokens:,} tokens and {spent.usd:.4f} usd are spent so far, and the next"
            f" call may take {most.prompt_tokens + most.reply_tokens:,} tokens and {most.usd:.6f} usd; every reply is kept: raise it and run again"
        )

    async def _one(self, request: Request) -> Reply | None:
        """The reply, or the row's failure after all retries; None when the endpoint turned out unusable."""
        try:
            reply = await self._tried(request)
        except EndpointError as error:
            self._give_up(error)
            return None
        except TransientError as error:
            self._n_down_in_row = self._n_down_in_row + 1 if error.is_down else 0
            if self._n_down_in_row >= DOWN_AFTER:
                self._give_up(self._down(str(error)))
            return client_error(f"{error} (after {self._terms.run.retries + 1} tries)")
        self._n_down_in_row = 0
        return reply

    async def _tried(self, request: Request) -> Reply:
        """The reply; failures that may pass are tried again, after waits that grow."""
        attempt = 0
        while True:
            attempt += 1
            if self._stop.is_set():
                raise TransientError("not asked: the endpoint turned out unusable")
            try:
                return await self._client.answer(request)
            except TransientError as error:
                if attempt > self._terms.run.retries:
                    raise
                await self._sleep(self._wait_s(attempt, error.retry_after_s))

    def _wait_s(self, attempt: int, asked_s: float) -> float:
        growing = self._terms.first_wait_s * 2 ** (attempt - 1) * random.uniform(0.75, 1.25)
        return min(max(growing, asked_s), LONGEST_WAIT_S)

    async def _sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return

    def _give_up(self, error: LatentryError) -> None:
        self._fatal = self._fatal or error
        self._stop.set()

    def _down(self, detail: str) -> EndpointError:
        return EndpointError(f"{detail}: nothing answers there; replies so far are kept, run again when it is up")
