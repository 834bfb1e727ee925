"""`latentry pull`: a colleague's results by `dvc pull`, and why there are none where DVC cannot say it."""

import os
import subprocess
from pathlib import Path

import click

from latentry.errors import ContractError, SourceError
from latentry.params import load_params

SHARED = ("sae", "examples", "explain", "score", "compare")
"""The stages whose outputs a reader needs; models, tokens, activations and latents are large, and are made again from these."""
WITH_JACOBIANS = ("jacobian", "edges")
"""And these, where params name Jacobians: DVC knows no stage of a section without entries."""


@click.command()
@click.option("--remote", "-r", help="Of several remotes, which; else the default one.")
def pull(remote: str | None) -> None:
    """Fetch a colleague's results: all but models, tokens, activations and latents."""
    from latentry.exchange.verify import remove_empty_folders, version_faults

    stages = [*SHARED, *(WITH_JACOBIANS if load_params().jacobians else ())]
    done = subprocess.run(["dvc", "pull", *(["--remote", remote] if remote else []), *stages], check=False)
    remove_empty_folders(Path("data"))
    if done.returncode:
        raise SourceError(f"pull: {_reason(remote)}")
    if faults := version_faults(Path("data")):
        raise ContractError("\n".join(["pull: results of another version came", *(f"  - {fault}" for fault in faults)]))
    click.echo("pulled: open report/index.html; `dvc repro --allow-missing` runs nothing but `track`")


def _reason(remote: str | None) -> str:
    from latentry.exchange.remotes import why_nothing

    wide = os.environ | {"COLUMNS": "9999"}  # else DVC breaks lines within a long address
    listed = subprocess.run(["dvc", "remote", "list"], check=False, capture_output=True, text=True, env=wide)
    default = subprocess.run(["dvc", "config", "core.remote"], check=False, capture_output=True, text=True).stdout.strip()
    return (
        why_nothing(listed.stdout, remote or default or None)
        if listed.returncode == 0
        else "DVC could not do it; its own message stands above"
    )
