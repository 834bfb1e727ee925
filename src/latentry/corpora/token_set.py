"""The tokens of a run, as the stage `tokens` wrote them. Positions count on through the rows: context * context length + place."""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from latentry.contracts import TOKENS
from latentry.store import read_manifest, read_table


class TokenSet:
    """Rows of tokens with their places in the text; every array is [context, position]."""

    def __init__(self, folder: Path) -> None:
        read_manifest(folder, TOKENS)
        arrays = load_file(folder / "tokens.safetensors")
        self.folder = folder
        self.tokens: np.ndarray = arrays["tokens"]
        self.document: np.ndarray = arrays["document"]
        self.text_start: np.ndarray = arrays["text_start"]
        self.text_end: np.ndarray = arrays["text_end"]
        self.special: np.ndarray = arrays["special"].astype(bool)
        documents = read_table(folder, TOKENS, "documents.parquet")
        self.texts: list[str] = documents["text"].to_pylist()
        """By document."""
        self.names: list[str] = documents["name"].to_pylist()

    @property
    def n_contexts(self) -> int:
        """Number of rows."""
        return self.tokens.shape[0]

    @property
    def context(self) -> int:
        """Tokens in a row."""
        return self.tokens.shape[1]
