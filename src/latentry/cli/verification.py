"""`latentry verify`: whether results are whole, unchanged, and made from one another."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from latentry.errors import ContractError, ExchangeError

MEND = (
    "to mend a folder: delete it, then `dvc pull FOLDER` fetches what was pushed of it, and `dvc repro` takes it from DVC's cache or makes it anew;"
    " fetch again what came by `dvc get`"
)
MEND_BUNDLE = "to mend a bundle: get it anew from where it was exported"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What was looked at, in words, and what is wrong with it."""

    what: str
    faults: Sequence[str]
    mend: str
    """Empty where the fault itself says what to do."""


@click.command()
@click.argument("places", nargs=-1, metavar="[FOLDER | FILE.zip]...", type=click.Path(exists=True, path_type=Path))
@click.option("--max-bytes", type=click.IntRange(min=1), help="The most that a zip may unpack to; 64 GiB where left out.")
def verify(places: tuple[Path, ...], max_bytes: int | None) -> None:
    """Check results: files against manifests, folders against dvc.lock, and each folder against those it was made from.

    FOLDER is one folder of results, as `dvc get` fetches it, or one that holds such; FILE.zip is a bundle, and so is the folder that it was
    unpacked to. With neither, all of data and report is checked.
    """
    from latentry.exchange.bundle_file import is_unpacked
    from latentry.exchange.verify import DEFAULT

    bundles = [place for place in places if place.is_file() or is_unpacked(place)]
    folders = [place for place in places if place not in bundles] or ([] if bundles else [Path(name) for name in DEFAULT])
    checked = [*([_of_folders(folders)] if folders else ()), *(_of_bundle(path, max_bytes) for path in bundles)]
    what, faults = "; ".join(one.what for one in checked), [fault for one in checked for fault in one.faults]
    if faults:
        counted = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        mends = dict.fromkeys(one.mend for one in checked if one.faults and one.mend)
        raise ContractError("\n".join([f"{counted} in {what}", *(f"  - {fault}" for fault in faults), *mends]))
    click.echo(f"all is as written: {what}")


def _of_folders(places: Sequence[Path]) -> _Checked:
    from latentry.exchange.verify import verify as verified

    found = verified(places)
    for unknown in found.not_checked:
        click.echo(f"not checked: {unknown}")
    size = f"{found.n_files:,} files, {found.n_bytes:,} bytes, {found.n_links:,} links from folder to folder"
    folders = "1 folder" if len(found.folders) == 1 else f"{len(found.folders):,} folders"
    return _Checked(what=f"{folders} ({size})", faults=found.faults, mend=MEND)


def _of_bundle(path: Path, max_bytes: int | None) -> _Checked:
    from latentry.exchange.bundle_file import MAX_BYTES, BundleError, check_unpacked, open_bundle
    from latentry.exchange.provenance import made_at
    from latentry.safe_text import harmless

    try:
        found = check_unpacked(path) if path.is_dir() else open_bundle(path, max_bytes or MAX_BYTES)
    except BundleError as error:
        return _Checked(what=str(path), faults=error.faults, mend=MEND_BUNDLE)
    except ExchangeError as error:
        return _Checked(what=str(path), faults=[str(error)], mend="")
    origin = harmless(f"SAEs {', '.join(map(str, found.about.get('saes', ())))}; {made_at(found.about)}")
    return _Checked(what=f"{path} ({len(found.sums) + 1:,} files, {found.n_bytes:,} bytes unpacked; {origin})", faults=(), mend="")
