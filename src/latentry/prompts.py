"""How a window stands in a prompt: on one line, its marks as <<stretches>>, and unable to pass for the prompt's own words.

Shared by explainers and scorers. What is asked is theirs. Every replacement is one character for one, so that offsets
into a text hold in its neutral form too.
"""

import hashlib
import re
from collections.abc import Sequence

from latentry.records import Message

OPEN, CLOSE = "<<", ">>"
"""What stands around a marked stretch; neither occurs in a neutral text."""

_BREAKS = dict.fromkeys(map(ord, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), "↵")
_ANGLES = str.maketrans("<>", "‹›")
_DELIMITERS = re.compile(r"<{2,}|>{2,}")
_CONTROL_TOKENS = re.compile(r"</?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn)>", re.IGNORECASE)
_PIPES = re.compile(r"[|｜](?=[\w▁]+[|｜])")
_TAG_COLONS = re.compile(r"(?<=EXPLANATION):", re.IGNORECASE)


def neutral(text: str) -> str:
    """The text on one line, without our delimiters, our tag or a chat template's control tokens; equally long.

    A text that holds none of them comes back as it is. Line breaks show as ↵: there are latents for them.
    """
    text = text.translate(_BREAKS)
    text = _DELIMITERS.sub(lambda found: found[0].translate(_ANGLES), text)
    text = _CONTROL_TOKENS.sub(lambda found: found[0].translate(_ANGLES), text)
    return _TAG_COLONS.sub("：", _PIPES.sub("¦", text))


def marked_stretches(text: str, marks: Sequence[int]) -> list[tuple[int, int]]:
    """Start and end of each stretch that can be shown: white space at its ends left out, empty ones dropped."""
    stretches = []
    for start, end in zip(marks[::2], marks[1::2], strict=True):
        shown = text[start:end]
        start, end = start + len(shown) - len(shown.lstrip(" \t")), end - len(shown) + len(shown.rstrip(" \t"))
        if start < end:
            stretches.append((start, end))
    return stretches


def marked(text: str, marks: Sequence[int]) -> str:
    """The neutral text with its marked stretches between delimiters; taking the delimiters out gives the neutral text."""
    shown, parts, done = neutral(text), [], 0
    for start, end in marked_stretches(text, marks):
        parts += [shown[done:start], OPEN, shown[start:end], CLOSE]
        done = end
    return "".join([*parts, shown[done:]])


def unmarked(text: str) -> str:
    """A text without the delimiters."""
    return text.replace(OPEN, "").replace(CLOSE, "")


def prompt_digest(messages: Sequence[Message]) -> str:
    """sha256 of a whole prompt, in hex."""
    joined = "\x1e".join(f"{message.role}\x1f{message.content}" for message in messages)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()
