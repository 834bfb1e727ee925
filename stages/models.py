"""Stage `models@M`: one model as a local folder, checked and converted once."""

from pathlib import Path

import click

from latentry.contracts import MODEL
from latentry.models.obtain import obtain
from latentry.params import load_params
from latentry.runtime import run_stage
from latentry.store import cache_folder, work


@click.command()
@click.option("--model", required=True, help="Name under `models`.")
def main(model: str) -> None:
    """Obtain one model from its first source that has it."""
    params = load_params()
    settings = params.named("models", model)
    with work(Path("data/models", model), MODEL, cell=f"models@{model}", params=params.slice(f"models.{model}")) as making:
        if making:
            making.counts.update(obtain(model, settings, params.sources(model), cache_folder("downloads"), making.folder))


if __name__ == "__main__":
    run_stage(main)
