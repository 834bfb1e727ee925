"""Asks clients: bounded concurrency, retries, one call per distinct request, and every reply kept as it comes.

What a client says is its own file's. Always true: a reply that was had is on disk before the next is looked at, so
that a kill repeats at most the calls in flight.
"""

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import tenacity

from latentry import registry
from latentry.clients.base import Ask, AsyncClient, BatchClient, ClientRun, PlanningClient, TransientError, client_error
from latentry.clients.progress import Progress, progress
from latentry.clients.reply_store import ReplyStore, reply_key
from latentry.errors import EndpointError, ParamsError
from latentry.records import Reply, Request
from latentry.store import cache_folder

FIRST_WAIT_S = 1.0
"""Wait before the first retry; doubled for each further one."""
LONGEST_WAIT_S = 60.0
"""Cap of a wait between two tries, also of one that the server asks for."""
DOWN_AFTER = 8
"""So many requests in a row that found nobody, each after all its retries, and the endpoint counts as down."""

_log = logging.getLogger(__name__)


def open_pool(configs: Mapping[str, registry.VariantConfig], run_of: Callable[[str], ClientRun], device: str) -> "ClientPool":
    """The clients of a project, with its reply store and the models in its `data/models`."""
    run = {name: run_of(name) for name in configs}
    return ClientPool(configs, run, models=Path("data/models"), store=ReplyStore(cache_folder("replies")), device=device)


class ClientPool:
    """The clients of a run, each built when it is first asked."""

    def __init__(
        self,
        configs: Mapping[str, registry.VariantConfig],
        run: Mapping[str, ClientRun],
        *,
        models: Path,
        store: ReplyStore,
        device: str = "cpu",
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        self.store = store
        self._configs, self._run = configs, run
        self._models, self._device, self._first_wait_s = models, device, first_wait_s
        self._clients: dict[str, BatchClient | AsyncClient] = {}
        self._locks = {name: threading.Lock() for name in configs}

    def asker(self, name: str, label: str) -> Ask:
        """Asks one client, by its name under `clients`; the label stands beside the progress.

        Raises:
            ParamsError: there is no such client, or it cannot be had as it is set.
        """
        if name not in self._configs:
            raise ParamsError("clients", [f"there is no client {name!r}{registry.nearest(name, self._configs)}"])
        if name not in self._run:
            raise ParamsError(f"run.clients.{name}", ["is missing: say how the client is run (concurrency, retries, timeout_s, batch)"])
        return lambda requests: self._ask(name, label, requests)

    def _ask(self, name: str, label: str, requests: Sequence[Request]) -> list[Reply]:
        # One call of a client at a time: what another thread is asking is in the store when this one looks.
        with self._locks[name]:
            client, run = self._client(name), self._run[name]
            keys = [reply_key(client.identity, request) for request in requests]
            distinct = dict(zip(keys, requests, strict=True))
            replies = self.store.find(distinct)
            missing = {key: request for key, request in distinct.items() if key not in replies}
            _log.info("%s: %d requests, %d distinct, %d to ask", label, len(keys), len(distinct), len(missing))
            if missing:
                with progress(label, len(missing)) as shown:
                    if asyncio.iscoroutinefunction(client.answer):
                        calls = _EndpointCalls(cast(AsyncClient, client), run, self.store, shown, self._first_wait_s)
                        replies |= asyncio.run(calls.all(missing))
                    else:
                        replies |= answers_in_batches(cast(BatchClient, client), run.batch, distinct, missing, self.store, shown)
        return [replies[key] for key in keys]

    def _client(self, name: str) -> BatchClient | AsyncClient:
        if name not in self._clients:
            config = self._configs[name]
            variant = registry.variant("clients", config.kind)
            self._clients[name] = variant.build(config, name=name, run=self._run[name], models=self._models, device=self._device)
        return self._clients[name]


def answers_in_batches(
    client: BatchClient,
    size: int,
    distinct: Mapping[str, Request],
    missing: Mapping[str, Request],
    store: ReplyStore,
    shown: Progress,
) -> dict[str, Reply]:
    """Answers batch by batch. Batches are formed over all requests, so that what the store holds does not move them."""
    keys, requests = list(distinct), list(distinct.values())
    plan = client.batches(requests, size) if isinstance(client, PlanningClient) else batches_by_length(requests, size)
    replies: dict[str, Reply] = {}
    for batch in plan:
        wanted = [keys[i] for i in batch if keys[i] in missing]
        if wanted:
            answers = client.answer([missing[key] for key in wanted])
            replies |= store.keep(dict(zip(wanted, answers, strict=True)))
            shown.add(len(wanted))
    return replies


def batches_by_length(requests: Sequence[Request], size: int) -> list[list[int]]:
    """Indices in batches of requests of like length, the longest first; ties in the order given."""
    order = sorted(range(len(requests)), key=lambda i: -sum(len(message.content) for message in requests[i].messages))
    return [order[start : start + size] for start in range(0, len(order), size)]


class _EndpointCalls:
    """The calls of one ask: as many workers as may be in flight, each taking the next request."""

    def __init__(self, client: AsyncClient, run: ClientRun, store: ReplyStore, shown: Progress, first_wait_s: float) -> None:
        self._client, self._run, self._store, self._shown = client, run, store, shown
        self._first_wait_s = first_wait_s
        self._replies: dict[str, Reply] = {}
        self._stop = asyncio.Event()
        self._fatal: EndpointError | None = None
        self._n_down_in_row = 0

    async def all(self, missing: Mapping[str, Request]) -> dict[str, Reply]:
        """Every reply; after a fatal error those in flight are still waited for and kept, and it is raised."""
        todo = iter(missing.items())
        try:
            await asyncio.gather(*(self._work(todo) for _ in range(min(self._run.concurrency, len(missing)))))
        finally:
            await self._client.aclose()
        if self._fatal is not None:
            raise self._fatal
        if self._n_down_in_row >= len(missing):
            raise self._down(next(iter(self._replies.values())).detail)
        return self._replies

    async def _work(self, todo: Iterator[tuple[str, Request]]) -> None:
        for key, request in todo:
            if self._stop.is_set():
                return
            reply = await self._one(request)
            if reply is not None:
                self._replies |= self._store.keep({key: reply})
                self._shown.add(1)

    async def _one(self, request: Request) -> Reply | None:
        """The reply, or the row's failure after all retries; None when the endpoint turned out unusable."""
        try:
            reply = await self._tries()(self._call, request)
        except EndpointError as error:
            self._give_up(error)
            return None
        except TransientError as error:
            self._n_down_in_row = self._n_down_in_row + 1 if error.is_down else 0
            if self._n_down_in_row >= DOWN_AFTER:
                self._give_up(self._down(str(error)))
            return client_error(f"{error} (after {self._run.retries + 1} tries)")
        self._n_down_in_row = 0
        return reply

    async def _call(self, request: Request) -> Reply:
        if self._stop.is_set():
            raise TransientError("not asked: the endpoint turned out unusable")
        return await self._client.answer(request)

    def _tries(self) -> tenacity.AsyncRetrying:
        return tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(TransientError),
            stop=lambda state: self._stop.is_set() or state.attempt_number > self._run.retries,
            wait=self._wait_s,
            sleep=self._sleep,
            reraise=True,
        )

    def _wait_s(self, state: tenacity.RetryCallState) -> float:
        growing = self._first_wait_s * 2 ** (state.attempt_number - 1) * random.uniform(0.75, 1.25)
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after_s if isinstance(error, TransientError) else 0.0
        return min(max(growing, asked), LONGEST_WAIT_S)

    async def _sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return

    def _give_up(self, error: EndpointError) -> None:
        self._fatal = self._fatal or error
        self._stop.set()

    def _down(self, detail: str) -> EndpointError:
        return EndpointError(f"{detail}: nothing answers there; replies so far are kept, run again when it is up")
