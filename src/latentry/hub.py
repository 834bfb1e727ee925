"""What comes from the Hugging Face hub: some files of one repository at one revision, in the hub's own cache on this machine.

Needs a network, unless the cache has them. What is done with the files, and where they are copied, is the caller's.
"""

from collections.abc import Sequence
from pathlib import Path

from latentry.errors import SourceError


def snapshot(repository: str, revision: str, files: Sequence[str], *, instead: str) -> Path:
    """The folder of the cache that holds those of the repository's files that fit the patterns; others may lie there too.

    Raises:
        SourceError: they cannot be had; says why, and what to name instead.
    """
    from huggingface_hub import errors, snapshot_download

    http_error = errors.HTTPError  # pyright: ignore[reportPrivateImportUsage] (httpx's or httpx2's, as the hub's client has it)
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(files)))
    except (errors.HFValidationError, http_error, OSError) as error:
        raise SourceError(f"hub {repository}@{revision}: {_fault(error, instead)}") from error


def _fault(error: Exception, instead: str) -> str:
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
        return f"{reach}; mend the network, or name {instead}"
    return f"cannot be downloaded ({reason}); mend that, or name another source"
