"""Stage `explain@S`: what every explainer says of every latent asked for."""

import dataclasses
from pathlib import Path

import click

from latentry.clients.pool import open_pool
from latentry.contracts import EXAMPLES, EXPLANATIONS
from latentry.explainers.run import explain_all, facts_of, latents_for
from latentry.failures import check_failures
from latentry.params import load_params
from latentry.records import Status
from latentry.registry import variant
from latentry.runtime import device_of, run_stage, use_threads
from latentry.sampling.disjoint import read_examples
from latentry.scorers.subject_inputs import SubjectInputs
from latentry.store import read_table, work


@click.command()
@click.option("--sae", "name", required=True, help="Name under `saes`.")
def main(name: str) -> None:
    """Explain one SAE's latents with every explainer."""
    params = load_params()
    use_threads(params.run.threads)
    params.named("saes", name)
    examples = Path("data/examples", name)
    models = [Path("data/models", model) for model in params.local_models(*params.explainers.values())]
    paths = ["seed", "explainers", "clients", "max_failed_fraction"]
    inputs = [examples, *models]
    if any(config.steers for config in params.explainers.values()):
        inputs += [folder for folder in (Path("data/saes", name), Path("data/models", params.subject.model)) if folder not in inputs]
        paths += ["subject", f"saes.{name}"]
    declared = params.slice(*paths)
    with work(Path("data/explanations", name), EXPLANATIONS, cell=f"explain@{name}", params=declared, inputs=inputs) as making:
        if not making:
            return
        pool = open_pool(params.clients, params.run_of, params.run.budget, str(device_of(params.run.device)))
        facts = facts_of(name, params.saes[name].n_latents, examples)
        sae = dataclasses.replace(facts, steered=SubjectInputs(params, name).steered)
        asked = latents_for(read_table(examples, EXAMPLES, "latents.parquet"), read_examples(examples))
        explanations = []
        for explainer, config in params.explainers.items():
            label = f"explain@{name} {explainer}"
            built = variant("explainers", config.kind).build(
                config, explainer, params.seed, lambda client, label=label: pool.asker(client, label), sae
            )
            explanations += explain_all(built, asked, getattr(config, "max_latents", None))
            check_failures([one.status for one in explanations if one.explainer == explainer], params.max_failed_fraction, label)
        making.write_table("explanations.parquet", explanations)
        n_ok = sum(one.status is Status.OK for one in explanations)
        making.counts.update(n_explanations=len(explanations), n_ok=n_ok, served=pool.served())
        click.echo(f"explain@{name}: {n_ok} explanations of {len(explanations)} latents and explainers")


if __name__ == "__main__":
    run_stage(main)
