"""Stage `latents@S`: the gate, then every activation of every latent, a row of statistics each, and what they say of the SAE."""

import json
import os
from pathlib import Path
from typing import Any

import click
import numpy as np

from latentry.activations.activation_store import Recorded
from latentry.activations.opened import labelled
from latentry.contracts import LATENTS
from latentry.corpora.token_set import TokenSet
from latentry.corpora.tokenise import load_tokenizer
from latentry.engines.run import run_job
from latentry.latents.encode import EncodeJob, kept_by_segment
from latentry.latents.latent_store import LatentStore, merge_segments
from latentry.latents.promoted import drop_parts, promoted_tokens
from latentry.latents.quality import QUALITY_FILE, quality
from latentry.latents.statistics import STATISTICS_FILE, statistics, write_statistics
from latentry.params import Params, load_params
from latentry.runtime import device_of, run_stage, use_threads
from latentry.saes.evaluation import EVALUATION_FILE, held_out_contexts, reconstruction
from latentry.saes.gate import InUse, gate
from latentry.saes.hook_names import place_of
from latentry.store import work
from latentry.subjects.causal_lm import hookpoints_of, load_subject
from latentry.subjects.redrawn import subject_digest


@click.command()
@click.option("--sae", "name", required=True, help="Name under `saes`.")
def main(name: str) -> None:
    """Check that the SAE fits, then encode everything and describe every latent."""
    params = load_params()
    run, config = params.run, params.named("saes", name)
    threads = run.threads or os.cpu_count() or 1
    use_threads(threads)
    model, tokens, activations = Path("data/models", params.subject.model), Path("data/tokens"), Path("data/activations", config.hookpoint)
    sae, declared = Path("data/saes", name), params.slice("seed", f"saes.{name}", "evaluation", "gate", "latents", "subject")
    how = {key: getattr(run, key) for key in ("batch_contexts", "batch_tokens", "block_latents", "shard_contexts")}
    written = Path("data/activations", config.writes) if config.writes else None
    inputs = [model, tokens, activations, sae, *([written] if written else [])]
    with work(Path("data/latents", name), LATENTS, cell=f"latents@{name}", params=declared, inputs=inputs, how=how) as making:
        if not making:
            return
        read, recorded = Recorded(activations), json.loads((sae / EVALUATION_FILE).read_text(encoding="utf-8"))
        job = EncodeJob(
            making=making,
            name=name,
            config=config,
            sae=sae.absolute(),
            activations=activations.absolute(),
            tokens=tokens.absolute(),
            model=model.absolute(),
            subject_dtype=params.subject.dtype,
            sizes=kept_by_segment(read.kept, run.shard_contexts),
            dtype=params.latents.dtype,
            device=run.device,
            threads=threads,
            **how,
        )
        if not making.has("gate.json"):
            making.write_json("gate.json", _gated(job, written, params, recorded))
        run_job(job, engine=run.engine, workers=run.workers, address=run.ray_address)
        n_activations = merge_segments(making, job.segments, signed=recorded["signed"])
        if not making.has(STATISTICS_FILE):
            _describe(job, params)
        drop_parts(making)
        measured = quality(making.path(STATISTICS_FILE), read)
        making.write_json(QUALITY_FILE, measured)
        making.counts.update(width=LatentStore(making.folder).width, n_activations=n_activations, n_kept=measured["n_tokens"])
        click.echo(f"latents@{name}: {n_activations:,} activations, L0 {measured['l0']:.1f}, dead {measured['dead_fraction']:.1%}")


def _gated(job: EncodeJob, beside: Path | None, params: Params, recorded: dict[str, Any]) -> dict[str, Any]:
    read = job.load_activations(beside)
    sae = labelled(job.load_sae(), read)
    held_out = np.flatnonzero(held_out_contexts(read.n_contexts, params.evaluation.contexts / read.n_contexts, params.seed))
    measured = reconstruction(sae, read, held_out, block=job.block_latents, batch_tokens=job.batch_tokens)
    written = params.subject.hookpoints[sae.writes]
    in_use = InUse(
        subject=params.known_as(params.subject.model),
        subject_digest=subject_digest(job.model, read.random),
        reads=place_of(read.module, read.side),
        writes=place_of(written.module, written.side),
        begins_with_bos=TokenSet(job.tokens).begins_with_bos,
        context=read.context,
    )
    return gate(sae, measured, in_use, max_fvu=params.gate.max_fvu, recorded=recorded)


def _describe(job: EncodeJob, params: Params) -> None:
    tokenizer, n_top = load_tokenizer(job.model), params.latents.n_top_tokens
    sae = job.load_sae()
    points = hookpoints_of(params.subject.hookpoints, {sae.hookpoint, sae.writes})
    subject = load_subject(job.model, points, dtype=params.subject.dtype, device=device_of(job.device))
    promoted = promoted_tokens(job.making, subject, sae, n_top)
    names = [tokenizer.decode([token]) for token in range(subject.vocabulary)]
    rows = statistics(LatentStore(job.making.folder), TokenSet(job.tokens).tokens, sum(job.sizes), names, promoted, n_top)
    write_statistics(job.making, rows)


if __name__ == "__main__":
    run_stage(main)
