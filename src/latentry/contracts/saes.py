"""What comes of a SAE: its weights, and every activation of its latents."""

import pyarrow as pa

from latentry.contracts.base import F32S, STRINGS, Contract, schema

SAE = Contract(
    name="sae",
    version=2,
    stage="sae",
    holds="One SAE in the files of its own format, and how well it reconstructs.",
    others={
        "cfg.json": "SAELens configuration (other formats: their own files)",
        "sae_weights.safetensors": "W_enc [d_in, width], W_dec [width, d_out], b_enc, b_dec, threshold, W_skip [d_out, d_in] (SAELens)",
        "source.json": "format, source (a folder's name, or the hub id and path), revision, digest of the SAE's files, licence, metadata that"
        " its place told (SAEs from elsewhere only)",
        "evaluation.json": "loss label, width, d_in, d_out, signed (latent j + width / 2 is latent j below 0), hookpoint, writes (what it"
        " rebuilds), baseline (its name or null), L0, FVU, CE clean, zero, with the SAE and recovered, dead fraction, token counts",
        "loss.csv": "the training curve: step, tokens, loss, mse, sparsity (all of the loss but mse), l0; of a JSAE"
        " pair also jacobian, the mean |J| that both halves share (training only)",
    },
)

LATENTS = Contract(
    name="latents",
    version=3,
    stage="latents",
    holds="Every activation of every latent, latent after latent, a row of statistics per latent, and the SAE's figures over all tokens.",
    tables={
        "statistics.parquet": schema(
            latent=pa.uint32(),
            firing_count=pa.uint64(),
            firing_frequency=pa.float64(),
            peak=pa.float32(),
            mean=pa.float32(),
            median=pa.float32(),
            quantile_90=pa.float32(),
            quantile_99=pa.float32(),
            dead=pa.bool_(),
            top_tokens=STRINGS,
            top_token_fractions=F32S,
            promoted_tokens=STRINGS,
            suppressed_tokens=STRINGS,
        )
    },
    others={
        "shard-NNNNN.safetensors": "for latents a..b: first u64[1] (= a), offsets i64[b-a+1], position u32[n] (u64 past 2^32), activation f16[n]"
        " or f32[n]; position = context * context length + place in it, ascending within a latent",
        "store.json": "width, signed (latent j + width / 2 is latent j below 0), number of activations and of shards; written when all shards are there",
        "gate.json": "what the gate measured, and the checks that it could not make",
        "quality.json": "over all encoded tokens: n_tokens, L0, dead_fraction, single_token_fraction (of the latents that fire, those with one"
        " token at 90 % or more of their firings), density_histogram (log10_edges, n_latents between them, n_dead); positions left out:"
        " n_special, n_attention_sinks, n_dropped_contexts. FVU and cross-entropy stand in the SAE's evaluation.json",
    },
)
