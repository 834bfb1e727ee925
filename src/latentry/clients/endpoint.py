"""One HTTP endpoint: where it may be, its key, and calls that end in an answer or a named failure.

What an answer means is its reader's. Always true: the key is in no text that leaves this file but the request's header,
and goes over TLS or to this machine only.
"""

import asyncio
import ipaddress
import json
import os
import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from latentry.clients.base import TransientError
from latentry.errors import EndpointError, ParamsError
from latentry.safe_text import forms_of, harmless, looks_like_key, masked

if TYPE_CHECKING:
    from aiohttp import ClientSession

_EXCERPT = 200
"""Characters of a server's message that are worth showing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """What a server sent."""

    code: int
    body: Any
    """As parsed JSON; the text, where it is none."""
    retry_after_s: float
    """How long it asks to wait; 0 where it does not say."""


class Endpoint:
    """Posts JSON to one base URL."""

    def __init__(self, base_url: str, key: str | None, timeout_s: float) -> None:
        self.base_url = base_url
        self._key, self._timeout_s = key, timeout_s
        self._forms = forms_of(key) if key else ()
        self._session: ClientSession | None = None

    async def post(self, path: str, body: Any) -> HttpAnswer:
        """One call.

        Raises:
            TransientError: no answer in time, a connection that cannot be made or breaks, or a page in place of an answer.
            EndpointError: it sends us elsewhere.
        """
        import aiohttp

        try:
            call = self._connected().post(f"{self.base_url}/{path}", data=json.dumps(body).encode(), allow_redirects=False)
            async with call as answer:
                content = await answer.read()
        except TimeoutError:
            raise TransientError(f"{self.base_url}: no answer within {self._timeout_s:g} s") from None
        except aiohttp.ClientConnectorError as error:
            raise self._unreachable(error, was_sent=False) from None
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            raise self._unreachable(error, was_sent=True) from None
        if 300 <= answer.status < 400:
            raise EndpointError(
                f"{self.base_url}: sends us to {self.clean(answer.headers.get('location', 'another place'))}, where texts and key are not sent"
                " unasked; set run.clients.*.base_url to where it answers itself"
            )
        return HttpAnswer(code=answer.status, body=self._parsed(answer.status, content), retry_after_s=_retry_after_s(answer.headers))

    def _unreachable(self, error: Exception, *, was_sent: bool) -> TransientError:
        said = self.clean(error) or type(error).__name__
        return TransientError(f"{self.base_url}: cannot be reached ({said})", is_down=True, was_sent=was_sent)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def clean(self, said: object, *, whole: bool = False) -> str:
        """A server's words without the key, however it encoded it, and without what cannot be stored; on one line, harmless for a
        terminal and cut, unless `whole`."""
        text = masked(storable(str(said)), self._forms)
        return text if whole else harmless(" ".join(text.split()))[:_EXCERPT]

    def _connected(self) -> "ClientSession":
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {self._key or 'none'}", "Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                connector=aiohttp.TCPConnector(limit=0),  # the pool bounds the calls in flight
                trust_env=not is_loopback(self.base_url),  # a proxy of the environment is for the world only
            )
        return self._session

    def _parsed(self, code: int, content: bytes) -> Any:
        text = content.decode("utf-8", "replace")
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            if code < 300 and re.match(r"\s*<(!doctype|html)", text, re.IGNORECASE):
                raise TransientError(
                    f"{self.base_url}: answers with a web page ({self.clean(text)}), so it is no endpoint, or a gateway's apology;"
                    " see run.clients.*.base_url (many end in /v1)",
                    is_down=True,
                ) from None
            return text


def storable(text: str) -> str:
    """Without the halves of characters that JSON can spell and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()


def _retry_after_s(headers: Any) -> float:
    """Seconds, a date, or milliseconds as OpenAI and Azure send them; 0 where it is none of these."""
    seconds, milliseconds = headers.get("retry-after", ""), headers.get("retry-after-ms", "")
    try:
        if milliseconds:
            return max(0.0, float(milliseconds) / 1000)
        return max(0.0, float(seconds) if re.fullmatch(r"[\d.]+", seconds) else parsedate_to_datetime(seconds).timestamp() - time())
    except ValueError:
        return 0.0


def checked_url(url: str | None, name: str) -> str:
    """The base URL of a client.

    Raises:
        ParamsError: there is none, or texts and key would not be safe on the way to it.
    """
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
    if parts.query or parts.fragment or looks_like_key(url):
        # Not shown: a query is where keys stand.
        raise ParamsError(
            where, ["holds a key, or what comes after ? or #; wanted are host and path alone: keys come from the environment, set key_env"]
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ParamsError(where, [f"{url!r} is no URL of an endpoint; such as https://api.openai.com/v1"])
    if parts.scheme == "http" and not is_loopback(url):
        raise ParamsError(
            where, [f"{url!r} would send texts and key in the clear: https:// is needed, except for this machine (localhost)"]
        )
    return url.rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether it is a server on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def key_from(key_env: str | None, url: str, name: str) -> str | None:
    """The key in an environment variable; None where no variable is named, as for a server on this machine that wants none.

    Raises:
        ParamsError: the variable is not set, or what is named is no variable.
    """
    where = f"run.clients.{name}.key_env"
    if key_env and (looks_like_key(key_env) or not re.fullmatch(r"[A-Z_][A-Z0-9_]*", key_env)):
        fault = "is no name of an environment variable (capital letters, digits, _); it is not shown in case it is a key"
        raise ParamsError(where, [f"key_env {fault}; export the key in a variable and give that one's name"])
    key = os.environ.get(key_env, "").strip() if key_env else ""
    if key_env and not key:
        raise ParamsError(where, [f"the environment has no {key_env}, the key for {url}; export it and run again"])
    if not re.fullmatch(r"[!-~]*", key):
        raise ParamsError(where, [f"{key_env} holds spaces or other characters that no key has; export the key alone (it is not shown)"])
    if key and key in url:
        raise ParamsError(
            f"run.clients.{name}.base_url", [f"holds the key of {key_env}; keys come from the environment only: leave it out"]
        )
    return key or None
