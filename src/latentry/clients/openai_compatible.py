"""Any endpoint that speaks as OpenAI's does, by chat or by completions: OpenAI, OpenRouter, vLLM, llama.cpp, Ollama.

Retries are the pool's; what answers mean is `openai_replies.py`'s. Always true: the key is in no identity, reply or error.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from latentry.clients.base import ClientRun, TransientError, unsupported
from latentry.clients.counting import TokenCounter
from latentry.clients.endpoint import Endpoint, HttpAnswer, checked_url, key_from
from latentry.clients.openai_replies import OpenAIReader, error_of, is_logprob, is_number
from latentry.clients.transcript import END, transcript
from latentry.records import Message, Reply, Request, Status
from latentry.registry import VariantConfig

_NO_SCHEMA = re.compile(r"response_format|json_schema|schema|grammar|structured|guided", re.IGNORECASE)
"""What a server that cannot hold its model to a schema complains of."""

_OURS = frozenset(
    ("model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", "n", "stream", "logprobs", "top_logprobs", "echo")
)
"""Fields of a body that stand in the reply's key by other names, or that say how the answer is read."""


class Config(VariantConfig):
    model: str
    """The model's name as the endpoint knows it."""
    api: Literal["chat", "completions"] = "chat"
    """`chat` for instruct models; `completions` for base models, which continue the turns as plain text, and for the
    log-probabilities of given texts."""
    top_logprobs: Annotated[int, Field(ge=2, le=20)] = 20
    """Most likely first tokens asked for where a scorer reads log-probabilities; some servers allow fewer than 20, and one alone would grade nothing."""
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The field in which the endpoint takes the limit of reply tokens; OpenAI's newer models want the second."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the request's body, for what one server alone knows; none that the client sets itself."""
    context: Annotated[int, Field(ge=256)] | None = None
    """Tokens of prompt and reply together that the model takes; a longer prompt is sent with fewer examples, never with
    less instruction. None: nothing is cut, and the endpoint's own refusal is the row's status."""
    tokenizer: str | None = None
    """Folder with the model's tokenizer files, to count prompts exactly; None counts a token for every 3 bytes, which is too many."""

    @field_validator("extra_body")
    @classmethod
    def _sets_nothing_of_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        ours = sorted(_OURS & value.keys())
        if ours:
            raise ValueError(f"sets {', '.join(ours)}, which the client sets itself from params and prompts; leave it out of extra_body")
        return value


def build(config: Config, *, name: str, run: ClientRun, models: Path, device: str) -> "OpenAICompatible":  # noqa: ARG001
    """The client; nothing is connected before the first request.

    Raises:
        ParamsError: no URL, one that would send the key in the clear, or a key that is not in the environment.
    """
    url = checked_url(run.base_url, name)
    endpoint = Endpoint(url, key_from(run.key_env, url, name), run.timeout_s)
    return OpenAICompatible(config, endpoint, name=name, key_env=run.key_env)


class OpenAICompatible:
    """One model behind one endpoint."""

    def __init__(self, config: Config, endpoint: Endpoint, *, name: str, key_env: str | None) -> None:
        self.identity: Mapping[str, Any] = {
            "kind": config.kind,
            "base_url": endpoint.base_url,
            "model": config.model,
            "top_logprobs": config.top_logprobs,
            "extra_body": config.extra_body,
        } | ({} if config.api == "chat" else {"api": config.api})
        self.longest = config.context
        self.counts_exactly = config.tokenizer is not None
        self._counter = TokenCounter(Path(config.tokenizer) if config.tokenizer else None, name, is_chat=config.api == "chat")
        self._config, self._endpoint = config, endpoint
        self._reader = OpenAIReader(endpoint, config.model, key_env)
        self._takes_schema = True

    def n_tokens(self, messages: Sequence[Message], further: str = "") -> int:
        """Tokens of a prompt and a text after it; without `tokenizer` more than they take."""
        return self._counter.n_tokens(messages, further)

    def cannot(self, request: Request) -> str:
        """Why a request is not sent: there is no call for it."""
        if request.slots:
            return "endpoints give no log-probabilities in the midst of a text; ask for a reply in words"
        if request.continuation and self._config.api == "chat":
            return "chat completions echo no prompt; set clients.*.api: completions"
        return ""

    async def answer(self, request: Request) -> Reply:
        """One completion. Raises as `clients.base.AsyncClient`."""
        if request.continuation:
            return await self._continuation(request)
        path = "chat/completions" if self._config.api == "chat" else "completions"
        has_schema = bool(request.schema) and self._takes_schema
        answer = await self._endpoint.post(path, self._body(request))
        if has_schema and _refuses_schema(answer):
            self._takes_schema = False
            raise TransientError(f"{self._endpoint.base_url}: takes no schema", is_mended=True)
        return self._reader.reply(request, answer)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()

    def _body(self, request: Request) -> dict[str, Any]:
        body = self._asked(request) | {"temperature": request.temperature}
        if request.sample:
            body["seed"] = request.sample
        if request.schema and self._takes_schema:
            schema = {"name": "answer", "strict": True, "schema": json.loads(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body | self._config.extra_body

    def _asked(self, request: Request) -> dict[str, Any]:
        limit = {self._config.limit_field: request.max_tokens}
        if self._config.api == "chat":
            turns = [{"role": message.role, "content": message.content} for message in request.messages]
            wanted = {"logprobs": True, "top_logprobs": self._config.top_logprobs} if request.alternatives else {}
            return {"model": self._config.model, "messages": turns} | limit | wanted
        wanted = {"logprobs": self._config.top_logprobs} if request.alternatives else {"stop": [END]}
        return {"model": self._config.model, "prompt": transcript(request.messages)} | limit | wanted

    async def _continuation(self, request: Request) -> Reply:
        """Log-probabilities of given text, from the prompt's echo."""
        before = transcript(request.messages)
        body = {"model": self._config.model, "prompt": before + request.continuation, "echo": True, "logprobs": 1, "temperature": 0.0}
        answer = await self._endpoint.post("completions", body | {self._config.limit_field: 1} | self._config.extra_body)
        reply = self._reader.reply(request, answer)
        if reply.status not in (Status.OK, Status.TRUNCATED):
            return reply
        found = echoed(answer.body, len(before), len(before) + len(request.continuation))
        if not found:
            told = unsupported(f"{self._endpoint.base_url}: echoes no log-probabilities of the prompt")
            return dataclasses.replace(told, prompt_tokens=reply.prompt_tokens, reply_tokens=reply.reply_tokens)
        return dataclasses.replace(reply, status=Status.OK, detail="", text="", continuation=found)


def echoed(body: Mapping[str, Any], start: int, end: int) -> tuple[float, ...]:
    """Log-probabilities of the echoed tokens that hold any character from `start` to `end`; empty where any is not told."""
    logprobs = body["choices"][0].get("logprobs")
    if not isinstance(logprobs, Mapping) or not isinstance(logprobs.get("text_offset"), list):
        return ()
    offsets, tokens, values = logprobs["text_offset"], logprobs.get("tokens") or (), logprobs.get("token_logprobs") or ()
    if not (isinstance(tokens, list) and isinstance(values, list) and len(offsets) == len(tokens) == len(values)):
        return ()
    if not all(map(is_number, offsets)):
        return ()
    inside = [value for at, token, value in zip(offsets, tokens, values, strict=True) if at < end and at + len(str(token)) > start]
    return tuple(inside) if all(map(is_logprob, inside)) else ()


def _refuses_schema(answer: HttpAnswer) -> bool:
    return answer.code in (400, 415, 422, 500, 501) and bool(_NO_SCHEMA.search(str(error_of(answer.body).get("message", ""))))
