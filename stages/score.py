"""Stage `score@S-C`: one scorer's judgments on one SAE's explanations, and the scores made of them."""

from pathlib import Path

import click

from latentry.clients.pool import ClientPool, open_pool
from latentry.contracts import EXAMPLES, EXPLANATIONS, SCORES
from latentry.embeddings import Embedder
from latentry.failures import check_failures
from latentry.params import Params, load_params
from latentry.records import Explanation, Split
from latentry.registry import variant
from latentry.runtime import device_of, run_stage, use_threads
from latentry.sampling.disjoint import read_examples
from latentry.scorers.base import Scorer, items_for, suppliers
from latentry.scorers.score import ranked_latents, score_rows
from latentry.store import cache_folder, read_records, read_table, work


@click.command()
@click.option("--sae", "name", required=True, help="Whose explanations are judged.")
@click.option("--scorer", required=True, help="Which entry of `scorers` judges them.")
def main(name: str, scorer: str) -> None:
    """Judge every explanation of one SAE's latents with one scorer."""
    params = load_params()
    use_threads(params.run.threads)
    params.named("saes", name)
    config = params.named("scorers", scorer)
    models = [Path("data/models", model) for model in params.local_models(config)]
    examples, explanations = Path("data/examples", name), Path("data/explanations", name)
    declared = params.slice("seed", f"scorers.{scorer}", "clients", "max_failed_fraction")
    cell = f"score@{name}-{scorer}"
    with work(Path("data/scores", name, scorer), SCORES, cell=cell, params=declared, inputs=[examples, explanations, *models]) as making:
        if not making:
            return
        pool = open_pool(params.clients, params.run_of, params.run.budget, str(device_of(params.run.device)))
        built = _scorer(params, scorer, pool, cell)
        ranked = ranked_latents(read_table(examples, EXAMPLES, "latents.parquet"), getattr(config, "max_latents", None))
        asked = [one for one in read_records(explanations, EXPLANATIONS, "explanations.parquet", Explanation) if one.latent in ranked]
        held_out = read_examples(examples, Split.HELD_OUT)
        items = items_for(
            asked,
            held_out,
            ranked=ranked,
            seed=params.seed,
            null_latents=getattr(config, "null_latents", None),
            excluded=suppliers(held_out, built.contrast),
        )
        judgments = built.judge(items)
        check_failures([one.status for one in judgments], params.max_failed_fraction, cell)
        making.write_table("judgments.parquet", judgments)
        rows = score_rows(asked, items, judgments, _source(params, built.contrast), params.seed, scorer)
        making.write_table("scores.parquet", rows)
        making.counts.update(n_judgments=len(judgments), n_scores=len(rows), served=pool.served())
        click.echo(f"{cell}: {len(judgments):,} judgments, {len(rows)} scores")


def _scorer(params: Params, scorer: str, pool: ClientPool, label: str) -> Scorer:
    config, device = params.scorers[scorer], str(device_of(params.run.device))

    def embedder(model: str) -> Embedder:
        return Embedder(Path("data/models", model), device, params.run.embedding_batch, cache_folder("embeddings") / "embeddings.sqlite")

    return variant("scorers", config.kind).build(config, params.seed, lambda client: pool.asker(client, label), embedder)


def _source(params: Params, contrast: str) -> str:
    entry = params.examples.contrasts.get(contrast)
    return entry.source(params.examples.contrasts) if entry else contrast.replace("-", "_")


if __name__ == "__main__":
    run_stage(main)
