"""Stage `compare`: every SAE beside every other, as tables, as one metrics file, and as a page."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from latentry.comparison.compare import compare
from latentry.comparison.grid import AskedScorer, Grid, remove_unnamed_cells
from latentry.comparison.summary import write_metrics
from latentry.contracts import COMPARISON
from latentry.embeddings import Embedder
from latentry.explorer.report import settings_of, write_report
from latentry.explorer.site.write import write_site
from latentry.locks import alone
from latentry.params import Params, load_params
from latentry.registry import ScorerConfig
from latentry.runtime import device_of, run_stage
from latentry.sampling.folders import decoder_rows
from latentry.store import cache_folder, digest_of, read_table, work

DATA, OUT = Path("data"), Path("data/comparison")


@click.command()
def main() -> None:
    """Compare the cells that params name; what is left of others is deleted first."""
    params = load_params()
    scorers = {name: _asked(params, one) for name, one in params.scorers.items()}
    grid = Grid(
        data=DATA,
        seed=params.seed,
        saes=tuple(params.saes),
        explainers=tuple(params.explainers),
        scorers=scorers,
        force=params.comparison.force,
        imported=params.comparison.imported,
        jacobians=tuple(params.jacobians),
    )
    for removed in remove_unnamed_cells(grid):
        click.echo(f"compare: {removed} is named by params.yaml no more; deleted")
    with work(
        OUT,
        COMPARISON,
        cell="compare",
        params=params.slice("seed", "saes", "explainers", "scorers", "examples.held_out", "jacobians", "comparison"),
        inputs=grid.inputs(),
    ) as making:
        if making:
            for name, table in compare(grid, lambda sae: decoder_rows(params.named("saes", sae), sae, DATA / "saes" / sae)).items():
                making.write_table(name, table)
    with alone(cache_folder("work"), "report"):
        write_metrics(OUT, DATA / "saes", Path("metrics"))
        tables = {name: read_table(OUT, COMPARISON, name) for name in COMPARISON.tables}
        settings = settings_of(params)
        write_report(data=DATA, tables=tables, settings=settings, out=Path("report/index.html"))
        write_site(data=DATA, tables=tables, settings=settings, out=Path("report"), embedded=_embedded(params))
    click.echo(
        f"compare: {len(params.saes)} SAEs, {len(params.explainers)} explainers, {len(params.scorers)} scorers; see report/index.html"
    )


def _embedded(params: Params) -> Callable[[Sequence[str]], Any] | None:
    """The model of the first embedding scorer, which has embedded the explanations already; None where there is none."""
    models = [getattr(config, "model", "") for config in params.scorers.values() if config.kind == "embedding"]
    if not models:
        return None
    cache = cache_folder("embeddings") / "embeddings.sqlite"
    return Embedder(DATA / "models" / models[0], str(device_of(params.run.device)), params.run.embedding_batch, cache).queries


def _asked(params: Params, scorer: ScorerConfig) -> AskedScorer:
    held_out = params.examples.held_out
    return AskedScorer(
        kind=scorer.kind,
        contrast=scorer.contrast,
        max_latents=scorer.max_latents,
        reads_explanations=scorer.reads_explanations,
        class_ratio=scorer.class_ratio(held_out.n_activating, held_out.n_contrast),
        is_adaptive=scorer.is_adaptive,
        question=_question(scorer),
    )


def _question(scorer: ScorerConfig) -> str | None:
    settings = scorer.model_dump(mode="json", exclude={"client", "max_latents", "max_examples", "null_latents"})
    return digest_of(settings) if hasattr(scorer, "client") else None


if __name__ == "__main__":
    run_stage(main)
