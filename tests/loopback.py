"""A chat-completions server on this machine that answers as the test says, and counts; and what to ask it."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from latentry.records import Message, Request


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One HTTP answer."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    after_s: float = 0.0
    is_html: bool = False


def completion(
    text: str | None, *, finish: str = "stop", refusal: str | None = None, logprobs: Mapping[str, float] | None = None
) -> Answer:
    """An OpenAI chat completion."""
    message = {"role": "assistant", "content": text, "refusal": refusal}
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    if logprobs is not None:
        top = [{"token": token, "logprob": value, "bytes": None} for token, value in logprobs.items()]
        choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return Answer(body={"id": "1", "object": "chat.completion", "created": 1, "model": "served-model", "choices": [choice], "usage": usage})


def failure(status: int, message: str, *, headers: Mapping[str, str] | None = None, **error: Any) -> Answer:
    """An OpenAI error."""
    return Answer(status=status, body={"error": {"message": message, **error}}, headers=headers or {})


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a test's client is run."""

    base_url: str | None = None
    concurrency: int = 4
    retries: int = 2
    timeout_s: float = 10.0
    key_env: str | None = None
    batch: int = 4
    price: Any = None


def request(text: str, **wanted: Any) -> Request:
    """A question of one user message."""
    return Request(messages=(Message(role="user", content=text),), **{"max_tokens": 8, **wanted})


class Loopback(ThreadingHTTPServer):
    """Counts calls by the last message's text, and how many were in flight at once."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, rule: Callable[[str, int], Answer], port: int = 0) -> None:
        """The rule gets the last message's text and how often it was asked before. Port 0: one that is free."""
        super().__init__(("127.0.0.1", port), _Handler)
        self.rule = rule
        self.prompt_tokens: Callable[[Mapping[str, Any]], int] | None = None
        """Counts the tokens of a request's body, where the usage told is to be true."""
        self.calls: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.authorizations: set[str] = set()
        self.times: list[float] = []
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """What a client takes as base_url."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed or gave up is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: Loopback
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        server = self.server
        with server.lock:
            before = server.calls[asked]
            server.calls[asked] += 1
            server.bodies.append(body)
            server.authorizations.add(self.headers.get("authorization", ""))
            server.times.append(time.monotonic())
            server.in_flight += 1
            server.most_in_flight = max(server.most_in_flight, server.in_flight)
        try:
            answer = server.rule(asked, before)
            time.sleep(answer.after_s)
        finally:
            with server.lock:
                server.in_flight -= 1
        if server.prompt_tokens is not None and isinstance(answer.body, dict) and "usage" in answer.body:
            answer.body["usage"] = {"prompt_tokens": server.prompt_tokens(body), "completion_tokens": 1}
        self._send(answer)

    def _send(self, answer: Answer) -> None:
        content = answer.body.encode() if isinstance(answer.body, str) else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("content-type", "text/html" if answer.is_html else "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def loopback(rule: Callable[[str, int], Answer]) -> Iterator[Loopback]:
    """The server, for one block."""
    server = Loopback(rule)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
