"""Where an export is put: made beside its place and moved there when it is whole, so that no half of one is ever seen.

Always true: what stands there already is kept unless the caller forces, and then only an earlier export is replaced.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from latentry.atomic import told_when_full
from latentry.errors import ExchangeError
from latentry.exchange.bundle_file import is_bundle
from latentry.exchange.locked import is_place_of_results

MARK = "provenance.json"
"""Stands in every folder that is exported, and says what it is."""


@contextmanager
def new_folder(out: Path, *, force: bool, mark: str = MARK) -> Iterator[Path]:
    """A folder to fill, the file `mark` with it; it is moved to `out` when the block ends well.

    Raises:
        ExchangeError: as `require_free`.
        OSError: it cannot be written; names it.
    """
    require_free(out, force=force, mark=mark)
    making = out.with_name(f".{out.name}.{os.getpid()}.partial")
    with told_when_full(out):
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        try:
            yield making
            _move(making, out)
        finally:
            shutil.rmtree(making, ignore_errors=True)


def require_free(out: Path, *, force: bool, mark: str = MARK) -> None:
    """See that nothing is lost by writing a folder there.

    Raises:
        ExchangeError: it lies in a project's `data`; something is there, and it is not forced, or it is no earlier export.
    """
    _require_outside(out)
    if not out.is_symlink() and out.is_dir() and not any(out.iterdir()):
        return
    _require_free(out, force=force, is_ours=(out / mark).is_file(), lacks=f"holds no {mark}")


def require_free_file(out: Path, *, force: bool) -> None:
    """See that nothing is lost by writing a bundle there.

    Raises:
        ExchangeError: it lies in a project's `data`; something is there, and it is not forced, or it is no bundle.
    """
    _require_outside(out)
    _require_free(out, force=force, is_ours=is_bundle(out), lacks="is no bundle of latentry's")


def _require_outside(out: Path) -> None:
    if is_place_of_results(out):
        raise ExchangeError(f"{out}: lies in a project's data, where stages alone write; name another place, such as exports/{out.name}")


def _require_free(out: Path, *, force: bool, is_ours: bool, lacks: str) -> None:
    if not out.exists() and not out.is_symlink():
        return
    if not force:
        raise ExchangeError(f"{out}: is there already; name another place, or replace it by --force")
    if out.is_symlink():
        raise ExchangeError(f"{out}: is a link, and --force replaces an earlier export only; name another place")
    if not is_ours:
        raise ExchangeError(
            f"{out}: {lacks}, so latentry did not write it, and --force replaces an earlier export only; name another place"
        )


def _move(making: Path, out: Path) -> None:
    """Take the place at once; what stood there goes when the new one stands."""
    earlier = out.with_name(f".{out.name}.{os.getpid()}.earlier")
    shutil.rmtree(earlier, ignore_errors=True)
    if out.exists():
        out.rename(earlier)
    making.rename(out)
    shutil.rmtree(earlier, ignore_errors=True)
