"""What the scorers that embed share: how cosines are rounded, and what is said of texts that a model does not read whole."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from latentry.metrics import LatentScore
from latentry.records import Judgment, Status

if TYPE_CHECKING:
    from latentry.embeddings import Embedder

DECIMALS = 6
"""Cosines are rounded: their last bits depend on which texts shared a batch, and no score may."""
CUT = "is longer than the model reads, the rest was cut off"
_NEVER_CUT = 128
"""Bytes that every embedding model reads whole: it takes at least so many tokens, and a token is a byte at least."""


def cut_texts(embedder: "Embedder", role: str, texts: Iterable[str]) -> frozenset[str]:
    """Those of the texts whose end has no part in their vector."""
    long = [text for text in texts if len(text.encode("utf-8", "surrogatepass")) > _NEVER_CUT]
    return embedder.cut(role, long) if long else frozenset()


def with_notes(score: LatentScore, judgments: Sequence[Judgment]) -> LatentScore:
    """The score, saying of how many judgments that succeeded something was cut."""
    notes = Counter(one.detail for one in judgments if one.status is Status.OK and one.detail)
    said = [f"{n} judgments: {note}" for note, n in sorted(notes.items())]
    return replace(score, detail="; ".join(filter(None, [score.detail, *said]))) if said else score
