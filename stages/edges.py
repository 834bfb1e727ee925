"""Stage `edges@J`: the edges of one Jacobian beside the explanations of the latents at their ends, and how well these predict."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from latentry.contracts import EDGES, EXAMPLES, EXPLANATIONS, JACOBIAN
from latentry.edges.explained import ExplainedLatent, explained_latents, explained_rows, texts_of
from latentry.edges.score import AskedLatent, EdgeScoring, summaries
from latentry.embeddings import Embedder
from latentry.params import Params, load_params
from latentry.records import Explanation, Split, Status
from latentry.runtime import device_of, run_stage, use_threads
from latentry.sampling.disjoint import read_examples
from latentry.scorers.base import suppliers
from latentry.store import cache_folder, read_records, read_table, work


@click.command()
@click.option("--jacobian", "name", required=True, help="Name under `jacobians`.")
def main(name: str) -> None:
    """Explain the edges of one Jacobian, and score what is said of them."""
    params = load_params()
    use_threads(params.run.threads)
    asked = params.named("jacobians", name)
    scorer = params.named("scorers", asked.scorer)
    read, written = (Path("data/explanations", sae) for sae in (asked.input, asked.output))
    jacobian, examples, model = Path("data/jacobians", name), Path("data/examples", asked.output), Path("data/models", scorer.model)
    declared = params.slice("seed", f"jacobians.{name}", f"scorers.{asked.scorer}")
    inputs = [jacobian, examples, model, *dict.fromkeys([read, written])]
    with work(Path("data/edges", name), EDGES, cell=f"edges@{name}", params=declared, inputs=inputs) as making:
        if not making:
            return
        edges, held_out = read_table(jacobian, JACOBIAN, "edges.parquet"), read_examples(examples, Split.HELD_OUT)
        texts, own = (texts_of(read_records(folder, EXPLANATIONS, "explanations.parquet", Explanation)) for folder in (read, written))
        chosen = sorted(read_table(examples, EXAMPLES, "latents.parquet").to_pylist(), key=lambda row: row["rank"])[: scorer.max_latents]
        explained, rows, metrics = [], [], {}
        for explainer in texts:
            found = list(explained_latents(edges, [row["latent"] for row in chosen], texts[explainer], asked.inputs))
            explained += explained_rows(explainer, own.get(explainer, {}), found)
            scoring = EdgeScoring(
                seed=params.seed,
                purpose=f"{name} {explainer}",
                contrast=scorer.contrast,
                max_examples=scorer.max_examples,
                null_latents=scorer.null_latents,
                embedder=_embedder(params, model),
            )
            asked_for = list(_asked(chosen, found, own.get(explainer, {}), held_out))
            scores = scoring.rows(asked_for, suppliers(held_out, scorer.contrast))
            metrics[explainer] = summaries(scores, params.seed, f"{name} {explainer}")
            rows += [{"explainer": explainer, **row} for row in scores]
        making.write_table("explained.parquet", explained)
        making.write_table("scores.parquet", rows)
        making.write_json("metrics.json", metrics)
        making.counts.update(n_explained=len(explained), n_scores=len(rows))
        for explainer, one in metrics.items():
            click.echo(f"edges@{name} {explainer}: {one['score']['n']} of {one['n_asked']} latents scored, AUROC {one['score']['mean']}")


def _asked(
    chosen: list[dict[str, Any]], found: list[ExplainedLatent], own: Mapping[int, str], held_out: Mapping[int, Any]
) -> Iterator[AskedLatent]:
    for row, edges in zip(chosen, found, strict=True):
        yield AskedLatent(
            latent=row["latent"],
            status=Status(row["status"]),
            detail=row["detail"] or "",
            inclusion_probability=row["inclusion_probability"],
            edges=edges,
            own=own.get(row["latent"]),
            examples=held_out.get(row["latent"], ()),
        )


def _embedder(params: Params, model: Path) -> Embedder:
    device = str(device_of(params.run.device))
    return Embedder(model, device, params.run.embedding_batch, cache_folder("embeddings") / "embeddings.sqlite")


if __name__ == "__main__":
    run_stage(main)
