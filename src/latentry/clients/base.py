"""What a client is: something that answers requests, in process or behind an endpoint.

A client answers and does nothing else; concurrency, retries and the memory of replies are `pool.py`'s.
Always true: a client tells a failure that may pass (`TransientError`) from one of the row (a `Reply` with its
status) and from one that every row would meet (`EndpointError`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from latentry.clients.ledger import Price
from latentry.errors import LatentryError
from latentry.records import Message, Reply, Request, Status


class Ask(Protocol):
    """Asks one client."""

    def __call__(self, requests: Sequence[Request], /) -> list[Reply]:
        """One reply each, in their order; a row's own failure is its reply's status, never an exception."""
        ...

    def fits(self, messages: Sequence[Message], max_tokens: int, /) -> bool:
        """Whether a prompt and its reply fit into the client's context, as far as that is known; nothing is asked."""
        ...

    def gradable(self, texts: Sequence[str], /) -> tuple[str, ...]:
        """Those of the texts that the client can grade in slots; none where it has no slots. Nothing is asked."""
        ...


class ClientRun(Protocol):
    """How one client is run (`run.clients.<name>`): nothing here changes an answer."""

    @property
    def concurrency(self) -> int:
        """Calls in flight at once."""
        ...

    @property
    def retries(self) -> int:
        """Further tries after the first, for failures that may pass."""
        ...

    @property
    def timeout_s(self) -> float:
        """Longest time for one call, in seconds."""
        ...

    @property
    def base_url(self) -> str | None:
        """Where the endpoint is, such as https://api.openai.com/v1."""
        ...

    @property
    def key_env(self) -> str | None:
        """Name of the environment variable that holds the endpoint's key."""
        ...

    @property
    def batch(self) -> int:
        """Requests per forward pass of a client in process."""
        ...

    @property
    def price(self) -> Price | None:
        """What an endpoint takes; None: unknown."""
        ...


@runtime_checkable
class CountingClient(Protocol):
    """A client that knows how long a prompt is, and how long one may be."""

    def n_tokens(self, messages: Sequence[Message], further: str = "") -> int:
        """Tokens of the whole prompt and a text after it; more than they take, where the model's tokenizer is not at hand."""
        ...

    @property
    def counts_exactly(self) -> bool:
        """Whether it counts by the model's own tokenizer."""
        ...

    @property
    def longest(self) -> int | None:
        """Tokens of prompt and reply together that the model takes; None: unknown."""
        ...


@runtime_checkable
class SelectiveClient(Protocol):
    """A client that has no answer to some kinds of requests, and knows it beforehand."""

    def cannot(self, request: Request) -> str:
        """Why the request is not sent, and what to do; empty where it is."""
        ...


@runtime_checkable
class SlotClient(Protocol):
    """A client that answers requests with slots."""

    def is_one_token(self, text: str) -> bool:
        """Whether the text is one token of the model, so that its log-probability in a slot is the whole text's."""
        ...


@runtime_checkable
class BatchClient(Protocol):
    """A client in this process, which answers whole batches."""

    identity: Mapping[str, Any]
    """All that its answers depend on, beyond the request."""

    def answer(self, requests: Sequence[Request]) -> list[Reply]:
        """One reply per request, in order."""
        ...


@runtime_checkable
class PlanningClient(BatchClient, Protocol):
    """A batch client that knows which requests are best answered together."""

    def batches(self, requests: Sequence[Request], size: int) -> list[list[int]]:
        """Indices of the requests, in batches of at most `size`; told once for all requests of a call."""
        ...


class AsyncClient(Protocol):
    """A client behind an endpoint, which answers one request at a time, many of them at once."""

    identity: Mapping[str, Any]
    """All that its answers depend on, beyond the request; no secret."""

    async def answer(self, request: Request) -> Reply:
        """The reply, or the row's own failure.

        Raises:
            TransientError: it may go well when tried again.
            EndpointError: every other request would fail alike (no credit, wrong key).
        """
        ...

    async def aclose(self) -> None:
        """Let connections go; the next `answer` opens new ones."""
        ...


class TransientError(LatentryError):
    """A call that may go well when tried again."""

    def __init__(
        self, detail: str, *, retry_after_s: float = 0.0, is_down: bool = False, was_sent: bool = True, is_mended: bool = False
    ) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s
        """How long the server asks us to wait; 0 when it does not say."""
        self.is_down = is_down
        """Whether nothing answers there at all, so that other requests would fail alike."""
        self.was_sent = was_sent
        """Whether the server got the call, which counts in a budget."""
        self.is_mended = is_mended
        """Whether the client asks otherwise from now on, so that the next try neither waits nor counts."""


def client_error(detail: str, model: str = "") -> Reply:
    """The reply of a call that brought nothing."""
    return Reply(status=Status.CLIENT_ERROR, text="", detail=detail, model=model)


def unsupported(detail: str) -> Reply:
    """The reply to what a client cannot do, this time and every other."""
    return Reply(status=Status.UNSUPPORTED, text="", detail=detail)


def further_text(request: Request) -> str:
    """What of a request stands after its prompt, and is read by the model, not written."""
    return request.continuation or "".join(request.slots)


def fits(client: object, messages: Sequence[Message], max_tokens: int) -> bool:
    """`Ask.fits` of one client."""
    if not isinstance(client, CountingClient) or client.longest is None:
        return True
    return client.n_tokens(messages) + max_tokens <= client.longest


def gradable(client: object, texts: Sequence[str]) -> tuple[str, ...]:
    """`Ask.gradable` of one client."""
    return tuple(text for text in texts if client.is_one_token(text)) if isinstance(client, SlotClient) else ()


def unsent(client: object, request: Request) -> Reply | None:
    """The reply to what is not sent, since the client has no such answers or it does not fit into its context; None where it is sent."""
    if isinstance(client, SelectiveClient) and (said := client.cannot(request)):
        return unsupported(said)
    if not isinstance(client, CountingClient) or client.longest is None:
        return None
    n_tokens = client.n_tokens(request.messages, further_text(request))
    if n_tokens + request.max_tokens <= client.longest:
        return None
    return unsupported(
        f"prompt of {n_tokens} tokens and reply of {request.max_tokens} exceed the context of {client.longest}; it was not sent"
    )
