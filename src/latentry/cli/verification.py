"""`latentry verify`: whether results are whole, unchanged, and made from one another."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from latentry.errors import ContractError

if TYPE_CHECKING:
    from latentry.exchange.verify import Verified

MEND = (
    "to mend: delete the folder, then `dvc pull FOLDER` fetches what was pushed of it, and `dvc repro` takes it from DVC's cache or makes it anew;"
    " fetch again what came by `dvc get`"
)


@click.command()
@click.argument("folders", nargs=-1, metavar="[FOLDER]...", type=click.Path(exists=True, file_okay=False, path_type=Path))
def verify(folders: tuple[Path, ...]) -> None:
    """Check results: files against manifests, folders against dvc.lock, and each folder against those it was made from.

    FOLDER is one folder of results, as `dvc get` fetches it, or one that holds such; left out, it is all of data and report.
    """
    from latentry.exchange.verify import DEFAULT
    from latentry.exchange.verify import verify as verified

    found = verified(folders or [Path(name) for name in DEFAULT])
    for unknown in found.not_checked:
        click.echo(f"not checked: {unknown}")
    if found.faults:
        faults = "1 fault" if len(found.faults) == 1 else f"{len(found.faults)} faults"
        raise ContractError("\n".join([f"{faults} in {_size(found)}", *(f"  - {fault}" for fault in found.faults), MEND]))
    click.echo(f"all is as written: {_size(found)}; {found.n_links:,} links from folder to folder")


def _size(found: "Verified") -> str:
    return f"{len(found.folders):,} folders, {found.n_files:,} files, {found.n_bytes / 1e6:,.1f} MB"
