"""A folder on this machine that holds the model's files."""

from pathlib import Path

from latentry.errors import SourceError
from latentry.models.untrusted import check_links
from latentry.registry import VariantConfig


class Config(VariantConfig):
    path: str
    """The folder; relative to the project, or absolute."""


def build(config: Config) -> "Folder":
    """A source that is already here."""
    return Folder(Path(config.path).expanduser())


class Folder:
    """See the file's docstring."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fetch(self, downloads: Path, into: Path) -> Path:  # noqa: ARG002 (nothing is fetched)
        """The folder itself.

        Raises:
            SourceError: it is not there, or holds a link out of it.
        """
        if not self._path.is_dir():
            raise SourceError(f"folder {self._path}: is not there; put the model's files into it, or set `path` to where they are")
        check_links(self._path)
        return self._path
