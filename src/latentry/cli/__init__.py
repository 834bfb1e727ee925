"""The command line, for what is not a stage: check before work, publish again, open the comparison."""

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from latentry import preflight
from latentry.cli.exports import export
from latentry.cli.imports import import_
from latentry.cli.pulling import pull
from latentry.cli.verification import verify
from latentry.errors import ParamsError
from latentry.params import load_params
from latentry.runtime import run_stage
from latentry.safe_text import harmless
from latentry.store import project_root


def main() -> None:
    """Entry point of `latentry`."""
    run_stage(commands)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="latentry")
def commands() -> None:
    """Interpretation of SAE latents as a versioned pipeline. The pipeline itself is run by `dvc repro`."""


@commands.command()
def check() -> None:
    """Say all that is wrong with params.yaml before anything is run or paid for."""
    for said in preflight.mend_lock(project_root()):
        click.echo(said, err=True)
    params = load_params()
    preflight.make_markers(project_root())
    found = preflight.check(params)
    for unknown in found.not_checked:
        click.echo(f"not checked yet: {harmless(unknown)}")
    if faults := (*preflight.unwritten(params), *found.faults):
        raise ParamsError("params.yaml", faults)
    cells = len(params.saes) * (4 + len(params.scorers)) + len(params.models) + 2 * len(params.jacobians) + 4
    click.echo(
        f"params.yaml is fine: {len(params.saes)} SAEs, {len(params.explainers)} explainers, {len(params.scorers)} scorers, {cells} cells"
    )


@commands.command()
def estimate() -> None:
    """Say what a run takes before anything is paid: tokens that the subject runs, disk, calls, their tokens and price."""
    from latentry.estimate import estimate as estimated
    from latentry.estimate_calls import estimate_calls, said

    params = load_params()
    found = estimated(params)
    click.echo(f"tokens: {found.n_tokens:,} in {found.n_contexts:,} contexts")
    where = "activations are stored" if params.activations.store else "activations are not stored, so each SAE's cells run it themselves"
    click.echo(f"the subject runs over them {found.passes:.2f} times in all ({where}):")
    for cell, n_tokens in found.forward_tokens.items():
        if n_tokens:
            click.echo(f"  {cell:<24}{n_tokens:>16,} tokens")
    click.echo("disk:")
    for folder, n_bytes in found.disk_bytes.items():
        click.echo(f"  {folder:<24}{'not known yet' if n_bytes is None else f'{n_bytes / 1e6:,.1f} MB':>19}")
    for line in said(estimate_calls(params)):
        click.echo(line)


@commands.command()
@click.option("--dry-run", is_flag=True, help="Only name the cells.")
def retry(dry_run: bool) -> None:
    """Ask again for what failed for the moment: run the cells that hold such rows, then what was made of them; no other cell."""
    from latentry.retry import failed_cells, following_cells, unmade_cells

    params = load_params()
    failed = failed_cells(params)
    for cell in failed:
        click.echo(f"{cell.cell}: {cell.n_failed:,} of {cell.n_rows:,} rows failed for the moment")
    if not failed:
        click.echo("nothing to retry: no row failed for the moment")
    if unmade := unmade_cells(params):
        click.echo(f"without results: {', '.join(unmade)}; a cell that never ran or failed as a whole is run by `dvc repro`")
    if failed and not dry_run:
        names = [cell.cell for cell in failed]
        raise SystemExit(_repro(names, "--force") or _repro(following_cells(params, names)))


def _repro(cells: Sequence[str], *options: str) -> int:
    """Run these cells alone, and give DVC's exit code."""
    return subprocess.run(["dvc", "repro", *options, "--single-item", *cells], check=False).returncode if cells else 0


@commands.command()
def track() -> None:
    """Publish results to MLflow; what is there already is left alone."""
    from latentry.tracking.publish import track as publish

    result = publish(load_params(), project_root())
    click.echo(f"published {len(result.published)}, there already {len(result.skipped)}, pending {len(result.pending)}")


@commands.command()
@click.argument("sae")
@click.argument("latent")
def show(sae: str, latent: str) -> None:
    """Look at one latent of a SAE: statistics, explanations and scores, examples by decile with marks, contrasts.

    LATENT is its number; of a signed SAE also the number of its direction with its sign, such as 22+ or 22-. In a pipe
    or a file, where there are no colours, firing words stand in << >>.
    """
    from latentry.explorer.show import latent_page, without_colours

    params = None
    with contextlib.suppress(ParamsError):  # results are shown also while params are being edited
        params = load_params()
    for line in latent_page(Path("data"), sae, latent, params):
        click.echo(line if sys.stdout.isatty() else without_colours(line))


@commands.command()
@click.option("--port", default=5123, show_default=True, help="Where the server listens, on this machine only.")
def ui(port: int) -> None:
    """Open the comparison of sizes and losses in MLflow: publish what is new, start its server, print the link."""
    from latentry.tracking.publish import track as publish
    from latentry.tracking.server import tracking_uri, ui_command

    root = project_root()
    result = publish(load_params(), root, port=port)
    if tracking_uri(root).startswith("http"):
        click.echo(f"on your tracking server: {result.link}")
        return
    click.echo(f"ready in about 20 s, stop with Ctrl-C: {result.link}")
    raise SystemExit(subprocess.run(ui_command(root, port), check=False).returncode)


commands.add_command(export)
commands.add_command(import_)
commands.add_command(pull)
commands.add_command(verify)
