"""Stage `sae@S`: one SAE, trained here or copied from a folder, and measured on contexts kept from training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from latentry.activations.opened import labelled, open_activations
from latentry.contracts import SAE
from latentry.corpora.token_set import TokenSet
from latentry.params import Params, load_params
from latentry.registry import variant
from latentry.runtime import device_of, memory_for, run_stage, use_threads
from latentry.saes.base import PairInputs
from latentry.saes.evaluation import EVALUATION_FILE, cross_entropy, evaluation_record, held_out_contexts, reconstruction
from latentry.saes.pinned import of_entry
from latentry.store import digest_of, manifest_digest, work
from latentry.subjects.causal_lm import hookpoints_of, load_subject
from latentry.subjects.mlp import load_mlp
from latentry.subjects.redrawn import subject_digest


@click.command()
@click.option("--sae", "name", required=True, help="Name under `saes`.")
def main(name: str) -> None:
    """Make one SAE and evaluate it; what it is worth is not judged here."""
    params = load_params()
    run, settings = params.run, params.evaluation
    use_threads(run.threads)
    config, device = params.named("saes", name), device_of(run.device)
    model, tokens = Path("data/models", params.subject.model), Path("data/tokens")
    activations, written = folder_of(config.hookpoint), folder_of(config.writes) if config.writes else None
    declared = params.slice("seed", f"saes.{name}", "evaluation", "subject")
    room = variant("saes", config.kind)
    with of_entry(name, config):
        room.check_folder(config)
    how = {"batch_contexts": run.batch_contexts, "origin": room.origin_digest(config)}
    besides = [folder_of(point) for point in config.pair or () if point != config.hookpoint]
    inputs = [model, tokens, activations, *([written] if written else []), *besides]
    with work(Path("data/saes", name), SAE, cell=f"sae@{name}", params=declared, inputs=inputs, how=how) as making:
        if not making:
            return
        token_set = TokenSet(tokens)
        subject_in: dict[str, Any] = {"tokens": tokens, "model": model, "dtype": params.subject.dtype, "device": device}
        more = {"pair": pair_inputs(params, config.pair, subject_in)} if config.pair else {}
        read = open_activations(activations, **subject_in, batch_contexts=run.batch_contexts, written=written)
        held_out = held_out_contexts(read.n_contexts, settings.contexts / read.n_contexts, params.seed)
        metadata = {"model_name": params.subject.model, "subject_digest": subject_digest(model, read.random), "hook_name": read.module}
        metadata |= {"hf_hook_name": read.module, "hook_side": read.side, "context_size": read.context}
        if config.writes:
            point = params.subject.hookpoints[config.writes]
            metadata |= {"hook_name_out": point.module, "hf_hook_name_out": point.module, "hook_side_out": point.side}
        with memory_for(f"saes.{name}.width", f"saes.{name}.train.batch"):
            n_trained = room.make(
                config,
                read,
                np.flatnonzero(~held_out),
                seed=params.seed,
                folder=making.folder,
                metadata=metadata | {"prepend_bos": token_set.begins_with_bos},
                checkpoint_tokens=run.shard_contexts * read.context,
                device=str(device),
                **more,
            )
        more.clear()
        with of_entry(name, config, making.folder), memory_for(f"saes.{name}.width"):
            sae = labelled(room.build(config, name, making.folder, str(device)), read)
        evaluation, encoded = np.flatnonzero(held_out), {"block": run.block_latents, "batch_tokens": run.batch_tokens}
        measured = reconstruction(sae, read, evaluation, **encoded)
        some = evaluation[: settings.ce_contexts]
        rows, kept = np.concatenate([token_set.rows(context, context + 1) for context in some.tolist()]), read.kept[some]
        del read  # it may hold the subject, which is about to be loaded whole
        points = hookpoints_of(params.subject.hookpoints, {sae.hookpoint, sae.writes})
        subject = load_subject(model, points, dtype=params.subject.dtype, device=device)
        ce = cross_entropy(sae, subject, rows, token_set.special[some], kept, batch_contexts=run.batch_contexts, **encoded)
        record = evaluation_record(sae, measured, ce, subject=params.subject.model, n_training_tokens=n_trained)
        making.write_json(EVALUATION_FILE, record)
        making.counts.update(n_training_tokens=n_trained, n_evaluation_tokens=measured.n_tokens)
        recovered = "nothing to recover" if ce.recovered is None else f"recovered {ce.recovered:.3f}"
        click.echo(f"sae@{name}: L0 {measured.l0:.1f}, FVU {measured.fvu:.3f}, CE {recovered}, dead {measured.dead_fraction:.1%}")


def folder_of(hookpoint: str) -> Path:
    """Where its activations are."""
    return Path("data/activations", hookpoint)


def pair_inputs(params: Params, hookpoints: tuple[str, str], subject_in: Mapping[str, Any]) -> PairInputs:
    """The activations on both sides of an MLP, and its weights."""
    read, written = map(folder_of, hookpoints)
    batch_contexts = params.run.batch_contexts
    output = hookpoints_of(params.subject.hookpoints, {hookpoints[1]})[0]
    follows_from = [manifest_digest(folder) for folder in (subject_in["tokens"], subject_in["model"], read, written)]
    return PairInputs(
        activations=open_activations(read, **subject_in, batch_contexts=batch_contexts, written=written),
        mlp=load_mlp(subject_in["model"], output, dtype=params.subject.dtype, device=subject_in["device"]),
        module=output.module,
        digest=digest_of([*follows_from, batch_contexts]),
    )


if __name__ == "__main__":
    run_stage(main)
