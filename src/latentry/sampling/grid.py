"""The grid of windows over the corpus: where each starts, its document and span, and which windows have equal text.

A window lies in one context and one document and holds no special token. It may hold a position that was left out
as an attention sink: activations there are zero, so the window is judged by its other tokens.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Int32, Int64

from latentry.errors import CorpusError

if TYPE_CHECKING:
    from latentry.sampling.base import Tokens

_TEXTS_AT_ONCE = 65536
"""Texts held at once while those of all windows are put together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """All full windows of the corpus, in corpus order."""

    window: int
    """Tokens in each window."""
    context_length: int
    starts: Int64[np.ndarray, " window"]
    """Flat position (context * context length + place) of each window's first token."""
    document: Int32[np.ndarray, " window"]
    span_start: Int64[np.ndarray, " window"]
    """First flat position of the document's span in the row: the window, and its tokens' neighbours, stand in that span."""
    span_end: Int64[np.ndarray, " window"]
    """One past the last position of that span."""
    texts: pa.Array
    """The source's own characters of each window."""
    text_id: Int64[np.ndarray, " window"]
    """The first window in the corpus that has the same text."""
    repeated: Bool[np.ndarray, " window"]
    """Whether another window has the same text."""
    window_of: Int32[np.ndarray, " position"]
    """The window of each flat position; -1 where none. 4 bytes a token buy a look-up that costs no search."""
    n_dropped_pieces: int
    """Ends of documents within a row that were shorter than a window."""
    n_dropped_tokens: int
    """Tokens in those pieces."""

    @property
    def n_windows(self) -> int:
        """Number of full windows, duplicates included."""
        return self.starts.size

    @property
    def context(self) -> Int64[np.ndarray, " window"]:
        """The context of each window."""
        return self.starts // self.context_length


def grid_of(token_set: "Tokens", window: int) -> Grid:
    """The grid of windows, started anew at each document's first position in a row.

    Raises:
        CorpusError: no document has `window` tokens in one row.
    """
    context_length = token_set.document.shape[1]
    first, lengths = _stretches(token_set)
    n_full = lengths // window
    within = np.arange(n_full.sum()) - np.repeat(np.cumsum(n_full) - n_full, n_full)
    starts = np.repeat(first, n_full) + window * within
    if not starts.size:
        raise CorpusError(
            f"examples: no document has {window} tokens in a row of {context_length}, found at most"
            f" {lengths.max(initial=0)}; lower `examples.window` or use longer documents"
        )
    dropped = lengths % window
    texts = _texts(token_set, starts, window)
    text_id = _text_ids(texts)
    return Grid(
        window=window,
        context_length=context_length,
        starts=starts,
        document=token_set.document.reshape(-1)[starts],
        span_start=np.repeat(first, n_full),
        span_end=np.repeat(first + lengths, n_full),
        texts=texts,
        text_id=text_id,
        repeated=np.bincount(text_id, minlength=starts.size)[text_id] > 1,
        window_of=_window_of(starts, window, token_set.document.size),
        n_dropped_pieces=int(np.count_nonzero(dropped)),
        n_dropped_tokens=int(dropped.sum()),
    )


def _stretches(token_set: "Tokens") -> tuple[Int64[np.ndarray, " stretch"], Int64[np.ndarray, " stretch"]]:
    """First flat position and length of each stretch of one document in one row, special tokens between stretches."""
    document = np.where(token_set.special.astype(bool), -1, token_set.document)
    begins = np.ones(document.shape, dtype=bool)
    begins[:, 1:] = document[:, 1:] != document[:, :-1]
    first = np.flatnonzero(begins)
    lengths = np.diff(first, append=document.size)
    inside = document.reshape(-1)[first] >= 0
    return first[inside], lengths[inside]


def _window_of(starts: Int64[np.ndarray, " window"], window: int, n_positions: int) -> Int32[np.ndarray, " position"]:
    window_of = np.full(n_positions, -1, dtype=np.int32)
    ids = np.arange(starts.size, dtype=np.int32)
    for place in range(window):
        window_of[starts + place] = ids
    return window_of


def _texts(token_set: "Tokens", starts: Int64[np.ndarray, " window"], window: int) -> pa.Array:
    """In one buffer, made in parts: a Python string for each window at once would take several times the memory."""
    parts = [
        pa.array(texts_at(token_set, starts[first : first + _TEXTS_AT_ONCE], window), pa.large_string())
        for first in range(0, starts.size, _TEXTS_AT_ONCE)
    ]
    return pa.concat_arrays(parts)


def _text_ids(texts: pa.Array) -> Int64[np.ndarray, " window"]:
    number = texts.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    _, first = np.unique(number, return_index=True)
    return first[number]


def texts_at(token_set: "Tokens", starts: Int64[np.ndarray, " window"], window: int) -> list[str]:
    """The source's own characters of each window, from its first token's start to its last one's end."""
    documents = token_set.document.reshape(-1)[starts].tolist()
    begin = token_set.text_start.reshape(-1)[starts].tolist()
    end = token_set.text_end.reshape(-1)[starts + window - 1].tolist()
    texts = token_set.texts
    return [texts[document][a:b] for document, a, b in zip(documents, begin, end, strict=True)]
