"""Writing a file so that what stands under its name is complete, also after a kill or a full disk."""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError


def write_atomic(path: Path, write: Callable[[Path], object], n_bytes: int | None = None) -> None:
    """Write beside the path by a function, then rename.

    Args:
        n_bytes: how large the file will be, where that is known before.

    Raises:
        OSError: names the path; where the disk is full, also what the file needs and what is free.
    """
    with beside(path, n_bytes) as partial:
        write(partial)


@contextmanager
def beside(path: Path, n_bytes: int | None = None) -> Iterator[Path]:
    """The same for a block: a file to write, renamed to the path when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except (OSError, SafetensorError) as error:
        partial.unlink(missing_ok=True)
        raise _told(error, path, n_bytes) from error
    finally:
        partial.unlink(missing_ok=True)


def _told(error: OSError | SafetensorError, path: Path, n_bytes: int | None) -> OSError:
    number = error.errno if isinstance(error, OSError) else _number_in(str(error))
    reason = os.strerror(number) if number else str(error)
    if number in (errno.ENOSPC, errno.EDQUOT):
        needed = f"the file needs {n_bytes / 1e6:,.1f} MB, " if n_bytes is not None else ""
        reason += f" ({needed}{shutil.disk_usage(path.parent).free / 1e6:,.1f} MB are free there)"
    return OSError(number, f"cannot write {path}: {reason}")


def _number_in(text: str) -> int | None:
    """The system's number in a message of a library that has no `errno`."""
    found = re.search(r"os error (\d+)", text)
    return int(found.group(1)) if found else None
