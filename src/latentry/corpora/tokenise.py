"""From documents to tokens that know where in the text they stand.

How they fill rows and shards is `token_shards.py`'s. Every token is told by its id: 0 is an id, None is none.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from latentry.errors import CorpusError
from latentry.records import Document
from latentry.sections import TokenSettings
from latentry.store import digest_of

BATCH_DOCUMENTS = 64
BATCH_CHARACTERS = 1 << 20
"""A batch of documents goes to the tokenizer when it holds either of these; no token depends on it."""
_WHITE = np.array([chr(point).isspace() for point in range(0x3002)])
"""By code point; the last white space of Unicode is U+3000, and what follows is as the last entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What stands between and before the documents' tokens, and what is masked; all by id."""

    beginning: tuple[int, ...]
    """First in every row: BOS, or nothing."""
    separator: int
    """After each document."""
    special: tuple[int, ...]
    """Masked wherever they stand."""


def load_tokenizer(folder: Path) -> Any:
    """The fast tokenizer of a model's folder.

    Raises:
        CorpusError: the folder has no tokenizer, or none that is fast, so that characters and tokens cannot be matched.
    """
    from transformers import AutoTokenizer

    wanted = "a fast tokenizer (tokenizer.json) is needed"
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise CorpusError(f"{folder}: holds no tokenizer that can be loaded ({reason}); {wanted}") from error
    if not tokenizer.is_fast:
        raise CorpusError(f"{folder}: its tokenizer gives no character offsets; {wanted}")
    return tokenizer


def vocabulary_digest(tokenizer: Any) -> str:
    """Digest of all tokens with their ids: two tokenizers of one digest mean the same by an id."""
    return digest_of(sorted(tokenizer.get_vocab().items()))


def layout_of(tokenizer: Any, settings: TokenSettings) -> Layout:
    """How rows of this tokenizer are laid out.

    Raises:
        CorpusError: the tokenizer lacks a token that the settings need.
    """
    separator = _separator_id(tokenizer, settings.separator)
    special = _special_ids(tokenizer, settings.special_tokens)
    return Layout(beginning=_beginning(tokenizer, settings.prepend_bos), separator=separator, special=tuple(sorted({separator, *special})))


def tokenised(documents: Iterable[Document], tokenizer: Any, limit: int | None) -> Iterator[tuple[Document, np.ndarray]]:
    """Each document with its first `limit` tokens, [token, (id, start, end)]: characters of its text, end exclusive.

    Memory holds one batch of documents, so it is bounded by the longest of them.
    """
    for batch in _batches(documents):
        yield from _pieces(batch, tokenizer, limit)


def _batches(documents: Iterable[Document]) -> Iterator[Sequence[Document]]:
    batch: list[Document] = []
    n_characters = 0
    for document in documents:
        batch.append(document)
        n_characters += len(document.text)
        if len(batch) == BATCH_DOCUMENTS or n_characters >= BATCH_CHARACTERS:
            yield batch
            batch, n_characters = [], 0
    if batch:
        yield batch


def _pieces(batch: Sequence[Document], tokenizer: Any, limit: int | None) -> Iterator[tuple[Document, np.ndarray]]:
    encoded = tokenizer(
        [document.text for document in batch],
        add_special_tokens=False,
        padding=False,
        truncation=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )
    for document, ids, offsets in zip(batch, encoded["input_ids"], encoded["offset_mapping"], strict=True):
        spans = np.fromiter(chain.from_iterable(offsets[:limit]), dtype=np.int64).reshape(-1, 2)
        start, end = spans[:, 0], _with_marks(document.text, spans[:, 0], spans[:, 1])
        yield document, np.column_stack([np.array(ids[:limit], dtype=np.int64), _trimmed(document.text, start, end), end])


def _with_marks(text: str, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Where each token ends, with the combining marks after it that are no token's: a normaliser has joined them to its letter."""
    following = np.append(start[1:], len(text))
    end = end.copy()
    for token in np.flatnonzero(following > end):
        while end[token] < following[token] and unicodedata.combining(text[end[token]]):
            end[token] += 1
    return end


def _trimmed(text: str, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Where each token begins without the white space before it (byte-level tokenizers count it in), unless it is nothing else."""
    points = np.frombuffer(text[: end.max(initial=0)].encode("utf-32-le"), dtype="<u4")
    white = _WHITE[np.minimum(points, len(_WHITE) - 1)]
    places = np.arange(len(points) + 1)
    following = np.append(np.where(white, len(points), places[:-1]), len(points))
    inked = np.minimum.accumulate(following[::-1])[::-1][start]
    return np.where(inked < end, inked, start)


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


def _beginning(tokenizer: Any, prepend_bos: bool | None) -> tuple[int, ...]:
    bos = tokenizer.bos_token_id
    if prepend_bos and bos is None:
        raise CorpusError("tokens.prepend_bos: is true, and the tokenizer has no BOS token; set it to false, or leave it out")
    begins = _adds_bos(tokenizer) if prepend_bos is None else prepend_bos
    return (bos,) if begins else ()


def _adds_bos(tokenizer: Any) -> bool:
    """Whether the tokenizer itself puts BOS before a text."""
    found = tokenizer("a")["input_ids"]
    return tokenizer.bos_token_id is not None and found[:1] == [tokenizer.bos_token_id]


def _special_ids(tokenizer: Any, named: Sequence[str]) -> set[int]:
    ids = {token: _id_of(token, tokenizer) for token in named}
    unknown = [token for token, found in ids.items() if found is None]
    if unknown:
        raise CorpusError(
            f"tokens.special_tokens: {unknown} are no tokens of the tokenizer; its special tokens are {tokenizer.all_special_tokens}"
        )
    return {found for found in (*ids.values(), *tokenizer.all_special_ids) if found is not None}


def _id_of(token: str, tokenizer: Any) -> int | None:
    found = tokenizer.convert_tokens_to_ids(token)
    return found if found is not None and tokenizer.convert_ids_to_tokens(found) == token else None
