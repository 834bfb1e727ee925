"""What the answers of an OpenAI-style server mean: a reply, a failure of the row, one that may pass, or the end of the run.

Both shapes are read: chat completions, and completions (OpenAI's own form, and llama.cpp's, which is that of chat). Always
true: whatever a server sends, the outcome is one of these four.
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from latentry.clients.base import TransientError, client_error
from latentry.clients.endpoint import Endpoint, HttpAnswer, storable
from latentry.errors import EndpointError
from latentry.records import Reply, Request, Status

_NOBODY = (502, 503, 504)
"""Answers of a gateway behind which nothing runs."""
_NO_CREDIT = ("insufficient_quota", "insufficient_credits", "billing_hard_limit_reached")
_ENDED = ("stop", "eos", "eos_token", "end_turn", "stop_sequence")
"""Reasons for an end that the model came to by itself."""
_FILTERED = ("content_filter", "refusal", "safety")
_MOST_TOKENS = 1 << 40
"""Beyond any prompt: a usage that says more is unknown."""
_ABOVE_ZERO = 1e-3
"""What rounding may add to a log-probability of 0."""
_NO_SUCH_MODEL = ("model_not_found", "invalid_model", "model_not_available")


class OpenAIReader:
    """Reads the answers of one model behind one endpoint."""

    def __init__(self, endpoint: Endpoint, model: str, key_env: str | None) -> None:
        self._endpoint, self._model, self._key_env = endpoint, model, key_env

    def reply(self, request: Request, answer: HttpAnswer) -> Reply:
        """The reply, or the row's own failure.

        Raises:
            TransientError: it may go well when tried again.
            EndpointError: every other request would fail alike.
        """
        if answer.code != 200:
            return self._refusal(answer.code, answer.body, answer.retry_after_s)
        try:
            return self._read(request, answer.body)
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
            # What a field really holds shows only when it is used.
            return self._no_completion(answer.body, f" ({self._endpoint.clean(error)})")

    def _read(self, request: Request, body: Any) -> Reply:
        choices = body.get("choices") if isinstance(body, Mapping) else None
        if not choices or not isinstance(choices[0], Mapping):
            return self._no_choice(body)
        choice, usage = choices[0], body.get("usage")
        text, refusal = _said(choice)
        if text is None:
            return self._no_choice(body)
        status, detail = _ending(choice, text, refusal, is_one_token=bool(request.alternatives))
        graded = first_token(choice.get("logprobs")) if request.alternatives else {}
        alternatives = {self._endpoint.clean(token, whole=True): value for token, value in graded.items()}
        if request.alternatives and not alternatives and status is Status.OK:
            detail = "the endpoint returned no log-probabilities"
        return Reply(
            status=status,
            text="" if status is Status.CLIENT_ERROR else self._endpoint.clean(text, whole=True),
            detail=self._endpoint.clean(detail),
            alternatives=alternatives,
            prompt_tokens=_count(usage, "prompt_tokens"),
            reply_tokens=_count(usage, "completion_tokens"),
            model=self._endpoint.clean(body.get("model") or self._model, whole=True),
        )

    def _no_choice(self, body: Any) -> Reply:
        """Gateways answer 200 with an error inside."""
        error = body.get("error") if isinstance(body, Mapping) else None
        if isinstance(error, Mapping) and (code := _code_of(error)):
            return self._refusal(code, body, 0.0)
        return self._no_completion(body, f": {self._endpoint.clean(body if isinstance(body, str) else json.dumps(body))}")

    def _no_completion(self, body: Any, said: str) -> Reply:
        """A failed row, with the tokens that the server says it took all the same."""
        usage = body.get("usage") if isinstance(body, Mapping) else None
        return dataclasses.replace(
            client_error(f"{self._endpoint.base_url}: answered with what is no completion{said}"),
            prompt_tokens=_count(usage, "prompt_tokens"),
            reply_tokens=_count(usage, "completion_tokens"),
        )

    def _refusal(self, code: int, body: Any, retry_after_s: float) -> Reply:
        """What an HTTP error means: try again, stop, or this row alone."""
        error = error_of(body)
        said = self._endpoint.clean(error.get("message") or body or "")
        where = f"{self._endpoint.base_url}: HTTP {code}" + (f" ({said})" if said else "")
        if _is_moderation(code, error):
            return Reply(status=Status.REFUSED, text="", detail=where, model=self._model)
        if code == 402 or _is_out_of_credit(error):
            raise EndpointError(f"{where}: out of credit; replies so far are kept, add credit and run again")
        if code in (401, 403):
            raise EndpointError(
                f"{where}: the key in {self._key_env or '(no run.clients.*.key_env is set)'} is not accepted; set it and run again"
            )
        if code == 404 or error.get("code") in _NO_SUCH_MODEL:
            raise EndpointError(f"{where}: no such path, or no model {self._model!r}; see clients.*.model and run.clients.*.base_url")
        if code in (408, 409, 425, 429) or code >= 500:
            raise TransientError(where, retry_after_s=retry_after_s, is_down=code in _NOBODY)
        return client_error(where, self._model)


def error_of(body: Any) -> Mapping[str, Any]:
    """The error inside an answer, however it is wrapped."""
    error = body.get("error", body) if isinstance(body, Mapping) else {}
    return error if isinstance(error, Mapping) else {"message": error}


def first_token(logprobs: Any) -> dict[str, float]:
    """Log-probabilities of the first token's alternatives, by exact text; entries that say none are left out.

    Raises:
        ValueError: one is above 0.
    """
    if not logprobs:
        return {}
    if "content" in logprobs:
        entries = [(entry.get("token"), entry.get("logprob")) for entry in _alternatives(logprobs["content"])]
    else:
        top = logprobs.get("top_logprobs")
        entries = [*(top[0].items() if top and top[0] else ())]
        entries += [*zip(logprobs.get("tokens") or (), logprobs.get("token_logprobs") or (), strict=False)][:1]
    found: dict[str, float] = {}
    for token, logprob in entries:
        if isinstance(token, str) and is_number(logprob):
            if logprob > _ABOVE_ZERO:
                raise ValueError(f"log-probability {logprob:g} of {token!r} is above 0")
            found.setdefault(storable(token), logprob)
    return found


def _alternatives(content: Any) -> Iterable[Mapping[str, Any]]:
    if not content:
        return []
    return [entry for entry in (*(content[0].get("top_logprobs") or ()), content[0]) if isinstance(entry, Mapping)]


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_logprob(value: Any) -> TypeGuard[float]:
    """Whether it can be a log-probability: a finite number, not above 0 beyond rounding."""
    return is_number(value) and value <= _ABOVE_ZERO


def _said(choice: Mapping[str, Any]) -> tuple[str | None, str]:
    """The text and the refusal of a choice; no text where the choice is not of either shape."""
    if "text" in choice and "message" not in choice:
        return (choice["text"] if isinstance(choice["text"], str) else None), ""
    message = choice.get("message")
    if not isinstance(message, Mapping):
        return None, ""
    text, refusal = message.get("content"), message.get("refusal")
    return (text or "") if isinstance(text, str | None) else None, refusal if isinstance(refusal, str) else ""


def _ending(choice: Mapping[str, Any], text: str, refusal: str, *, is_one_token: bool) -> tuple[Status, str]:
    """The status by how a reply ended; where that is not told, a text is taken as whole."""
    told = choice.get("finish_reason")
    finish = "" if told is None else str(told).lower()
    if finish in _FILTERED or refusal:
        return Status.REFUSED, refusal or "stopped by the endpoint's content filter"
    if "length" in finish or "max_" in finish:
        return (Status.OK, "") if is_one_token else (Status.TRUNCATED, "cut at max_tokens")
    if finish in _ENDED or (not finish and text):
        return Status.OK, ""
    return Status.CLIENT_ERROR, f"ended by {told!r}, which is no end that the model came to (stop)"


def _count(usage: Any, name: str) -> int:
    """Tokens by a server's usage; 0 where it says none, or what cannot be."""
    found = usage.get(name) if isinstance(usage, Mapping) else None
    return int(found) if is_number(found) and 0 < found <= _MOST_TOKENS and found == int(found) else 0


def _code_of(error: Mapping[str, Any]) -> int:
    """The HTTP code that an error inside a 200 stands for; 0 where none is told."""
    code = error.get("code")
    if isinstance(code, str) and code.isascii() and code.isdigit():
        return int(code)
    if isinstance(code, int):
        return int(code)
    return 402 if _is_out_of_credit(error) else 0


def _is_out_of_credit(error: Mapping[str, Any]) -> bool:
    return any(error.get(name) in _NO_CREDIT for name in ("code", "type"))


def _is_moderation(code: int, error: Mapping[str, Any]) -> bool:
    """Whether the input itself was found unfit: by OpenAI's and Azure's codes, or OpenRouter's metadata."""
    metadata = error.get("metadata")
    flagged = isinstance(metadata, Mapping) and ("flagged_input" in metadata or "reasons" in metadata)
    return code in (400, 403) and (flagged or error.get("code") in ("content_filter", "content_policy_violation"))
