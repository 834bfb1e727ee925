"""What a client in process reads off a text that a request gives: log-probabilities of its tokens, or in its slots.

How it is run is the client's. Always true: each slot's text becomes tokens by itself, so that a slot lies between two of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from latentry.clients.batch_run import Tokens
from latentry.records import Reply, Request, Status

Encode = Callable[[str], Tokens]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenText:
    """The text after a prompt, as tokens, and what is wanted of it."""

    tokens: Tokens
    after: tuple[int, ...]
    """The places graded: after so many of the tokens."""
    wanted: tuple[Tokens, ...]
    """The tokens whose log-probabilities are wanted at each place, equally many."""


def given_text(request: Request, encode: Encode) -> GivenText:
    """What a request gives after its prompt; empty where it wants a reply."""
    if request.continuation:
        tokens = encode(request.continuation)
        return GivenText(tokens=tokens, after=tuple(range(len(tokens))), wanted=tuple((token,) for token in tokens))
    texts = [encode(text) for text in request.slots]
    levels = tuple(first_tokens(request.alternatives, encode))
    return GivenText(tokens=tuple(chain.from_iterable(texts)), after=tuple(accumulate(map(len, texts))), wanted=(levels,) * len(texts))


def first_tokens(texts: Sequence[str], encode: Encode) -> dict[int, str]:
    """The first token of each text, with the first text that begins so."""
    first: dict[int, str] = {}
    for text in texts:
        tokens = encode(text)
        if tokens:
            first.setdefault(tokens[0], text)
    return first


def reply_of(request: Request, encode: Encode, values: Sequence[Sequence[float]], n_tokens: int, model: str) -> Reply:
    """The reply from the log-probabilities wanted, place by place; `n_tokens` are those of prompt and text."""
    done = {"status": Status.OK, "text": "", "detail": "", "prompt_tokens": n_tokens, "model": model}
    if request.continuation:
        return Reply(**done, continuation=tuple(value for (value,) in values))
    levels = first_tokens(request.alternatives, encode).values()
    return Reply(**done, slots=tuple(dict(zip(levels, of_slot, strict=True)) for of_slot in values))
