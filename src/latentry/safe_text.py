"""Text on its way to a person's screen or to a file: harmless for a terminal, and without keys.

Where a key comes from is its owner's. Always true: what has passed `presentable` holds no character that a terminal obeys but the end of
a line, and no key of this process's environment.
"""

import base64
import html
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

MASK = "***"

_BIDI_CONTROLS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_HARMLESS = {
    **{code: 0x2400 + code for code in range(0x20)},
    0x7F: 0x2421,
    **dict.fromkeys([*range(0x80, 0xA0), *_BIDI_CONTROLS, *range(0xD800, 0xE000), *range(0xE0000, 0xE0080)], 0xFFFD),
    **dict.fromkeys(map(ord, "\n\r\v\f\x85\u2028\u2029"), ord("↵")),
}
"""What a terminal would obey, turn round or not print at all, by what shows that it stands there."""
_HARMLESS_LINES = {code: shown for code, shown in _HARMLESS.items() if code not in (ord("\n"), ord("\t"))}
_VISIBLE = {code: shown for code, shown in _HARMLESS_LINES.items() if (code < 0xA0 and code != ord("\r")) or code in (0x202D, 0x202E)}

_SHORTEST_KEY = 12
"""Characters: a shorter value of the environment is a word that may stand in any text."""
_NAMES_A_KEY = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|pk|rk)-(?=[\w-]*\d)[\w-]{16,}"  # OpenAI, Anthropic, OpenRouter, DeepSeek
    r"|hf_\w{20,}|gsk_\w{20,}|r8_\w{20,}|nvapi-[\w-]{20,}|pplx-\w{20,}"  # model hubs and endpoints
    r"|gh[opsur]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}"
    r"|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,}"  # clouds
    r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+)"  # a signed token
    r"|(?<=Bearer )[\w.~+/=-]{16,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|(?<=://)[^\s/:@]*:[^\s/@]+(?=@)"  # user and password of a URL
)
"""What the keys of well-known services look like."""


def harmless(text: str) -> str:
    """The text on one line, without what moves a cursor, changes a colour or turns the direction of writing; equally long."""
    return text.translate(_HARMLESS)


def presentable(text: str) -> str:
    """Lines for a terminal or a log: harmless, tabs and ends of lines kept, and without keys."""
    return without_keys(text).translate(_HARMLESS_LINES)


def visible(text: str) -> str:
    """The text for a page, not escaped: what is no character of HTML, or overrides the direction of writing, shows that it stands there.

    Marks that scripts from right to left use are left; `explorer.js` does the same.
    """
    return text.translate(_VISIBLE)


def looks_like_key(text: str, keys: Sequence[str] | None = None) -> bool:
    """Whether some of it has the form of a known service's key, or is one of `keys`, by default those of this process's environment."""
    known = environment_keys(os.environ) if keys is None else keys
    return bool(_KEY.search(text)) or any(key in text for key in known)


def without_keys(text: str) -> str:
    """The text with `***` for what `looks_like_key`, and for such keys in their usual encodings."""
    for key in environment_keys(os.environ):
        text = masked(text, forms_of(key))
    return _KEY.sub(MASK, text)


def masked(text: str, forms: Iterable[str]) -> str:
    """The text with `***` for every one of the forms."""
    for form in forms:
        text = text.replace(form, MASK)
    return text


def environment_keys(environment: Mapping[str, str]) -> list[str]:
    """Values of the variables whose names say that they hold a key, the longest first."""
    found = {value.strip() for name, value in environment.items() if _NAMES_A_KEY.search(name)}
    return sorted((value for value in found if len(value) >= _SHORTEST_KEY), key=len, reverse=True)


def forms_of(key: str) -> tuple[str, ...]:
    """The key as it is, and as URLs, JSON, HTML and base64 hold it, wherever it stands in what was encoded; the longest first."""
    plain = {key, quote(key, safe=""), quote(key), json.dumps(key)[1:-1], html.escape(key)}
    encoded = {form for offset in range(3) for form in _base64_forms(key.encode("utf-8", "replace"), offset)}
    return tuple(sorted(plain | (encoded if len(key) >= _SHORTEST_KEY else set()), key=lambda form: (-len(form), form)))


def _base64_forms(key: bytes, offset: int) -> tuple[str, str]:
    """The characters of base64 that the key alone decides, where so many bytes (of each group of three) stand before it."""
    first, end = -(-offset * 8 // 6), (offset + len(key)) * 8 // 6
    before = b"\0" * offset
    return base64.b64encode(before + key).decode()[first:end], base64.urlsafe_b64encode(before + key).decode()[first:end]
