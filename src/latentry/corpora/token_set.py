"""The tokens of a run, as the stage `tokens` wrote them. Positions count on through the rows: context * context length + place."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors import safe_open

from latentry.contracts import TOKENS
from latentry.store import read_manifest, read_table


class TokenSet:
    """Rows of tokens with their places in the text; every array is [context, position], read whole when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            ContractError: the folder holds no complete tokens of this version.
        """
        manifest = read_manifest(folder, TOKENS)
        self._counts = manifest.counts
        names = [name for name in manifest.files if name.startswith("shard-")]
        self.folder = folder
        self._arrays: dict[str, np.ndarray] = {}
        self._columns: dict[str, list[str]] = {}
        self._shards = [folder / name for name in sorted(names, key=lambda name: (len(name), name))]
        self._shard_contexts, self.context = _shape(self._shards[0])
        self.n_contexts: int = self._shard_contexts * (len(self._shards) - 1) + _shape(self._shards[-1])[0]
        """Number of rows."""

    @property
    def begins_with_bos(self) -> bool:
        """Whether every row begins with BOS."""
        return self._counts["begins_with_bos"]

    def rows(self, first: int, last: int) -> np.ndarray:
        """Tokens of contexts first..last, last exclusive, u32[context, position]; reads no others."""
        found = np.empty((last - first, self.context), dtype=np.uint32)
        for number in range(first // self._shard_contexts, -(-last // self._shard_contexts)):
            begin = number * self._shard_contexts
            with safe_open(self._shards[number], "numpy") as arrays:
                piece = arrays.get_slice("tokens")[max(first - begin, 0) : min(last - begin, self._shard_contexts)]
            at = max(begin - first, 0)
            found[at : at + len(piece)] = piece
        return found

    @property
    def tokens(self) -> np.ndarray:
        """u32."""
        return self._whole("tokens", np.uint32)

    @property
    def document(self) -> np.ndarray:
        """i32, index into `texts`; -1 at separators and beginnings."""
        return self._whole("document", np.int32)

    @property
    def text_start(self) -> np.ndarray:
        """u32, characters of the document's text."""
        return self._whole("text_start", np.uint32)

    @property
    def text_end(self) -> np.ndarray:
        """u32, exclusive."""
        return self._whole("text_end", np.uint32)

    @property
    def special(self) -> np.ndarray:
        """bool, at every token whose id is special."""
        return self._whole("special", np.bool_)

    @property
    def texts(self) -> list[str]:
        """By document."""
        return self._column("text")

    @property
    def names(self) -> list[str]:
        """By document."""
        return self._column("name")

    def _whole(self, name: str, dtype: type[np.generic]) -> np.ndarray:
        if name not in self._arrays:
            found = np.empty((self.n_contexts, self.context), dtype=dtype)
            for number, piece in enumerate(self._pieces(name)):
                first = number * self._shard_contexts
                found[first : first + len(piece)] = piece
            self._arrays[name] = found
        return self._arrays[name]

    def _pieces(self, name: str) -> Iterator[np.ndarray]:
        for shard in self._shards:
            with safe_open(shard, "numpy") as arrays:
                yield arrays.get_tensor(name)

    def _column(self, name: str) -> list[str]:
        if name not in self._columns:
            self._columns[name] = read_table(self.folder, TOKENS, "documents.parquet", columns=[name])[name].to_pylist()
        return self._columns[name]


def _shape(shard: Path) -> tuple[int, int]:
    with safe_open(shard, "numpy") as arrays:
        n_contexts, context = arrays.get_slice("tokens").get_shape()
    return n_contexts, context
