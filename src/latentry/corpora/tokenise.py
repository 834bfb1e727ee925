"""From documents to rows of tokens that know where in the text they stand.

Documents follow each other in rows of `context` tokens with one separator between; a row may hold several
documents, and every position knows its own.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latentry.errors import CorpusError
from latentry.records import Document

_log = logging.getLogger(__name__)
_BATCH = 64
NO_DOCUMENT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of tokens; every array is [context, position]."""

    tokens: np.ndarray
    document: np.ndarray
    """Index into `documents`; -1 at separators and beginnings."""
    text_start: np.ndarray
    text_end: np.ndarray
    """Characters of the document's text, end exclusive."""
    special: np.ndarray
    """1 at every token whose id is special."""
    documents: tuple[Document, ...]
    """Those of which at least one token is in the rows."""


def rows_of(
    documents: Iterable[Document],
    tokenizer: Any,
    *,
    context: int,
    n_tokens: int,
    tokens_per_document: int | None,
    separator: str | None,
    special_tokens: Sequence[str],
) -> Rows:
    """Fill rows until `n_tokens` is met within one context.

    Args:
        tokenizer: a fast tokenizer of transformers (character offsets are needed).
        tokens_per_document: take at most so many from the beginning of each document; None takes all.
        separator: text of the token between documents; None is the tokenizer's EOS.
        special_tokens: more tokens to treat as special, besides the tokenizer's own.

    Raises:
        CorpusError: no text, or too little for the tokens asked for.
    """
    n_rows = max(1, round(n_tokens / context))
    separator_id = _separator_id(tokenizer, separator)
    special_ids = _special_ids(tokenizer, separator_id, special_tokens)
    begins = _beginning(tokenizer)
    body = context - len(begins)
    flat: list[np.ndarray] = []
    used: list[Document] = []
    filled, seen = 0, 0
    for document, pieces in _tokenised(documents, tokenizer, tokens_per_document):
        seen += 1
        if len(pieces):
            number = np.full((len(pieces), 1), len(used))
            flat.append(np.concatenate([pieces, number], axis=1))
            flat.append(np.array([[separator_id, 0, 0, NO_DOCUMENT]]))
            used.append(document)
            filled += len(pieces) + 1
        if filled >= n_rows * body:
            break
    if not used:
        raise CorpusError(f"the corpus has no text: {seen} documents read, none of them gives a token; check `corpus`")
    if filled < n_rows * body:
        raise CorpusError(
            f"the corpus gives {filled} tokens from {seen} documents, `tokens.n_tokens` asks for {n_tokens};"
            " lower it, raise `tokens.tokens_per_document`, or name more text"
        )
    table = np.concatenate(flat)[: n_rows * body].reshape(n_rows, body, 4)
    lead = np.zeros((n_rows, len(begins), 4), dtype=table.dtype)
    lead[:, :, 0], lead[:, :, 3] = begins, NO_DOCUMENT
    table = np.concatenate([lead, table], axis=1)
    last = table[:, :, 3].max()
    return Rows(
        tokens=table[:, :, 0].astype(np.uint32),
        document=table[:, :, 3].astype(np.int32),
        text_start=table[:, :, 1].astype(np.uint32),
        text_end=table[:, :, 2].astype(np.uint32),
        special=np.isin(table[:, :, 0], special_ids).astype(np.uint8),
        documents=tuple(used[: last + 1]),
    )


def load_tokenizer(folder: Path) -> Any:
    """The fast tokenizer of a model's folder.

    Raises:
        CorpusError: the model has no fast tokenizer, so characters and tokens cannot be matched.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if not tokenizer.is_fast:
        raise CorpusError(f"{folder}: its tokenizer gives no character offsets; a fast tokenizer (tokenizer.json) is needed")
    return tokenizer


def _tokenised(documents: Iterable[Document], tokenizer: Any, limit: int | None) -> Iterator[tuple[Document, np.ndarray]]:
    batch: list[Document] = []
    for document in documents:
        batch.append(document)
        if len(batch) == _BATCH:
            yield from _pieces(batch, tokenizer, limit)
            batch = []
    if batch:
        yield from _pieces(batch, tokenizer, limit)


def _pieces(batch: Sequence[Document], tokenizer: Any, limit: int | None) -> Iterator[tuple[Document, np.ndarray]]:
    """Each document with its [token, (id, start, end)]."""
    encoded = tokenizer([document.text for document in batch], add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    for document, ids, offsets in zip(batch, encoded["input_ids"], encoded["offset_mapping"], strict=True):
        spans = [_trimmed(document.text, start, end) for start, end in offsets[:limit]]
        yield document, np.array([[token, *span] for token, span in zip(ids[:limit], spans, strict=True)], dtype=np.int64).reshape(-1, 3)


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """A token's characters without the white space before it (byte-level tokenizers count it in), unless it is nothing else."""
    inside = text[start:end]
    lead = len(inside) - len(inside.lstrip())
    return (start + lead, end) if lead < len(inside) else (start, end)


def _separator_id(tokenizer: Any, separator: str | None) -> int:
    if separator is None:
        if tokenizer.eos_token_id is None:
            raise CorpusError("tokens.separator: the tokenizer has no EOS token; name a token that stands between documents")
        return tokenizer.eos_token_id
    found = _id_of(separator, tokenizer)
    if found is None:
        raise CorpusError(
            f"tokens.separator: {separator!r} is no token of the tokenizer; its special tokens are {tokenizer.all_special_tokens}"
        )
    return found


def _beginning(tokenizer: Any) -> list[int]:
    """What the tokenizer itself puts before a text: BOS, or nothing."""
    with_special = tokenizer("a")["input_ids"]
    bos = tokenizer.bos_token_id
    return [bos] if bos is not None and with_special and with_special[0] == bos else []


def _special_ids(tokenizer: Any, separator_id: int, named: Sequence[str]) -> np.ndarray:
    ids = [_id_of(token, tokenizer) for token in named]
    unknown = [token for token, found in zip(named, ids, strict=True) if found is None]
    if unknown:
        raise CorpusError(f"tokens.special_tokens: {unknown} are no tokens of the tokenizer")
    return np.array(sorted({*tokenizer.all_special_ids, separator_id, *(found for found in ids if found is not None)}))


def _id_of(token: str, tokenizer: Any) -> int | None:
    found = tokenizer.convert_tokens_to_ids(token)
    return found if found is not None and tokenizer.convert_ids_to_tokens(found) == token else None
