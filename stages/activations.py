"""Stage `activations`: the subject run once over the tokens, its activations at every hookpoint kept."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import click
import numpy as np

from latentry.activations.cache import cache_activations, kept_positions, norms_in, width_in
from latentry.contracts import ACTIVATIONS
from latentry.corpora.token_set import TokenSet
from latentry.params import load_params
from latentry.runtime import device_of, run_stage, use_threads
from latentry.store import Work, work
from latentry.subjects.causal_lm import Hookpoint, hookpoints_of, load_subject


@click.command()
def main() -> None:
    """Run the subject to its deepest hookpoint over every context."""
    params = load_params()
    use_threads(params.run.threads)
    model, tokens = Path("data/models", params.subject.model), Path("data/tokens")
    hookpoints = hookpoints_of(params.subject.hookpoints)
    declared = params.slice("subject", "activations")
    how = {"shard_contexts": params.run.shard_contexts, "batch_contexts": params.run.batch_contexts}
    with ExitStack() as stack:
        opened = {
            point.name: stack.enter_context(
                work(_out(point), ACTIVATIONS, cell=f"activations@{point.name}", params=declared, inputs=[model, tokens], how=how)
            )
            for point in hookpoints
        }
        making = {name: folder for name, folder in opened.items() if folder}
        if not making:
            return
        token_set = TokenSet(tokens)
        subject = load_subject(model, hookpoints, dtype=params.subject.dtype, device=device_of(params.run.device))
        cache_activations(subject, token_set, making, dtype=params.activations.dtype, **how)
        norms = {point.name: norms_in(_folder(point, making), token_set.tokens.shape) for point in hookpoints}
        kept, medians = kept_positions(norms, token_set.special, params.activations.max_norm_multiple)
        n_sinks = int((~kept & ~token_set.special).sum())
        for point in hookpoints:
            if point.name not in making:
                continue
            folder = making[point.name]
            folder.write_arrays("positions.safetensors", {"kept": kept.astype(np.uint8), "norm": norms[point.name]})
            described = {"hookpoint": point.name, "module": point.module, "side": point.side, "dtype": params.activations.dtype}
            described |= {"subject": params.subject.model, "d_in": width_in(folder.folder), "attention": subject.attention_implementation}
            folder.write_json("hookpoint.json", described | {"median_norm": medians[point.name], "n_attention_sinks": n_sinks})
            folder.counts.update(
                n_positions=kept.size, n_kept=int(kept.sum()), n_attention_sinks=n_sinks, shard_contexts=params.run.shard_contexts
            )
        click.echo(f"activations: {int(kept.sum()):,} of {kept.size:,} positions kept, {n_sinks:,} attention sinks left out")


def _out(point: Hookpoint) -> Path:
    return Path("data/activations", point.name)


def _folder(point: Hookpoint, making: Mapping[str, Work]) -> Path:
    return making[point.name].folder if point.name in making else _out(point)


if __name__ == "__main__":
    run_stage(main)
