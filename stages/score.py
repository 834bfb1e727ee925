"""Stage `score@S-C`: one scorer's judgments on one SAE's explanations, and the scores made of them."""

from collections.abc import Sequence
from pathlib import Path

import click

from latentry.clients.pool import ClientPool, open_pool
from latentry.contracts import EXAMPLES, EXPLANATIONS, SCORES
from latentry.embeddings import Embedder
from latentry.failures import check_failures
from latentry.params import Params, load_params
from latentry.records import Explanation, Split
from latentry.registry import ScorerConfig, variant
from latentry.runtime import device_of, run_stage, use_threads
from latentry.sampling.disjoint import read_examples
from latentry.scorers.base import Item, Scorer, ScorerInputs, items_for, suppliers, unexplained_items
from latentry.scorers.score import ranked_latents, score_rows, window_fractions
from latentry.scorers.subject_inputs import SubjectInputs
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
    examples, explanations, cell = Path("data/examples", name), Path("data/explanations", name), f"score@{name}-{scorer}"
    inputs = [examples, explanations, *(Path("data/models", model) for model in params.local_models(config))]
    paths = ["seed", f"scorers.{scorer}", "clients", "max_failed_fraction"]
    if config.runs_subject:
        inputs += [folder for folder in (Path("data/saes", name), Path("data/models", params.subject.model)) if folder not in inputs]
        paths += ["subject", f"saes.{name}"]
    with work(Path("data/scores", name, scorer), SCORES, cell=cell, params=params.slice(*paths), inputs=inputs) as making:
        if not making:
            return
        pool = open_pool(params.clients, params.run_of, params.run.budget, str(device_of(params.run.device)))
        built = variant("scorers", config.kind).build(config, _inputs(params, name, pool, cell))
        latents = read_table(examples, EXAMPLES, "latents.parquet")
        ranked = ranked_latents(latents, config.max_latents)
        asked = [one for one in read_records(explanations, EXPLANATIONS, "explanations.parquet", Explanation) if one.latent in ranked]
        items = _items(params, config, built, ranked, asked, examples)
        judgments = built.judge(items)
        check_failures([one.status for one in judgments], params.max_failed_fraction, cell)
        making.write_table("judgments.parquet", judgments)
        explained = asked if config.reads_explanations else []
        source = _source(params, built.contrast)
        rows = score_rows(built, explained, items, judgments, name=scorer, contrast_source=source, seed=params.seed)
        making.write_table("scores.parquet", rows)
        making.counts.update(n_judgments=len(judgments), n_scores=len(rows), served=pool.served())
        click.echo(f"{cell}: {len(judgments):,} judgments, {len(rows)} scores")


def _items(
    params: Params, config: ScorerConfig, scorer: Scorer, ranked: Sequence[int], asked: Sequence[Explanation], examples: Path
) -> list[Item]:
    held_out, asked_for = read_examples(examples, Split.HELD_OUT), params.examples.held_out
    ratio = config.class_ratio(asked_for.n_activating, asked_for.n_contrast)
    some = {"class_ratio": ratio, "ranked": ranked, "seed": params.seed, "null_latents": config.null_latents if config.has_null else 0}
    if not config.reads_explanations:
        return unexplained_items(held_out, **some)
    fractions = window_fractions(read_table(examples, EXAMPLES, "latents.parquet"))
    return items_for(asked, held_out, **some, excluded=suppliers(held_out, scorer.contrast), window_fractions=fractions)


def _inputs(params: Params, name: str, pool: ClientPool, label: str) -> ScorerInputs:
    device = device_of(params.run.device)

    def embedder(model: str) -> Embedder:
        cache = cache_folder("embeddings") / "embeddings.sqlite"
        return Embedder(Path("data/models", model), str(device), params.run.embedding_batch, cache)

    ran = SubjectInputs(params, name)
    return ScorerInputs(
        seed=params.seed,
        ask=lambda client: pool.asker(client, label),
        embedder=embedder,
        explain_split=lambda: read_examples(Path("data/examples", name), Split.EXPLAIN),
        steered=ran.steered,
        fired=ran.fired,
    )


def _source(params: Params, contrast: str) -> str:
    entry = params.examples.contrasts.get(contrast)
    return entry.source(params.examples.contrasts) if entry else contrast.replace("-", "_")


if __name__ == "__main__":
    run_stage(main)
