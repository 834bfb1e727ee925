"""A model on the Hugging Face hub, at a pinned revision. Needs a network, unless the hub's own cache on this machine has it."""

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
        self._wanted = f"hub {config.id}@{config.revision}"

    def fetch(self, downloads: Path, into: Path) -> Path:  # noqa: ARG002 (the hub's client keeps a cache of its own)
        """Download to the hub's cache, and link from the folder given the files wanted: others may lie in the cache too."""
        from huggingface_hub.utils import filter_repo_objects

        snapshot = self._snapshot()
        there = sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file())
        names = list(filter_repo_objects(there, allow_patterns=list(self._config.files)))
        if not names:
            raise SourceError(f"{self._wanted}: none of its files fits `files` ({', '.join(self._config.files)}); name those to be fetched")
        for name in names:
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            (into / name).symlink_to((snapshot / name).resolve())
        return into

    def _snapshot(self) -> Path:
        from huggingface_hub import errors, snapshot_download

        http_error = errors.HTTPError  # pyright: ignore[reportPrivateImportUsage] (httpx's or httpx2's, as the hub's client has it)
        try:
            return Path(snapshot_download(self._config.id, revision=self._config.revision, allow_patterns=list(self._config.files)))
        except (errors.HFValidationError, http_error, OSError) as error:
            raise SourceError(f"{self._wanted}: {_fault(error)}") from error


def _fault(error: Exception) -> str:
    """What an error of the hub's client means, and what to do."""
    from huggingface_hub import errors

    told = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ else error
    reason = (str(told).strip().splitlines() or [type(told).__name__])[0][:200]
    status = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else None
    if isinstance(error, errors.HFValidationError):
        return f"is no name on the hub ({reason}); set `id` to owner/name"
    if isinstance(error, errors.RevisionNotFoundError):
        return "the model is there, and no such revision of it; set `revision` to a commit, tag or branch that it has"
    if isinstance(error, errors.GatedRepoError):
        return "access to it must be granted; ask for it on the model's page, and set HF_TOKEN to the key of an account that has it"
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 403):
        return "there is no such model, or none that may be seen; check `id`, and for a private one HF_TOKEN"
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        reach = f"the hub cannot be reached ({reason}), and its cache on this machine does not hold all of it"
        return f"{reach}; mend the network, or name a folder or packages"
    return f"cannot be downloaded ({reason}); mend that, or name another source"
