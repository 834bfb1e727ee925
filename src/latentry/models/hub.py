"""A model on the Hugging Face hub, at a pinned revision. Needs a network, unless the hub's own cache has it."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from latentry.errors import SourceError
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

    def fetch(self, downloads: Path, into: Path) -> Path:  # noqa: ARG002 (the hub's client keeps a cache of its own)
        """Download into the folder given."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

        wanted = f"hub {self._config.id}@{self._config.revision}"
        try:
            snapshot_download(self._config.id, revision=self._config.revision, allow_patterns=list(self._config.files), local_dir=into)
        except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
            reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            raise SourceError(f"{wanted}: cannot be had ({reason}); check id, revision and network, or name a folder") from error
        return into
