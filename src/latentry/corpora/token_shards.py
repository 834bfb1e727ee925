"""Rows of tokens, committed shard by shard.

Documents follow each other with one separator between, cut into rows of `context` tokens; a row may hold several
documents, and every position knows its own. Beside a shard stands, until all are there, a part of the documents
that begin in it, which also says where in the corpus the next shard begins: a shard counts when both are committed.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from safetensors import safe_open
from tqdm import tqdm

from latentry.contracts import TOKENS
from latentry.corpora.tokenise import Layout, layout_of, tokenised
from latentry.errors import CorpusError
from latentry.records import Document
from latentry.rows import table_of
from latentry.sections import TokenSettings
from latentry.store import Work

DOCUMENTS = "documents.parquet"
NO_DOCUMENT = -1
_NEXT = "next"
"""Key in a part's metadata of where the next shard begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in the corpus, between two tokens."""

    documents: int = 0
    """Documents of the corpus that lie wholly before it."""
    number: int = 0
    """How many of them have tokens: the number of the document it lies in."""
    tokens: int = 0
    """Tokens of this document before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What is to be written."""

    settings: TokenSettings
    layout: Layout
    shards: Sequence[int]
    """Contexts in each."""

    @property
    def body(self) -> int:
        """Tokens of documents, and separators, in a row."""
        return self.settings.context - len(self.layout.beginning)


class _Piece(NamedTuple):
    """A document's tokens, [token, (id, start, end, document)], with its separator."""

    documents: int
    number: int
    document: Document
    table: np.ndarray


def write_tokens(documents: Iterable[Document], tokenizer: Any, settings: TokenSettings, making: Work, *, shard_contexts: int) -> None:
    """Commit the shards that are missing, then the documents; fill in the manifest's counts.

    Args:
        documents: the corpus from its beginning; what committed shards hold of it is read and not tokenised again.
        tokenizer: a fast tokenizer of transformers (character offsets are needed).

    Raises:
        CorpusError: no text, too little for the tokens asked for, or a token that the tokenizer lacks.
    """
    n_contexts = max(1, round(settings.n_tokens / settings.context))
    shards = [min(shard_contexts, n_contexts - first) for first in range(0, n_contexts, shard_contexts)]
    layout = layout_of(tokenizer, settings)
    if not making.has(DOCUMENTS):
        plan = _Plan(settings=settings, layout=layout, shards=shards)
        _write_shards(plan, documents, tokenizer, making)
        making.write_file(DOCUMENTS, lambda path: _join(path, [making.path(_part(number)) for number in range(len(shards))]))
    for part in making.folder.glob("documents-*.parquet"):
        part.unlink()
    n_special = sum(_n_special(making.path(_shard(number))) for number in range(len(shards)))
    n_documents = pq.read_metadata(making.path(DOCUMENTS)).num_rows
    making.counts.update(n_contexts=n_contexts, n_tokens=n_contexts * settings.context, n_special=n_special, n_documents=n_documents)
    making.counts["begins_with_bos"] = bool(layout.beginning)


def _write_shards(plan: _Plan, documents: Iterable[Document], tokenizer: Any, making: Work) -> None:
    done = next((number for number in range(len(plan.shards)) if not making.has(_shard(number))), len(plan.shards))
    place = _place_after(making.path(_part(done - 1))) if done else Place()
    stream = _Stream(_pieces(plan, documents, tokenizer, place), place)
    context = plan.settings.context
    with tqdm(
        total=context * sum(plan.shards), initial=context * sum(plan.shards[:done]), unit="tok", unit_scale=True, desc="tokens"
    ) as bar:
        for number in range(done, len(plan.shards)):
            table, begun = stream.take(plan.shards[number] * plan.body)
            if len(table) < plan.shards[number] * plan.body:
                raise _too_short(plan, sum(plan.shards[:number]) * plan.body + len(table), stream.place.number)
            _write_part(making, number, begun, stream.place)
            making.write_arrays(_shard(number), _arrays(plan, table))
            bar.update(plan.shards[number] * context)


def _pieces(plan: _Plan, documents: Iterable[Document], tokenizer: Any, place: Place) -> Iterator[_Piece]:
    """The documents that have tokens, from the one in which the place lies."""
    number = place.number
    later = tokenised(islice(documents, place.documents, None), tokenizer, plan.settings.tokens_per_document)
    for before, (document, tokens) in enumerate(later, start=place.documents):
        if len(tokens):
            numbered = np.column_stack([tokens, np.full(len(tokens), number)])
            yield _Piece(before, number, document, np.vstack([numbered, [plan.layout.separator, 0, 0, NO_DOCUMENT]]))
            number += 1


class _Stream:
    """The corpus's tokens one after another, separators among them."""

    def __init__(self, pieces: Iterator[_Piece], place: Place) -> None:
        self.place = place
        """What was taken ends here."""
        self._pieces = pieces
        self._piece: _Piece | None = None

    def take(self, n: int) -> tuple[np.ndarray, Sequence[tuple[int, Document]]]:
        """The next n tokens, fewer at the corpus's end, and the documents with their numbers that begin in them."""
        tables, begun = [np.zeros((0, 4), dtype=np.int64)], []
        while n:
            piece, first = self._piece or next(self._pieces, None), self.place.tokens
            if piece is None:
                break
            if not first:
                begun.append((piece.number, piece.document))
            tables.append(piece.table[first : first + n])
            n -= len(tables[-1])
            self._step(piece, first + len(tables[-1]))
        return np.concatenate(tables), begun

    def _step(self, piece: _Piece, tokens: int) -> None:
        if tokens < len(piece.table):
            self.place, self._piece = Place(documents=piece.documents, number=piece.number, tokens=tokens), piece
        else:
            self.place, self._piece = Place(documents=piece.documents + 1, number=piece.number + 1), None


def _arrays(plan: _Plan, table: np.ndarray) -> dict[str, np.ndarray]:
    body = table.reshape(-1, plan.body, 4)
    lead = np.zeros((len(body), len(plan.layout.beginning), 4), dtype=table.dtype)
    lead[:, :, 0], lead[:, :, 3] = plan.layout.beginning, NO_DOCUMENT
    token, start, end, document = np.moveaxis(np.concatenate([lead, body], axis=1), 2, 0)
    return {
        "tokens": token.astype(np.uint32),
        "document": document.astype(np.int32),
        "text_start": start.astype(np.uint32),
        "text_end": end.astype(np.uint32),
        "special": np.isin(token, plan.layout.special).astype(np.uint8),
    }


def _write_part(making: Work, number: int, begun: Sequence[tuple[int, Document]], following: Place) -> None:
    rows = ({"document": which, "name": document.name, "text": document.text} for which, document in begun)
    table = table_of(rows, TOKENS.tables[DOCUMENTS]).replace_schema_metadata({_NEXT: json.dumps(asdict(following))})
    making.write_file(_part(number), lambda path: pq.write_table(table, path, compression="zstd"))


def _place_after(part: Path) -> Place:
    return Place(**json.loads(pq.read_schema(part).metadata[_NEXT.encode()]))


def _join(path: Path, parts: Sequence[Path]) -> None:
    with pq.ParquetWriter(path, TOKENS.tables[DOCUMENTS], compression="zstd") as writer:
        for part in parts:
            writer.write_table(pq.read_table(part))


def _n_special(shard: Path) -> int:
    with safe_open(shard, "numpy") as arrays:
        return int(arrays.get_tensor("special").sum())


def _too_short(plan: _Plan, given: int, n_documents: int) -> CorpusError:
    if not given:
        return CorpusError("the corpus has no text: none of its documents gives a token; check `corpus`")
    settings, needed = plan.settings, sum(plan.shards) * plan.body
    asked = f"`tokens.n_tokens` of {settings.n_tokens}, in contexts of {settings.context}, needs {needed}"
    fault = f"fewer than one context: `tokens.context` is {settings.context}" if given < plan.body else asked
    return CorpusError(
        f"the corpus gives {given} tokens from {n_documents} documents, {fault};"
        " lower it, raise `tokens.tokens_per_document`, or name more text"
    )


def _shard(number: int) -> str:
    return f"shard-{number:05d}.safetensors"


def _part(number: int) -> str:
    return f"documents-{number:05d}.parquet"
