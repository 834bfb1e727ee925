"""Clients that count what they are asked and answer nothing new, so that explainers and scorers can be run before they cost.

Always true: a reply that the store has is given as it is and counted apart; a request counts once, in the first cell that asks.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from latentry.clients.base import AsyncClient, BatchClient, CountingClient, fits, further_text, gradable, unsent
from latentry.clients.counting import n_bytes
from latentry.clients.ledger import call
from latentry.clients.pool import ClientPool
from latentry.clients.reply_store import ReplyStore, reply_key
from latentry.errors import ContractError, ParamsError
from latentry.params import Params
from latentry.records import Message, Reply, Request, Status

BYTES_PER_TOKEN, TOKENS_PER_TURN = 4.4, 4
"""Of English in the vocabularies of today's judges, where neither a tokenizer nor an earlier reply tells."""
SAMPLE = 256
"""Prompts of a cell that are counted by a tokenizer; the others by their bytes at the same ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCalls:
    """What one cell asks of one client."""

    cell: str
    client: str
    calls: int
    """Distinct requests that no earlier cell and no earlier run asked."""
    kept: int
    """Distinct requests whose reply the store has."""
    prompt_tokens: int
    counted_by: str
    """`tokenizer`, `earlier replies` (of the same client), or `bytes`, which is rough."""
    reply_tokens: int
    """At most."""
    usd: float | None
    """At most; None where an endpoint's price is not in `run.clients`."""
    planned: bool
    """Whether the SAE's examples are not drawn yet, so that stand-ins were counted."""


@dataclass(slots=True)
class _Cell:
    """What one cell asked so far."""

    client: str
    planned: bool
    kept: int = 0
    n_new: int = 0
    n_bytes: int = 0
    n_turns: int = 0
    reply_tokens: int = 0
    sample: list[Request] = field(default_factory=list)
    known_bytes: int = 0
    known_tokens: int = 0


class CallCounts:
    """The clients of a run, that count."""

    def __init__(self, params: Params, data: Path, store: ReplyStore) -> None:
        run = {name: params.run_of(name) for name in params.clients}
        self._pool = ClientPool(params.clients, run, models=data / "models", store=store)
        self._params, self._store = params, store
        self._seen: set[str] = set()
        self._cells: dict[str, _Cell] = {}
        self._chance = random.Random(0)

    def asker(self, cell: str, planned: bool) -> Callable[[str], "_CountingAsk"]:
        """Asks for one cell, of whatever client it names."""
        return lambda client: _CountingAsk(self, client, cell, planned)

    def count(self, cell: str, client: str, planned: bool, requests: Sequence[Request]) -> list[Reply]:
        """The replies that the store has, and stand-ins for the others, which are counted."""
        counted = self._cells.setdefault(f"{cell}\n{client}", _Cell(client=client, planned=planned))
        asked = self.client(client)
        identity = getattr(asked, "identity", {"kind": "unknown", "client": client})
        keys = [reply_key(identity, request) for request in requests]
        found = self._store.find(keys)
        missing = {key: request for key, request in zip(keys, requests, strict=True) if key not in found}
        refused = {key: reply for key, request in missing.items() if (reply := unsent(asked, request)) is not None}
        for key, request in zip(keys, requests, strict=True):
            if key not in self._seen and key not in refused:
                self._seen.add(key)
                self._add(counted, request, found.get(key))
        return [found.get(key) or refused.get(key) or _stand_in(key, request) for key, request in zip(keys, requests, strict=True)]

    def client(self, name: str) -> BatchClient | AsyncClient | None:
        """A client, or None where its key or its model is not there yet."""
        try:
            return self._pool.client(name)
        except (ParamsError, ContractError):
            return None

    def _add(self, cell: _Cell, request: Request, reply: Reply | None) -> None:
        size = _bytes_of(request)
        if reply is not None:
            cell.kept += 1
            if reply.prompt_tokens:
                cell.known_bytes += size
                cell.known_tokens += reply.prompt_tokens
            return
        cell.n_new += 1
        cell.n_bytes += size
        cell.n_turns += len(request.messages)
        cell.reply_tokens += request.max_tokens
        if len(cell.sample) < SAMPLE:
            cell.sample.append(request)
        elif (place := self._chance.randrange(cell.n_new)) < SAMPLE:
            cell.sample[place] = request

    def cells(self) -> Iterator[CellCalls]:
        """Every cell that asks, with its tokens and its price."""
        known: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for cell in self._cells.values():
            known[cell.client][0] += cell.known_tokens
            known[cell.client][1] += cell.known_bytes
        for name, cell in self._cells.items():
            tokens, counted_by = self._prompt_tokens(cell, known[cell.client])
            yield CellCalls(
                cell=name.partition("\n")[0],
                client=cell.client,
                calls=cell.n_new,
                kept=cell.kept,
                prompt_tokens=tokens,
                counted_by=counted_by,
                reply_tokens=cell.reply_tokens,
                usd=self._usd(cell.client, tokens, cell.reply_tokens),
                planned=cell.planned,
            )

    def _prompt_tokens(self, cell: _Cell, of_client: Sequence[int]) -> tuple[int, str]:
        client = self.client(cell.client)
        if isinstance(client, CountingClient) and client.counts_exactly and cell.sample:
            counted = sum(client.n_tokens(request.messages, further_text(request)) for request in cell.sample)
            return round(counted * cell.n_bytes / max(1, sum(map(_bytes_of, cell.sample)))), "tokenizer"
        for tokens, size in ((cell.known_tokens, cell.known_bytes), of_client):
            if tokens:
                return round(cell.n_bytes * tokens / size), "earlier replies"
        return round(cell.n_bytes / BYTES_PER_TOKEN) + TOKENS_PER_TURN * cell.n_turns, "bytes"

    def _usd(self, client: str, prompt_tokens: int, reply_tokens: int) -> float | None:
        price = self._params.run_of(client).price
        if price is None:
            return 0.0 if self._params.clients[client].kind == "transformers" else None
        return call(prompt_tokens, reply_tokens, price).usd


class _CountingAsk:
    """Counts what one cell asks of one client."""

    def __init__(self, counts: CallCounts, client: str, cell: str, planned: bool) -> None:
        self._counts, self._client, self._cell, self._planned = counts, client, cell, planned

    def __call__(self, requests: Sequence[Request], /) -> list[Reply]:
        return self._counts.count(self._cell, self._client, self._planned, requests)

    def fits(self, messages: Sequence[Message], max_tokens: int, /) -> bool:
        return fits(self._counts.client(self._client), messages, max_tokens)

    def gradable(self, texts: Sequence[str], /) -> tuple[str, ...]:
        return gradable(self._counts.client(self._client), texts)


def _bytes_of(request: Request) -> int:
    """Bytes of all that a request gives the model to read."""
    return n_bytes(request.messages) + len(further_text(request).encode("utf-8", "replace"))


def _stand_in(key: str, request: Request) -> Reply:
    """A reply that can be read, different for every request, as long as an explanation usually is."""
    graded = {"Yes": -0.1, "No": -2.0} if request.alternatives else {}
    text = "Yes" if graded else f"EXPLANATION: words about something like {key[:12]}"
    return Reply(status=Status.OK, text=text, detail="", alternatives=graded, key=key)
