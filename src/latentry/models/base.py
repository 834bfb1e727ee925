"""What every kind of source offers: its files, as a local folder."""

from pathlib import Path
from typing import Annotated, Protocol

from pydantic import AfterValidator


class Source(Protocol):
    """One place where a model may be had."""

    def fetch(self, downloads: Path, into: Path) -> Path:
        """The folder with the model's files: its own where they lie already, else `into`, an empty folder.

        Raises:
            SourceError: this source does not have it; the message says why and what to set.
        """
        ...


def _plain(name: str) -> str:
    """The name of a file in a folder, which leads nowhere else."""
    if not name or "/" in name or "\\" in name or not name.isprintable() or name in (".", "..") or len(name) > 200:
        raise ValueError("wanted the name of one file, without folders")
    return name


FileName = Annotated[str, AfterValidator(_plain)]
"""The name of a file in a model's folder."""
