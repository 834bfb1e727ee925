"""Stage `latents@S`: the gate, then every activation of every latent, and a row of statistics each."""

import json
from pathlib import Path

import click
import numpy as np

from latentry.activations.activation_store import ActivationStore
from latentry.contracts import LATENTS
from latentry.corpora.token_set import TokenSet
from latentry.corpora.tokenise import load_tokenizer
from latentry.latents.encode import encode_latents
from latentry.latents.latent_store import LatentStore
from latentry.latents.promoted import promoted_tokens
from latentry.latents.statistics import statistics_rows
from latentry.params import load_params
from latentry.registry import variant
from latentry.runtime import device_of, run_stage, use_threads
from latentry.saes.evaluation import EVALUATION_FILE, held_out_contexts, reconstruction
from latentry.saes.gate import InUse, gate
from latentry.store import manifest_digest, work
from latentry.subjects.causal_lm import hookpoints_of, load_subject


@click.command()
@click.option("--sae", "name", required=True, help="Name under `saes`.")
def main(name: str) -> None:
    """Check that the SAE fits, then encode everything and describe every latent."""
    params = load_params()
    use_threads(params.run.threads)
    config = params.named("saes", name)
    model, tokens, activations = Path("data/models", params.subject.model), Path("data/tokens"), Path("data/activations", config.hookpoint)
    folder = Path("data/saes", name)
    declared = params.slice("seed", f"saes.{name}", "evaluation", "gate", "latents", "subject")
    how = {"batch_tokens": params.run.batch_tokens}
    with work(
        Path("data/latents", name), LATENTS, cell=f"latents@{name}", params=declared, inputs=[model, tokens, activations, folder], how=how
    ) as making:
        if not making:
            return
        device = device_of(params.run.device)
        sae = variant("saes", config.kind).build(config, name, folder, str(device))
        store, recorded = ActivationStore(activations), json.loads((folder / EVALUATION_FILE).read_text(encoding="utf-8"))
        held_out = np.flatnonzero(held_out_contexts(store.n_contexts, params.evaluation.contexts / store.n_contexts, params.seed))
        in_use = InUse(subject=(params.subject.model,), subject_digest=manifest_digest(model), module=store.module, side=store.side)
        making.write_json(
            "gate.json", gate(sae, reconstruction(sae, store, held_out), in_use, max_fvu=params.gate.max_fvu, recorded=recorded)
        )
        n_activations = encode_latents(sae, store, making, dtype=params.latents.dtype, batch_tokens=params.run.batch_tokens)
        token_set, tokenizer = TokenSet(tokens), load_tokenizer(model)
        subject = load_subject(model, hookpoints_of(params.subject.hookpoints), dtype=params.subject.dtype, device=device)
        names = np.array([tokenizer.decode([token]) for token in range(subject.vocabulary)], dtype=object)
        n_top, n_kept = params.latents.n_top_tokens, int(store.kept.sum())
        rows = statistics_rows(LatentStore(making.folder), token_set, n_kept, names, promoted_tokens(subject, sae, n_top), n_top)
        making.write_table("statistics.parquet", rows)
        making.counts.update(width=sae.width, n_activations=n_activations, n_kept=n_kept)
        click.echo(f"latents@{name}: {n_activations:,} activations of {sae.width:,} latents, L0 {n_activations / n_kept:.1f}")


if __name__ == "__main__":
    run_stage(main)
