"""Any endpoint that speaks OpenAI's chat completions: OpenAI, OpenRouter, vLLM, llama.cpp, Ollama.

Retries are the pool's; this file says what each answer of a server means. Always true: the key is in no identity,
reply or error, and goes over TLS or to this machine only.
"""

import asyncio
import ipaddress
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from latentry.clients.base import ClientRun, TransientError, client_error
from latentry.errors import EndpointError, ParamsError
from latentry.records import Reply, Request, Status
from latentry.registry import VariantConfig

_NOBODY = (502, 503, 504)
"""Answers of a gateway behind which nothing runs."""
_EXCERPT = 200
"""Characters of a server's message that are worth showing."""


class Config(VariantConfig):
    model: str
    """The model's name as the endpoint knows it."""
    top_logprobs: Annotated[int, Field(ge=1, le=20)] = 20
    """Most likely first tokens asked for where a scorer reads log-probabilities; some servers allow fewer than 20."""
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The field in which the endpoint takes the limit of reply tokens; OpenAI's newer models want the second."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the request's body, for what one server alone knows."""


def build(config: Config, *, name: str, run: ClientRun, models: Path, device: str) -> "OpenAICompatible":  # noqa: ARG001
    """The client; nothing is connected before the first request.

    Raises:
        ParamsError: no URL, one that would send the key in the clear, or a key that is not in the environment.
    """
    url = _checked_url(run.base_url, name)
    return OpenAICompatible(config, base_url=url, key=_key(run.key_env, url, name), key_env=run.key_env, timeout_s=run.timeout_s)


class OpenAICompatible:
    """One model behind one endpoint."""

    def __init__(self, config: Config, *, base_url: str, key: str | None, key_env: str | None, timeout_s: float) -> None:
        self.identity: Mapping[str, Any] = {
            "kind": config.kind,
            "base_url": base_url,
            "model": config.model,
            "top_logprobs": config.top_logprobs,
            "extra_body": config.extra_body,
        }
        self._config, self._base_url = config, base_url
        self._key, self._key_env, self._timeout_s = key, key_env, timeout_s
        self._transport: Any = None

    async def answer(self, request: Request) -> Reply:
        """One chat completion. Raises as `clients.base.AsyncClient`."""
        import openai

        try:
            async with asyncio.timeout(self._timeout_s):
                completion = await self._connected().chat.completions.create(**self._body(request))
            return self._reply(request, completion)
        except (TimeoutError, openai.APITimeoutError):
            raise TransientError(f"{self._base_url}: no answer within {self._timeout_s:g} s") from None
        except openai.APIConnectionError as error:
            raise TransientError(f"{self._base_url}: cannot be reached ({self._clean(error.__cause__ or error)})", is_down=True) from None
        except openai.APIStatusError as error:
            return self._refusal(error.status_code, error.body, dict(error.response.headers))
        except (openai.APIError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
            # The openai library does not check a reply's shape: what a field really holds shows only when it is used.
            return client_error(f"{self._base_url}: answered with what is no chat completion ({self._clean(error)})")

    async def aclose(self) -> None:
        """Close the connections."""
        if self._transport is not None:
            await self._transport.close()
            self._transport = None

    def _connected(self) -> Any:
        import openai

        if self._transport is None:
            # A proxy of the environment is for the world, never for a server on this machine.
            http = openai.DefaultAsyncHttpxClient(trust_env=False) if _is_loopback(self._base_url) else None
            self._transport = openai.AsyncOpenAI(
                base_url=self._base_url, api_key=self._key or "none", timeout=self._timeout_s, max_retries=0, http_client=http
            )
        return self._transport

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._config.model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            self._config.limit_field: request.max_tokens,
            "temperature": request.temperature,
        }
        if request.alternatives:
            body |= {"logprobs": True, "top_logprobs": self._config.top_logprobs}
        if self._config.extra_body:
            body["extra_body"] = self._config.extra_body
        return body

    def _reply(self, request: Request, completion: Any) -> Reply:
        choices = getattr(completion, "choices", None)
        if not choices or getattr(choices[0], "message", None) is None:
            return self._no_choice(completion)
        choice, usage = choices[0], getattr(completion, "usage", None)
        text = choice.message.content or ""
        if not isinstance(text, str):
            return self._no_choice(completion)
        status, detail = _ending(choice, is_one_token=bool(request.alternatives))
        alternatives = _first_token(choice) if request.alternatives else {}
        if request.alternatives and not alternatives and status is Status.OK:
            detail = "the endpoint returned no log-probabilities"
        return Reply(
            status=status,
            text=self._clean(text, whole=True),
            detail=self._clean(detail),
            alternatives=alternatives,
            prompt_tokens=_count(usage, "prompt_tokens"),
            reply_tokens=_count(usage, "completion_tokens"),
            model=self._clean(getattr(completion, "model", None) or self._config.model, whole=True),
        )

    def _no_choice(self, completion: Any) -> Reply:
        """Gateways answer 200 with an error inside, or with a page."""
        error = getattr(completion, "error", None)
        if isinstance(error, Mapping) and isinstance(error.get("code"), int):
            return self._refusal(error["code"], error, {})
        dump = getattr(completion, "model_dump_json", None)
        # Without its warnings: that the fields hold other types than declared is what this reply says.
        shown = completion if isinstance(completion, str) else dump(warnings=False) if dump else repr(completion)
        return client_error(f"{self._base_url}: answered with what is no chat completion: {self._clean(shown)}")

    def _refusal(self, code: int, body: Any, headers: Mapping[str, str]) -> Reply:
        """What an HTTP error means: try again, stop, or this row alone."""
        error = body.get("error", body) if isinstance(body, Mapping) else {}
        error = error if isinstance(error, Mapping) else {"message": error}
        said = self._clean(error.get("message") or body or "")
        where = f"{self._base_url}: HTTP {code}" + (f" ({said})" if said else "")
        if _is_moderation(code, error):
            return Reply(status=Status.REFUSED, text="", detail=where, model=self._config.model)
        if code == 402 or error.get("code") == "insufficient_quota":
            raise EndpointError(f"{where}: out of credit; replies so far are kept, add credit and run again")
        if code in (401, 403):
            raise EndpointError(
                f"{where}: the key in {self._key_env or '(no run.clients.*.key_env is set)'} is not accepted; set it and run again"
            )
        if code == 404:
            raise EndpointError(
                f"{where}: no such path, or no model {self._config.model!r}; see clients.*.model and run.clients.*.base_url"
            )
        if code in (408, 409, 425, 429) or code >= 500:
            raise TransientError(where, retry_after_s=_retry_after_s(headers), is_down=code in _NOBODY)
        return client_error(where, self._config.model)

    def _clean(self, said: object, *, whole: bool = False) -> str:
        text = _storable(str(said) if self._key is None else str(said).replace(self._key, "***"))
        return text if whole else " ".join(text.split())[:_EXCERPT]


def _storable(text: str) -> str:
    """Without the halves of characters that JSON can spell and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()


def _count(usage: Any, name: str) -> int:
    found = getattr(usage, name, None)
    return found if isinstance(found, int) else 0


def _ending(choice: Any, *, is_one_token: bool) -> tuple[Status, str]:
    refusal = getattr(choice.message, "refusal", None)
    finish = getattr(choice, "finish_reason", None)
    if finish == "content_filter" or refusal:
        return Status.REFUSED, refusal or "stopped by the endpoint's content filter"
    if finish == "length" and not is_one_token:
        return Status.TRUNCATED, "cut at max_tokens"
    return Status.OK, ""


def _first_token(choice: Any) -> dict[str, float]:
    """Log-probabilities of the first token's alternatives, by exact text; entries that say none are left out."""
    logprobs = getattr(choice, "logprobs", None)
    content = logprobs.content if logprobs else None
    if not content:
        return {}
    found: dict[str, float] = {}
    for entry in (*(content[0].top_logprobs or ()), content[0]):
        token, logprob = getattr(entry, "token", None), getattr(entry, "logprob", None)
        if isinstance(token, str) and isinstance(logprob, int | float) and math.isfinite(logprob):
            found.setdefault(_storable(token), logprob)
    return found


def _is_moderation(code: int, error: Mapping[str, Any]) -> bool:
    """Whether the input itself was found unfit: by OpenAI's and Azure's codes, or OpenRouter's metadata."""
    metadata = error.get("metadata")
    flagged = isinstance(metadata, Mapping) and ("flagged_input" in metadata or "reasons" in metadata)
    return code in (400, 403) and (flagged or error.get("code") in ("content_filter", "content_policy_violation"))


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Seconds the server asks to wait; dates, which servers of models do not send, count as not said."""
    try:
        return max(0.0, float(headers.get("retry-after", "0")))
    except ValueError:
        return 0.0


def _checked_url(url: str | None, name: str) -> str:
    where = f"run.clients.{name}.base_url"
    if not url:
        raise ParamsError(where, ["is missing: the endpoint's URL, such as https://api.openai.com/v1 or http://localhost:8000/v1"])
    try:
        parts = urlsplit(url)
        _ = parts.port  # read only when asked for
    except ValueError:
        # Neither the URL nor the reason is shown: both can hold a password.
        raise ParamsError(where, ["is no URL of an endpoint: its host or port cannot be read; such as https://api.openai.com/v1"]) from None
    if parts.username or parts.password:
        raise ParamsError(where, ["holds a user or password: keys come from the environment only; set key_env to the variable's name"])
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ParamsError(where, [f"{url!r} is no URL of an endpoint; such as https://api.openai.com/v1"])
    if parts.scheme == "http" and not _is_loopback(url):
        raise ParamsError(
            where, [f"{url!r} would send texts and key in the clear: https:// is needed, except for this machine (localhost)"]
        )
    return url.rstrip("/")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _key(key_env: str | None, url: str, name: str) -> str | None:
    if key_env and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", key_env):
        fault = "is no name of an environment variable (capital letters, digits, _); it is not shown in case it is a key"
        raise ParamsError(f"run.clients.{name}.key_env", [f"key_env {fault}; export the key in a variable and give that one's name"])
    key = os.environ.get(key_env, "").strip() if key_env else ""
    if key_env and not key and not _is_loopback(url):
        raise ParamsError(f"run.clients.{name}.key_env", [f"the environment has no {key_env}, the key for {url}; export it and run again"])
    return key or None
