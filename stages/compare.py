"""Stage `compare`: every SAE beside every other, as tables, as one metrics file, and as a page."""

from pathlib import Path

import click

from latentry.comparison.compare import compare
from latentry.comparison.grid import AskedScorer, Grid, remove_unnamed_cells
from latentry.comparison.summary import write_metrics
from latentry.contracts import COMPARISON
from latentry.explorer.report import settings_of, write_report
from latentry.params import Params, load_params
from latentry.registry import ScorerConfig
from latentry.runtime import run_stage
from latentry.store import read_table, work

DATA, OUT = Path("data"), Path("data/comparison")


@click.command()
def main() -> None:
    """Compare the cells that params name; what is left of others is deleted first."""
    params = load_params()
    scorers = {name: _asked(params, one) for name, one in params.scorers.items()}
    grid = Grid(data=DATA, seed=params.seed, saes=tuple(params.saes), explainers=tuple(params.explainers), scorers=scorers)
    for removed in remove_unnamed_cells(grid):
        click.echo(f"compare: {removed} is named by params.yaml no more; deleted")
    with work(
        OUT,
        COMPARISON,
        cell="compare",
        params=params.slice("seed", "saes", "explainers", "scorers", "examples.held_out"),
        inputs=grid.inputs(),
    ) as making:
        if making:
            for name, table in compare(grid).items():
                making.write_table(name, table)
    write_metrics(OUT, Path("metrics"))
    tables = {name: read_table(OUT, COMPARISON, name) for name in COMPARISON.tables}
    write_report(data=DATA, tables=tables, settings=settings_of(params), out=Path("report/index.html"))
    click.echo(
        f"compare: {len(params.saes)} SAEs, {len(params.explainers)} explainers, {len(params.scorers)} scorers; see report/index.html"
    )


def _asked(params: Params, scorer: ScorerConfig) -> AskedScorer:
    held_out = params.examples.held_out
    return AskedScorer(
        contrast=scorer.contrast,
        max_latents=scorer.max_latents,
        reads_explanations=scorer.reads_explanations,
        class_ratio=scorer.class_ratio(held_out.n_activating, held_out.n_contrast),
        is_adaptive=scorer.is_adaptive,
    )


if __name__ == "__main__":
    run_stage(main)
