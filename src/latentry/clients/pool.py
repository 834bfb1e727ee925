"""Asks clients: one call per distinct request, every reply kept as it comes, nothing asked that the store knows.

What a client says is its own file's; how an endpoint is called is `endpoint_calls.py`'s. Always true: a reply that was
had is on disk before the next is looked at, so that a kill repeats at most the calls in flight.
"""

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from latentry import registry
from latentry.clients.base import Ask, AsyncClient, BatchClient, ClientRun, PlanningClient, fits, further_text, gradable
from latentry.clients.endpoint_calls import FIRST_WAIT_S, EndpointCalls, Terms
from latentry.clients.ledger import Budget, Spent, call
from latentry.clients.progress import Progress, progress
from latentry.clients.reply_store import ReplyStore, reply_key
from latentry.errors import ParamsError
from latentry.records import Message, Reply, Request
from latentry.store import cache_folder

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoBudget:
    """No limit at all."""

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None


def open_pool(
    configs: Mapping[str, registry.VariantConfig], run_of: Callable[[str], ClientRun], budget: Budget, device: str
) -> "ClientPool":
    """The clients of a project, with its reply store and the models in its `data/models`."""
    run = {name: run_of(name) for name in configs}
    return ClientPool(configs, run, models=Path("data/models"), store=ReplyStore(cache_folder("replies")), budget=budget, device=device)


class ClientPool:
    """The clients of a run, each built when it is first asked."""

    def __init__(
        self,
        configs: Mapping[str, registry.VariantConfig],
        run: Mapping[str, ClientRun],
        *,
        models: Path,
        store: ReplyStore,
        budget: Budget | None = None,
        device: str = "cpu",
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        self.store = store
        self._configs, self._run, self._budget = configs, run, budget or NoBudget()
        self._models, self._device, self._first_wait_s = models, device, first_wait_s
        self._clients: dict[str, BatchClient | AsyncClient] = {}
        self._locks = {name: threading.Lock() for name in configs}
        self._served: dict[str, set[str]] = defaultdict(set)

    def asker(self, name: str, label: str) -> Ask:
        """Asks one client, by its name under `clients`; the label stands beside the progress.

        Raises:
            ParamsError: there is no such client, or it cannot be had as it is set.
        """
        if name not in self._configs:
            raise ParamsError("clients", [f"there is no client {name!r}{registry.nearest(name, self._configs)}"])
        if name not in self._run:
            raise ParamsError(f"run.clients.{name}", ["is missing: say how the client is run (concurrency, retries, timeout_s, batch)"])
        return _Asker(self, name, label)

    def served(self) -> dict[str, list[str]]:
        """The models that answered, by client, as they name themselves (in process: by the weights' digest)."""
        return {name: sorted(models) for name, models in sorted(self._served.items())}

    def client(self, name: str) -> BatchClient | AsyncClient:
        """One client, built when it is first wanted."""
        if name not in self._clients:
            config = self._configs[name]
            variant = registry.variant("clients", config.kind)
            self._clients[name] = variant.build(config, name=name, run=self._run[name], models=self._models, device=self._device)
        return self._clients[name]

    def ask(self, name: str, label: str, requests: Sequence[Request]) -> list[Reply]:
        """One reply each; those that the store has are not asked for."""
        # One call of a client at a time: what another thread is asking is in the store when this one looks.
        with self._locks[name]:
            client = self.client(name)
            keys = [reply_key(client.identity, request) for request in requests]
            distinct = dict(zip(keys, requests, strict=True))
            replies = self.store.find(distinct)
            missing = {key: request for key, request in distinct.items() if key not in replies}
            _log.info("%s: %d requests, %d distinct, %d to ask", label, len(keys), len(distinct), len(missing))
            if missing:
                with progress(label, len(missing)) as shown:
                    replies |= self._answers(name, distinct, missing, shown)
            self._served[name] |= {reply.model for reply in replies.values() if reply.model}
        return [replies[key] for key in keys]

    def _answers(self, name: str, distinct: Mapping[str, Request], missing: Mapping[str, Request], shown: Progress) -> dict[str, Reply]:
        client, run = self._clients[name], self._run[name]
        if asyncio.iscoroutinefunction(client.answer):
            terms = Terms(client=name, run=run, budget=self._budget, first_wait_s=self._first_wait_s)
            return asyncio.run(EndpointCalls(cast(AsyncClient, client), terms, self.store, shown).all(missing))
        return answers_in_batches(cast(BatchClient, client), run.batch, distinct, missing, self.store, shown)


class _Asker:
    """Asks one client of a pool, under one label."""

    def __init__(self, pool: ClientPool, name: str, label: str) -> None:
        self._pool, self._name, self._label = pool, name, label

    def __call__(self, requests: Sequence[Request], /) -> list[Reply]:
        return self._pool.ask(self._name, self._label, requests)

    def fits(self, messages: Sequence[Message], max_tokens: int, /) -> bool:
        return fits(self._pool.client(self._name), messages, max_tokens)

    def gradable(self, texts: Sequence[str], /) -> tuple[str, ...]:
        return gradable(self._pool.client(self._name), texts)


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
            replies |= store.keep(dict(zip(wanted, answers, strict=True)), usd=0.0)
            shown.add(len(wanted), sum((call(one.prompt_tokens, one.reply_tokens, None) for one in answers), Spent()))
    return replies


def batches_by_length(requests: Sequence[Request], size: int) -> list[list[int]]:
    """Indices in batches of requests of like length, the longest first; ties in the order given."""
    order = sorted(range(len(requests)), key=lambda i: -_length(requests[i]))
    return [order[start : start + size] for start in range(0, len(order), size)]


def _length(request: Request) -> int:
    return sum(len(message.content) for message in request.messages) + len(further_text(request))
