"""A model on the Hugging Face hub, at a pinned revision. Needs a network, unless the hub's own cache on this machine has it."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from latentry.errors import SourceError
from latentry.hub import snapshot
from latentry.registry import VariantConfig


class Config(VariantConfig):
    id: str
    """Name on the hub, such as `EleutherAI/pythia-160m`."""
    revision: Annotated[str, Field(min_length=1)]
    """Commit, tag or branch; a commit makes the result repeatable."""
    files: tuple[str, ...] = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "1_Pooling/*")
    """Patterns of the files wanted."""


def build(config: Config) -> "Hub":
    """A source on the hub."""
    return Hub(config)


class Hub:
    """See the file's docstring."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._wanted = f"hub {config.id}@{config.revision}"

    def fetch(self, downloads: Path, into: Path) -> Path:  # noqa: ARG002 (the hub's client keeps a cache of its own)
        """Download to the hub's cache, and link from the folder given the files wanted: others may lie in the cache too."""
        from huggingface_hub.utils import filter_repo_objects

        held = snapshot(self._config.id, self._config.revision, self._config.files, instead="a folder or packages")
        there = sorted(path.relative_to(held).as_posix() for path in held.rglob("*") if path.is_file())
        names = list(filter_repo_objects(there, allow_patterns=list(self._config.files)))
        if not names:
            raise SourceError(f"{self._wanted}: none of its files fits `files` ({', '.join(self._config.files)}); name those to be fetched")
        for name in names:
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            (into / name).symlink_to((held / name).resolve())
        return into
