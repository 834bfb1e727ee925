"""Stage `track`: all results to MLflow; running it again adds nothing."""

import click

from latentry.params import load_params
from latentry.runtime import run_stage
from latentry.store import project_root
from latentry.tracking.publish import track


@click.command()
def main() -> None:
    """Publish what is new; a tracker that is down costs nothing but this line."""
    result = track(load_params(), project_root())
    click.echo(f"track: published {len(result.published)}, there already {len(result.skipped)}, pending {len(result.pending)}")
    if result.link and not result.pending:
        click.echo("track: `make ui` opens them")


if __name__ == "__main__":
    run_stage(main)
