"""What every kind of corpus offers: its documents, one after another."""

from collections.abc import Iterator
from typing import Protocol

from latentry.records import Document


class Corpus(Protocol):
    """Texts to be tokenised."""

    def documents(self) -> Iterator[Document]:
        """Every document, in a fixed order, read one at a time; each call begins anew.

        Raises:
            CorpusError: nothing is there, or something of it cannot be read.
        """
        ...

    def digest(self) -> str:
        """Another one whenever `documents` would give other ones: half-made tokens of one corpus are not continued with another.

        Raises:
            CorpusError: as `documents`.
        """
        ...
