"""Which latents' explanations hold which word, in files that a search loads a few of.

A word is a run of letters and digits, without regard to case; scripts that put no spaces between words are cut into single
characters. Files hold the words that begin alike, so that a search for a beginning finds all of them in one.
"""

import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from latentry.explorer.site.chunks import ChunkFolder, packed

N_FILES = 512
LONGEST = 40
"""Characters of a word that count."""

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


def words_of(text: str) -> Iterator[str]:
    """The words of a text as they are searched for."""
    for run in _WORD.findall(unicodedata.normalize("NFKC", text).lower()):
        characters = _UNSPACED.findall(run)
        yield from characters
        yield from (part[:LONGEST] for part in (_UNSPACED.split(run) if characters else [run]) if part)


def file_of(word: str) -> int:
    """The file that holds a word: by its first two characters (FNV-1a over their code points, as `explorer.js` computes it)."""
    value = 0x811C9DC5
    for character in word[:2]:
        value = ((value ^ ord(character)) * 0x01000193) & 0xFFFFFFFF
    return value % N_FILES


class WordIndex:
    """Rows by the words in them; rows are added in ascending order."""

    def __init__(self) -> None:
        self._rows: dict[str, array[int]] = defaultdict(lambda: array("I"))

    def add(self, row: int, text: str) -> None:
        """Say that the row holds the words of a text."""
        for word in set(words_of(text)):
            self._rows[word].append(row)

    def write(self, chunks: ChunkFolder) -> None:
        """Write `words/<file>`: {word: rows}; a file without words is written too, so that a page need not know which there are."""
        files: list[dict[str, str]] = [{} for _ in range(N_FILES)]
        for word in sorted(self._rows):
            files[file_of(word)][word] = packed(np.frombuffer(self._rows[word], np.uint32), "<u4")
        for number, words in enumerate(files):
            chunks.write(f"words/{number}", words)
