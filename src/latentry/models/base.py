"""What every kind of source offers: its files, as a local folder."""

from pathlib import Path
from typing import Protocol


class Source(Protocol):
    """One place where a model may be had."""

    def fetch(self, downloads: Path, into: Path) -> Path:
        """The folder with the model's files: its own where they lie already, else `into`, an empty folder.

        Raises:
            SourceError: this source does not have it; the message says why and what to set.
        """
        ...
