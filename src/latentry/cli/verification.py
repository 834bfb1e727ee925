"""`latentry verify`: whether results are whole, unchanged, and made from one another."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from latentry.errors import ContractError, ExchangeError

MEND = (
    "to mend: delete the folder, then `dvc pull FOLDER` fetches what was pushed of it, and `dvc repro` takes it from DVC's cache or makes it anew;"
    " fetch again what came by `dvc get`, or as a zip"
)


@click.command()
@click.argument("places", nargs=-1, metavar="[FOLDER | FILE.zip]...", type=click.Path(exists=True, path_type=Path))
def verify(places: tuple[Path, ...]) -> None:
    """Check results: files against manifests, folders against dvc.lock, and each folder against those it was made from.

    FOLDER is one folder of results, as `dvc get` fetches it, or one that holds such; FILE.zip is a bundle. With neither, all of data and
    report is checked.
    """
    from latentry.exchange.verify import DEFAULT

    bundles = [place for place in places if place.is_file()]
    folders = [place for place in places if place not in bundles] or ([] if bundles else [Path(name) for name in DEFAULT])
    found = [*(_of_folders(folders) if folders else ()), *(_of_bundle(path) for path in bundles)]
    what, faults = "; ".join(one[0] for one in found), [fault for one in found for fault in one[1]]
    if faults:
        counted = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        raise ContractError("\n".join([f"{counted} in {what}", *(f"  - {fault}" for fault in faults), MEND]))
    click.echo(f"all is as written: {what}")


def _of_folders(folders: Sequence[Path]) -> Iterator[tuple[str, Sequence[str]]]:
    from latentry.exchange.verify import verify as verified

    found = verified(folders)
    for unknown in found.not_checked:
        click.echo(f"not checked: {unknown}")
    size = f"{found.n_files:,} files, {found.n_bytes:,} bytes, {found.n_links:,} links from folder to folder"
    yield f"{len(found.folders):,} folders ({size})", found.faults


def _of_bundle(path: Path) -> tuple[str, Sequence[str]]:
    from latentry.exchange.bundle_file import open_bundle

    try:
        found = open_bundle(path)
    except ExchangeError as error:
        return str(path), str(error).splitlines()
    return f"{path} ({len(found.sums):,} files, {found.n_bytes:,} bytes unpacked)", ()
