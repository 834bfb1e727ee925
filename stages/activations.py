"""Stage `activations`: the subject run once over the tokens, its activations at every hookpoint kept, or only which of them count.

A hookpoint in the subject with redrawn weights is read in a pass of its own.
"""

import os
from contextlib import ExitStack
from pathlib import Path

import click

from latentry.activations.cache import Caching, finish
from latentry.contracts import ACTIVATIONS
from latentry.corpora.token_set import TokenSet
from latentry.engines.run import run_job
from latentry.params import load_params
from latentry.runtime import run_stage, use_threads
from latentry.store import work
from latentry.subjects.causal_lm import hookpoints_of


@click.command()
def main() -> None:
    """Run the subject to its deepest hookpoint over every context."""
    params = load_params()
    run, wanted = params.run, params.activations
    threads = run.threads or os.cpu_count() or 1
    use_threads(threads)
    model, tokens = Path("data/models", params.subject.model), Path("data/tokens")
    hookpoints = hookpoints_of(params.subject.hookpoints)
    outs = {point.name: Path("data/activations", point.name) for point in hookpoints}
    declared = params.slice("subject", "activations")
    how = {"shard_contexts": run.shard_contexts, "batch_contexts": run.batch_contexts}
    with ExitStack() as stack:
        opened = {
            name: stack.enter_context(work(out, ACTIVATIONS, cell=f"activations@{name}", params=declared, inputs=[model, tokens], how=how))
            for name, out in outs.items()
        }
        making = {name: folder for name, folder in opened.items() if folder}
        if not making:
            return
        token_set = TokenSet(tokens)
        job = Caching(
            making=making,
            hookpoints=tuple(hookpoints),
            model=model.absolute(),
            tokens=tokens.absolute(),
            n_contexts=token_set.n_contexts,
            context=token_set.context,
            subject_dtype=params.subject.dtype,
            dtype=wanted.dtype,
            store=wanted.store,
            non_finite=wanted.non_finite,
            device=run.device,
            threads=threads,
            **how,
        )
        for one in job.passes():
            run_job(one, engine=run.engine, workers=run.workers, address=run.ray_address)
        finish(job, [out for name, out in outs.items() if name not in making], token_set.special, wanted.max_norm_multiple)
        counts = next(iter(making.values())).counts
        click.echo(
            f"activations: {counts['n_kept']:,} of {counts['n_positions']:,} positions kept, {counts['n_attention_sinks']:,} attention"
            f" sinks and {counts['n_dropped_contexts']:,} contexts left out"
        )


if __name__ == "__main__":
    run_stage(main)
