"""Texts as unit vectors of a sentence-transformers model, remembered on disk; the sole owner of that library.

What was embedded once is not again, by any stage or run. The model is loaded when a text is missing, not before.
"""

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from latentry.databases import telling

QUERY, DOCUMENT = "query", "document"

_COMMIT_BATCHES = 16
"""Batches between two commits: what a kill loses."""
_FEWEST_TOKENS = 128
"""Tokens that any model in use reads; a token is a byte at least, two or three of each text are special."""
_TABLE = "CREATE TABLE IF NOT EXISTS checked_vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID"
_INSERT = "INSERT OR REPLACE INTO checked_vectors VALUES (?, ?, ?)"
_REMEDY = "delete it and run again: it holds vectors only, which are computed anew"
_LOOKUPS = 500
"""Keys per SQL question; SQLite allows 999 variables in its older builds."""


class Embedder:
    """One model and the texts it has embedded."""

    def __init__(self, folder: Path, device: str, batch: int, cache_path: Path, load: Callable[[Path, str], Any] | None = None) -> None:
        """A model from a local folder, its vectors kept in the SQLite file at `cache_path`.

        `load` makes the model of (folder, device); by default sentence-transformers does.
        """
        self._folder, self._device, self._batch, self._cache_path = folder, device, batch, cache_path
        self._load = load or _sentence_transformer
        self._model: Any = None
        self._digest = weights_digest(folder)
        self._prompts = _role_prompts(folder)

    def queries(self, texts: Sequence[str]) -> Float[np.ndarray, "text d_embedding"]:
        """Unit vectors of texts as queries, with the model's own prompt for these."""
        return self._embedded(QUERY, texts)

    def documents(self, texts: Sequence[str]) -> Float[np.ndarray, "text d_embedding"]:
        """Unit vectors of texts as documents, with the model's own prompt for these."""
        return self._embedded(DOCUMENT, texts)

    def cut(self, role: str, texts: Sequence[str]) -> frozenset[str]:
        """Those of the texts that are longer than the model reads, so that their end has no part in their vector.

        The model is loaded for texts with more bytes than it reads tokens, and for no others.
        """
        prompt = self._prompts.get(role, "")
        long = [text for text in dict.fromkeys(texts) if len((prompt + text).encode("utf-8", "surrogatepass")) > _longest(self._folder)]
        model = self._loaded() if long else None
        if model is None or not model.max_seq_length:
            return frozenset()
        tokens = model.tokenizer([prompt + text for text in long], truncation=False, verbose=False)["input_ids"]
        return frozenset(text for text, of in zip(long, tokens, strict=True) if len(of) > model.max_seq_length)

    def _embedded(self, role: str, texts: Sequence[str]) -> Float[np.ndarray, "text d_embedding"]:
        if not texts:
            return np.zeros((0, 0), np.float32)
        keys = {text: self._key(role, text) for text in dict.fromkeys(texts)}
        self._cache_path.parent.mkdir(parents=True, exist_ok=True)
        with telling(self._cache_path, _REMEDY), closing(sqlite3.connect(self._cache_path, timeout=120)) as cache:
            cache.execute(_TABLE)
            known = dict(_known(cache, list(keys.values())))
            # Length-sorted, so that a batch holds little padding; by text too, so that the batches are the same each time.
            missing = sorted((text for text in keys if keys[text] not in known), key=lambda text: (len(text), text))
            for chunk in _chunks(missing, self._batch * _COMMIT_BATCHES):
                rows = [(keys[text], row.tobytes()) for text, row in zip(chunk, self._encode(role, chunk), strict=True)]
                with cache:
                    cache.executemany(_INSERT, [(*row, zlib.crc32(row[1])) for row in rows])
                known.update(rows)
        return np.stack([np.frombuffer(known[keys[text]], np.float32) for text in texts])

    def _encode(self, role: str, texts: Sequence[str]) -> Float[np.ndarray, "text d_embedding"]:
        model = self._loaded()
        encode = model.encode_query if role == QUERY else model.encode_document
        rows = encode(list(texts), batch_size=self._batch, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False)
        return np.ascontiguousarray(rows, dtype=np.float32)

    def _loaded(self) -> Any:
        if self._model is None:
            self._model = self._load(self._folder, self._device)
        return self._model

    def _key(self, role: str, text: str) -> bytes:
        digest = hashlib.sha256()
        for part in (self._digest, role, self._prompts.get(role, ""), text):
            digest.update(hashlib.sha256(part.encode("utf-8", "surrogatepass")).digest())
        return digest.digest()


def weights_digest(folder: Path) -> str:
    """sha256 over a model folder's files, without our manifest and what only people read."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no model; rerun `dvc repro models`")
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json" and path.suffix != ".md"):
        digest.update(f"{path.relative_to(folder).as_posix()}\x1f".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _sentence_transformer(folder: Path, device: str) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device=device, local_files_only=True, trust_remote_code=False)


def _longest(folder: Path) -> int:
    """Tokens that the model's files say it reads; where they do not say, as few as any model does."""
    try:
        said = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8")).get("max_seq_length")
    except FileNotFoundError:
        said = None
    return said or _FEWEST_TOKENS


def _role_prompts(folder: Path) -> dict[str, str]:
    try:
        return json.loads((folder / "config_sentence_transformers.json").read_text(encoding="utf-8")).get("prompts") or {}
    except FileNotFoundError:
        return {}


def _known(cache: sqlite3.Connection, keys: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    for chunk in _chunks(keys, _LOOKUPS):
        holders = ",".join("?" * len(chunk))
        found = cache.execute(f"SELECT key, vector, checksum FROM checked_vectors WHERE key IN ({holders})", chunk)
        yield from ((key, vector) for key, vector, checksum in found if zlib.crc32(vector) == checksum)


def _chunks(values: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (values[i : i + size] for i in range(0, len(values), size))
