"""Stage `jacobian@J`: what each latent of an MLP's input does to each of its output, over tokens that no SAE was trained on."""

import json
from pathlib import Path
from typing import Any

import click

from latentry.activations.opened import open_activations
from latentry.contracts import JACOBIAN, SAE
from latentry.edges.between import between, check_mlp, pair_of
from latentry.edges.figures import as_json, figures, sums_by_context
from latentry.edges.run import JacobianJob, checked_fvu, chosen_contexts, drop_parts, join_parts, read_parts
from latentry.params import Params, load_params
from latentry.randomness import rng_for
from latentry.registry import variant
from latentry.runtime import device_of, run_stage, use_threads
from latentry.saes.base import Sae
from latentry.saes.evaluation import EVALUATION_FILE, held_out_contexts
from latentry.store import read_manifest, work
from latentry.subjects.causal_lm import hookpoints_of
from latentry.subjects.mlp import load_mlp


@click.command()
@click.option("--jacobian", "name", required=True, help="Name under `jacobians`.")
def main(name: str) -> None:
    """Read the Jacobian of one MLP between two SAEs, and describe it."""
    params = load_params()
    run, asked = params.run, params.named("jacobians", name)
    use_threads(run.threads)
    device, saes = device_of(run.device), (asked.input, asked.output)
    points = [params.named("saes", sae).hookpoint for sae in saes]
    model, tokens = Path("data/models", params.subject.model), Path("data/tokens")
    folders, activations = [Path("data/saes", sae) for sae in saes], [Path("data/activations", point) for point in points]
    declared = params.slice("seed", f"jacobians.{name}", *(f"saes.{sae}" for sae in saes), "evaluation", "subject")
    how = {"batch_contexts": run.batch_contexts, "block_latents": run.block_latents}
    inputs = [model, tokens, *dict.fromkeys(activations), *dict.fromkeys(folders)]
    with work(Path("data/jacobians", name), JACOBIAN, cell=f"jacobian@{name}", params=declared, inputs=inputs, how=how) as making:
        if not making:
            return
        (written,) = hookpoints_of(params.subject.hookpoints, points[1:])
        mlp = load_mlp(model, written, dtype=params.subject.dtype, device=device)
        both = between(_sae(params, asked.input, str(device)), _sae(params, asked.output, str(device)), mlp)
        read = open_activations(
            activations[0],
            tokens=tokens,
            model=model,
            dtype=params.subject.dtype,
            device=device,
            batch_contexts=run.batch_contexts,
            written=activations[1],
        )
        evaluations = [json.loads((folder / EVALUATION_FILE).read_text(encoding="utf-8")) for folder in folders]
        held_out = held_out_contexts(read.n_contexts, params.evaluation.contexts / read.n_contexts, params.seed)
        job = JacobianJob(
            making=making,
            name=name,
            between=both,
            read=read,
            contexts=chosen_contexts(held_out, read.kept, asked.tokens, params.seed, f"jacobians.{name}.tokens"),
            pairs_per_token=evaluations[0]["l0"] * evaluations[1]["l0"],
            context=read.context,
            block=run.block_latents,
        )
        fvu = checked_fvu(job)
        check_mlp(fvu, name, *points)
        read_parts(job)
        n_edges, rows = join_parts(job)
        found = figures(sums_by_context(rows), rng_for(params.seed, f"jacobian {name}"))
        making.write_json(
            "metrics.json",
            {
                "input": _side(asked.input, evaluations[0]),
                "output": _side(asked.output, evaluations[1]),
                "module": written.module,
                "redrawn": read.random is not None,
                "pair": pair_of(both.input, both.output),
                "mlp_fvu": fvu,
                "n_tokens": sum(row["n_tokens"] for row in rows),
                "n_contexts": len(rows),
                "n_edges": n_edges,
                "figures": as_json(found),
            },
        )
        drop_parts(job)
        making.counts.update(n_tokens=sum(row["n_tokens"] for row in rows), n_edges=n_edges)
        if pair_of(both.input, both.output) == "two trainings":
            click.echo(f"jacobian@{name}: {asked.input} and {asked.output} are halves of two trainings, not one pair", err=True)
        click.echo(f"jacobian@{name}: mean |J| {found['mean_abs'].value}, {n_edges:,} edges from {making.counts['n_tokens']:,} tokens")


def _sae(params: Params, name: str, device: str) -> Sae:
    config, folder = params.named("saes", name), Path("data/saes", name)
    read_manifest(folder, SAE)
    return variant("saes", config.kind).build(config, name, folder, device)


def _side(name: str, evaluation: dict[str, Any]) -> dict[str, Any]:
    return {"sae": name, **{key: evaluation[key] for key in ("loss", "width", "l0", "fvu", "dead_fraction")}}


if __name__ == "__main__":
    run_stage(main)
