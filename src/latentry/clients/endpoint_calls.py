"""The calls of one ask to an endpoint: bounded concurrency, retries of what may pass, a budget, and what stops them all.

Always true: a reply that was had is on disk before the worker that had it looks for the next request, what stops the calls
lets those in flight end and keeps their replies, and every try that a server got is charged.
"""

import asyncio
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from latentry.clients.base import AsyncClient, ClientRun, TransientError, client_error, further_text, unsent
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

POLL_S = 0.1
"""Between two looks at what another process is asking."""

NOTHING = Spent()
_Queue = deque[tuple[str, Request]]


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
        todo, elsewhere = deque(missing.items()), deque[tuple[str, Request]]()
        try:
            await asyncio.gather(*(self._work(todo, elsewhere, place) for place in range(min(self._terms.run.concurrency, len(missing)))))
        finally:
            await self._client.aclose()
        if self._fatal is not None:
            raise self._fatal
        if self._n_down_in_row >= len(missing):
            raise self._down(next(iter(self._replies.values())).detail)
        return self._replies

    async def _work(self, todo: _Queue, elsewhere: _Queue, place: int) -> None:
        """Request after request; those that another process is asking come last, when it has most likely asked them."""
        await asyncio.sleep(place * START_APART_S)
        while (todo or elsewhere) and not self._stop.is_set():
            is_new = bool(todo)
            key, request = (todo or elsewhere).popleft()
            if not self._claim(key):
                elsewhere.append((key, request))
                if not is_new:
                    await self._sleep(POLL_S)
                continue
            try:
                reply = self._store.find([key]).get(key) or unsent(self._client, request) or await self._one(key, request)
            finally:
                self._store.claims.release(key)
            if reply is not None:
                self._replies[key] = replace(reply, key=key)
                self._shown.add(1, NOTHING, failed=int(reply.status is Status.CLIENT_ERROR))

    def _claim(self, key: str) -> bool:
        return self._store.claims.take(key, self._terms.run.timeout_s + 2 * LONGEST_WAIT_S)

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
        return call(most_tokens(request.messages, further_text(request)), request.max_tokens, self._terms.run.price)

    def _cost(self, request: Request, reply: Reply) -> Spent:
        """What a call took by the server's usage; where that does not say, at its most, unless it brought nothing."""
        prompt_tokens, reply_tokens = reply.prompt_tokens, reply.reply_tokens
        if reply.status not in (Status.CLIENT_ERROR, Status.UNSUPPORTED):
            prompt_tokens = prompt_tokens or most_tokens(request.messages, further_text(request))
            reply_tokens = reply_tokens or request.max_tokens
        return call(prompt_tokens, reply_tokens, self._terms.run.price)

    def _spent_up(self, limit: str, most: Spent) -> BudgetError:
        spent = self._store.ledger.spent()
        tokens = spent.prompt_tokens + spent.reply_tokens
        return BudgetError(
            f"run.budget.{limit}: reached: {spent.calls:,} calls, {tokens:,} tokens and {spent.usd:.4f} usd are spent so far, and the next"
            f" call may take {most.prompt_tokens + most.reply_tokens:,} tokens and {most.usd:.6f} usd; every reply is kept: raise it and run again"
        )

    async def _one(self, key: str, request: Request) -> Reply | None:
        """The reply, or the row's failure after all retries; None when the endpoint turned out unusable."""
        try:
            reply = await self._tried(key, request)
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

    async def _tried(self, key: str, request: Request) -> Reply:
        """The reply; failures that may pass are tried again, after waits that grow."""
        attempt = 0
        while True:
            try:
                return await self._sent(key, request)
            except TransientError as error:
                if error.is_mended:
                    continue
                attempt += 1
                if attempt > self._terms.run.retries or self._stop.is_set():
                    raise
                await self._sleep(self._wait_s(attempt, error.retry_after_s))
                self._claim(key)

    async def _sent(self, key: str, request: Request) -> Reply:
        """One try, charged whatever it brings; its reply is kept together with the charge."""
        reserved = None if self._stop.is_set() else await self._reserve(request)
        if reserved is None:
            raise TransientError("not asked: the calls were stopped", was_sent=False)
        spent, kept = reserved, dict[str, Reply]()
        try:
            reply = await self._client.answer(request)
            spent, kept = self._cost(request, reply), {key: reply}
        except TransientError as error:
            spent = Spent(calls=int(error.was_sent))
            raise
        except EndpointError:
            spent = Spent(calls=1)
            raise
        finally:
            kept = self._settle(kept, spent, reserved)
        return kept[key]

    def _settle(self, replies: Mapping[str, Reply], spent: Spent, reserved: Spent) -> dict[str, Reply]:
        charge = Charge(client=self._terms.client, spent=spent - reserved)
        kept = self._store.keep(replies, charge, spent.usd if self._terms.run.price else None)
        self._shown.add(0, spent)
        self._n_in_flight -= 1
        self._settled.set()
        return kept

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
