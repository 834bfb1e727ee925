"""Stage `examples@S`: which latents are looked at, and their windows in two splits that share nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from latentry.activations.positions import kept_in
from latentry.contracts import ACTIVATIONS, EXAMPLES, LATENTS
from latentry.corpora.token_set import TokenSet
from latentry.embeddings import Embedder
from latentry.latents.latent_store import LatentStore
from latentry.params import Params, load_params
from latentry.runtime import device_of, run_stage, use_threads
from latentry.sampling.choose import Corpus, choose_examples
from latentry.sampling.folders import decoder_rows, is_signed, verify_same_tokens
from latentry.store import cache_folder, read_table, work


@click.command()
@click.option("--sae", "name", required=True, help="Name under `saes`.")
def main(name: str) -> None:
    """Choose latents and draw their examples and contrasts."""
    params = load_params()
    tokens, latents = Path("data/tokens"), Path("data/latents", name)
    activations = Path("data/activations", params.named("saes", name).hookpoint)
    contrasts = params.examples.contrasts.values()
    models = [Path("data/models", model) for model in params.local_models(*contrasts)]
    saes = [Path("data/saes", name)] if any(config.reads_decoder for config in contrasts) else []
    verify_same_tokens(activations, ACTIVATIONS, tokens)
    verify_same_tokens(latents, LATENTS, tokens)
    with work(
        Path("data/examples", name),
        EXAMPLES,
        cell=f"examples@{name}",
        params=params.slice("seed", "examples"),
        inputs=[tokens, activations, latents, *saes, *models],
    ) as making:
        if not making:
            return
        corpus = Corpus(
            token_set=TokenSet(tokens),
            kept=kept_in(activations).astype(np.uint8),
            store=LatentStore.of(latents),
            signed=is_signed(latents),
            statistics=read_table(latents, LATENTS, "statistics.parquet", ["latent", "firing_count", "firing_frequency", "peak"]),
            decoder=lambda: decoder_rows(params.named("saes", name), name, Path("data/saes", name)),
            embedded=lambda model, texts: _embedder(params, model).documents(texts),
        )
        with making.open_table("examples.parquet") as write:
            chosen = choose_examples(params.seed, params.examples, corpus, write, params.run.processes)
        making.write_table("latents.parquet", chosen.rows)
        making.write_table("promoted.parquet", promoted_of(latents, chosen.rows))
        making.counts.update(
            n_latents=len(chosen.rows),
            n_ok=chosen.n_ok,
            n_examples=chosen.n_examples,
            n_windows=chosen.n_windows,
            n_dropped_tokens=chosen.n_dropped_tokens,
        )
        looked_at = f"{chosen.n_ok} latents of {len(chosen.rows)} looked at"
        click.echo(f"examples@{name}: {looked_at}, {chosen.n_examples:,} examples from {chosen.n_windows:,} windows")
        if params.examples.n_latents is not None and chosen.n_ok < params.examples.n_latents:
            click.echo(f"examples@{name}: {params.examples.n_latents} latents were wanted; no more have enough examples", err=True)


def _embedder(params: Params, model: str) -> Embedder:
    use_threads(params.run.threads)
    device = str(device_of(params.run.device))
    return Embedder(Path("data/models", model), device, params.run.embedding_batch, cache_folder("embeddings") / "embeddings.sqlite")


def promoted_of(latents: Path, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The promoted tokens of the latents looked at, for explainers, which do not read `data/latents`."""
    table = read_table(latents, LATENTS, "statistics.parquet", ["latent", "promoted_tokens", "suppressed_tokens"])
    return table.filter(pc.field("latent").isin([row["latent"] for row in rows]))


if __name__ == "__main__":
    run_stage(main)
