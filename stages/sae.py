"""Stage `sae@S`: one SAE, trained here or copied from a folder, and measured on contexts kept from training."""

from pathlib import Path

import click
import numpy as np

from latentry.activations.activation_store import ActivationStore
from latentry.contracts import SAE
from latentry.corpora.token_set import TokenSet
from latentry.params import load_params
from latentry.registry import variant
from latentry.runtime import device_of, run_stage, use_threads
from latentry.saes.evaluation import EVALUATION_FILE, cross_entropy, evaluation_record, held_out_contexts, reconstruction
from latentry.store import manifest_digest, work
from latentry.subjects.causal_lm import hookpoints_of, load_subject


@click.command()
@click.option("--sae", "name", required=True, help="Name under `saes`.")
def main(name: str) -> None:
    """Make one SAE and evaluate it; what it is worth is not judged here."""
    params = load_params()
    use_threads(params.run.threads)
    config = params.named("saes", name)
    model, tokens, activations = Path("data/models", params.subject.model), Path("data/tokens"), Path("data/activations", config.hookpoint)
    declared = params.slice("seed", f"saes.{name}", "evaluation", "subject")
    with work(Path("data/saes", name), SAE, cell=f"sae@{name}", params=declared, inputs=[model, tokens, activations]) as making:
        if not making:
            return
        device = device_of(params.run.device)
        room = variant("saes", config.kind)
        store = ActivationStore(activations)
        held_out = held_out_contexts(store.n_contexts, params.evaluation.contexts / store.n_contexts, params.seed)
        metadata = {"model_name": params.subject.model, "subject_digest": manifest_digest(model), "hook_name": store.module}
        metadata |= {"hf_hook_name": store.module, "hook_side": store.side, "context_size": store.context, "prepend_bos": False}
        n_trained = room.make(
            config, store, np.flatnonzero(~held_out), seed=params.seed, folder=making.folder, metadata=metadata, device=str(device)
        )
        sae = room.build(config, name, making.folder, str(device))
        evaluation = np.flatnonzero(held_out)
        measured = reconstruction(sae, store, evaluation)
        token_set, some = TokenSet(tokens), evaluation[: params.evaluation.ce_contexts]
        subject = load_subject(model, hookpoints_of(params.subject.hookpoints), dtype=params.subject.dtype, device=device)
        ce = cross_entropy(sae, subject, token_set.tokens[some], token_set.special[some], store.kept[some])
        record = evaluation_record(sae, measured, ce, subject=params.subject.model, n_training_tokens=n_trained)
        making.write_json(EVALUATION_FILE, record)
        making.counts.update(n_training_tokens=n_trained, n_evaluation_tokens=measured.n_tokens)
        click.echo(
            f"sae@{name}: L0 {measured.l0:.1f}, FVU {measured.fvu:.3f}, CE recovered {ce.recovered:.3f}, dead {measured.dead_fraction:.1%}"
        )


if __name__ == "__main__":
    run_stage(main)
