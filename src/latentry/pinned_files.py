"""Files from outside the DAG that params name together with their digest: a changed file is a changed study, and never read unnoticed."""

from pathlib import Path

from latentry.errors import ParamsError
from latentry.store import file_digest


def check_pinned(path: Path, sha256: str | None, where: str, wanted: str) -> None:
    """Refuse a file that is not the one stated; `where` is its place in params, `wanted` what it should be.

    Raises:
        ParamsError: the file is not there, or has another digest, which is told.
    """
    try:
        digest = file_digest(path)
    except OSError as error:
        raise ParamsError(f"{where}.path", [f"{path}: cannot be read ({error.strerror}); name {wanted}"]) from None
    if sha256 != digest:
        said = "is missing" if sha256 is None else f"is {sha256}"
        raise ParamsError(f"{where}.sha256", [f"{said}; {path} has {digest}: write that, if this is the file"])
