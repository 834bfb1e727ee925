"""Planted latents: one that fires on the word "tax" and one that fires on "whale", with windows of words as tokens."""

import re

import numpy as np

from latentry.records import Example, Kind, Message, Split
from latentry.scorers.base import Item

FILLERS = ("the", "old", "house", "was", "seen", "by", "many", "men", "in", "their", "long", "day")


def window(
    latent: int,
    number: int,
    word: str | None,
    *,
    split: Split = Split.HELD_OUT,
    contrast: str = "random",
    text: str | None = None,
) -> Example:
    """A window of words; the latent fires on `word` wherever it stands, and on nothing where it is None."""
    words = [FILLERS[draw] for draw in np.random.default_rng(number).integers(len(FILLERS), size=8)]
    if text is not None:
        words = text.split()
    elif word is not None:
        words[number % 8] = word
    text = f"{' '.join(words)} {number}" if text is None else text
    found = [match.span() for match in re.finditer(r"\S+", text)]
    fires = [text[start:end] == word for start, end in found]
    kind = Kind.ACTIVATING if any(fires) else Kind.CONTRAST
    return Example(
        latent=latent,
        example_id=f"{latent}/{split}/{kind}/{contrast}/{number}",
        split=split,
        kind=kind,
        source="windows" if kind is Kind.ACTIVATING else contrast,
        contrast="" if kind is Kind.ACTIVATING else contrast,
        rank=number,
        decile=1 + number % 10 if kind is Kind.ACTIVATING else 0,
        document=number,
        context=0,
        start=0,
        tokens=tuple(range(len(found))),
        activations=tuple(float(fire) for fire in fires),
        text=text,
        spans=tuple(end for span in found for end in span),
        marks=tuple(end for span, fire in zip(found, fires, strict=True) if fire for end in span),
    )


def held_out(latent: int, word: str, n: int = 12) -> tuple[Example, ...]:
    """As many activating windows as silent ones."""
    silent = tuple(window(latent, 100 + number, None) for number in range(n))
    return tuple(window(latent, number, word) for number in range(n)) + silent


def item(text: str, *, latent: int = 1, word: str = "tax", n: int = 12, null: bool = False) -> Item:
    """A planted latent under an explanation."""
    return Item(latent=latent, explainer="told", null=null, text=text, examples=held_out(latent, word, n))


def asked(messages: tuple[Message, ...]) -> tuple[str, list[str]]:
    """Explanation and windows of a detection or fuzzing prompt's last turn, as a judge reads them."""
    last = messages[-1].content
    description = re.search(r"^Description: (.*)$", last, re.MULTILINE)
    single = re.search(r"^Text: (.*)$", last, re.MULTILINE)
    assert description is not None
    return description[1], [single[1]] if single else re.findall(r"^\d+\. (.*)$", last, re.MULTILINE)
