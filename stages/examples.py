"""Stage `examples@S`: which latents are looked at, and their windows in two splits that share nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from latentry.activations.activation_store import ActivationStore
from latentry.contracts import EXAMPLES, LATENTS
from latentry.corpora.token_set import TokenSet
from latentry.latents.latent_store import LatentStore
from latentry.params import load_params
from latentry.records import Status
from latentry.runtime import run_stage
from latentry.sampling.choose import choose_examples
from latentry.sampling.grid import grid_of
from latentry.store import read_table, work


@click.command()
@click.option("--sae", "name", required=True, help="Name under `saes`.")
def main(name: str) -> None:
    """Choose latents and draw their examples and contrasts."""
    params = load_params()
    tokens, activations, latents = (
        Path("data/tokens"),
        Path("data/activations", params.named("saes", name).hookpoint),
        Path("data/latents", name),
    )
    declared = params.slice("seed", "examples")
    with work(
        Path("data/examples", name), EXAMPLES, cell=f"examples@{name}", params=declared, inputs=[tokens, activations, latents]
    ) as making:
        if not making:
            return
        token_set, kept = TokenSet(tokens), ActivationStore(activations).kept.astype(np.uint8)
        grid = grid_of(token_set, params.examples.window)
        statistics = read_table(latents, LATENTS, "statistics.parquet", ["latent", "firing_count", "firing_frequency", "peak"])
        rows, table = choose_examples(params.seed, params.examples, token_set, kept, LatentStore.of(latents), statistics, grid)
        making.write_table("latents.parquet", rows)
        making.write_table("examples.parquet", table)
        making.write_table("promoted.parquet", promoted_of(latents, rows))
        n_ok = sum(row["status"] == Status.OK for row in rows)
        making.counts.update(
            n_latents=len(rows), n_ok=n_ok, n_examples=table.num_rows, n_windows=grid.n_windows, n_dropped_tokens=grid.n_dropped_tokens
        )
        click.echo(f"examples@{name}: {n_ok} latents of {len(rows)} looked at, {table.num_rows:,} examples from {grid.n_windows:,} windows")
        if n_ok < params.examples.n_latents:
            click.echo(f"examples@{name}: {params.examples.n_latents} latents were wanted; no more have enough examples", err=True)


def promoted_of(latents: Path, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The promoted tokens of the latents looked at, for explainers, which do not read `data/latents`."""
    table = read_table(latents, LATENTS, "statistics.parquet", ["latent", "promoted_tokens", "suppressed_tokens"])
    return table.filter(pc.field("latent").isin([row["latent"] for row in rows]))


if __name__ == "__main__":
    run_stage(main)
