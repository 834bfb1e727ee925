"""Stage `examples@S`: which latents are looked at, and their windows in two splits that share nothing."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from latentry.activations.positions import HOOKPOINT_FILE, kept_in
from latentry.contracts import ACTIVATIONS, EXAMPLES, LATENTS
from latentry.corpora.token_set import TokenSet
from latentry.corpora.tokenise import load_tokenizer, vocabulary_digest
from latentry.embeddings import Embedder
from latentry.latents.latent_store import LatentStore
from latentry.params import Params, load_params
from latentry.records import Status, SteeringPrompt
from latentry.runtime import device_of, run_stage, use_threads
from latentry.sampling.choose import Corpus, choose_examples
from latentry.sampling.folders import decoder_rows, is_signed, verify_same_tokens
from latentry.sampling.steering_prompts import PromptDrawer, shortfall
from latentry.store import cache_folder, read_manifest, read_table, work


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
        token_set = TokenSet(tokens)
        corpus = Corpus(
            token_set=token_set,
            kept=kept_in(activations).astype(np.uint8),
            store=LatentStore.of(latents),
            signed=is_signed(latents),
            statistics=read_table(latents, LATENTS, "statistics.parquet", ["latent", "firing_count", "firing_frequency", "peak"]),
            decoder=lambda: decoder_rows(params.named("saes", name), name, Path("data/saes", name)),
            embedded=lambda model, texts: _embedder(params, model).documents(texts),
        )
        with making.open_table("examples.parquet") as write:
            chosen = choose_examples(params.seed, params.examples, corpus, write, params.run.processes)
        prompts = steering_prompts(params, corpus, beginning_of(token_set), chosen.rows)
        making.write_table("prompts.parquet", prompts)
        making.write_json("subject.json", subject_facts(token_set, activations))
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


def steering_prompts(params: Params, corpus: Corpus, beginning: Sequence[int], rows: Sequence[dict[str, Any]]) -> list[SteeringPrompt]:
    """The prompts of every latent that is OK; what is missing is added to the shortfall in its row."""
    steering = params.examples.steering
    if steering is None:
        return []
    drawer = PromptDrawer(params.seed, steering, corpus.token_set, corpus.kept, corpus.store, tuple(beginning))
    prompts = []
    for row in (row for row in rows if row["status"] == Status.OK.value):
        drawn = drawer.prompts(row["latent"])
        row["shortfall"] = "; ".join(filter(None, [row["shortfall"], shortfall(drawn, steering)]))
        prompts += drawn
    return prompts


def beginning_of(token_set: TokenSet) -> list[int]:
    """The ids that stand before the text in every row: BOS, or none."""
    return [int(token_set.rows(0, 1)[0, 0])] if token_set.begins_with_bos else []


def subject_facts(token_set: TokenSet, activations: Path) -> dict[str, Any]:
    """How the subject read the corpus, for scorers that run it on other texts."""
    hookpoint = json.loads((activations / HOOKPOINT_FILE).read_text(encoding="utf-8"))
    return {
        "beginning": beginning_of(token_set),
        "special": np.unique(token_set.tokens[token_set.special]).tolist(),
        "vocabulary": vocabulary_digest(load_tokenizer(token_set.folder / "tokenizer")),
        "median_norm": hookpoint["median_norm"],
        "max_norm_multiple": read_manifest(activations, ACTIVATIONS).params["activations"]["max_norm_multiple"],
    }


def promoted_of(latents: Path, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The promoted tokens of the latents looked at, for explainers, which do not read `data/latents`."""
    table = read_table(latents, LATENTS, "statistics.parquet", ["latent", "promoted_tokens", "suppressed_tokens"])
    return table.filter(pc.field("latent").isin([row["latent"] for row in rows]))


if __name__ == "__main__":
    run_stage(main)
