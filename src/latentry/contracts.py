"""The contracts between stages: what each folder holds, under which name and version.

Mechanics (manifests, atomic moves, work folders) are `store.py`'s. Changing a schema here raises its version.
`docs/contracts.md` is generated from this file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from latentry.metric_kinds import COLUMNS, JACOBIAN_FIGURES, METRIC_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What one kind of folder holds."""

    name: str
    version: int
    stage: str
    """The stage that writes it, as `dvc repro` knows it."""
    holds: str
    tables: Mapping[str, pa.Schema] = field(default_factory=dict)
    """Parquet files by name."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Other files by name or pattern, and what is in them."""


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in columns.items()])


_strings, _f32s = pa.list_(pa.string()), pa.list_(pa.float32())
_u32s, _i32s = pa.list_(pa.uint32()), pa.list_(pa.int32())

MODEL = Contract(
    name="model",
    version=1,
    stage="models",
    holds="One model as a local folder that transformers or sentence-transformers load without a network.",
    others={"*": "the model's own files: config.json, *.safetensors, the tokenizer's"},
)

TOKENS = Contract(
    name="tokens",
    version=2,
    stage="tokens",
    holds="The corpus as rows of tokens, with the text they came from.",
    tables={"documents.parquet": _schema(document=pa.int32(), name=pa.string(), text=pa.string())},
    others={
        "shard-NNNNN.safetensors": "the rows of `run.shard_contexts` contexts: tokens u32, document i32 (-1 where none), text_start u32 and"
        " text_end u32 (characters in the document's text), special u8: each [context, position]",
        "tokenizer/": "the tokenizer's files",
    },
)

ACTIVATIONS = Contract(
    name="activations",
    version=2,
    stage="activations",
    holds="The subject's activations at one hookpoint, every position of every context in order; or, with `activations.store: false`,"
    " which positions count, and a reader runs the subject itself.",
    others={
        "shard-NNNNN.safetensors": "only where stored: activations [position, d_in] in the stated dtype, norm f32[position] (NaN all over a"
        " context that was dropped, whose activations are 0); the positions of `run.shard_contexts` contexts",
        "positions.safetensors": "kept u8[context, position]: 0 for special tokens, attention sinks, and contexts that were dropped",
        "hookpoint.json": "hookpoint, module, side, d_in, dtype, stored, subject, subject_dtype, attention (implementation), quantisation"
        " (method or null), median_norm, n_special, n_attention_sinks, n_dropped_contexts; random (seed, all) where the subject's matrices"
        " were redrawn",
    },
)

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
        "statistics.parquet": _schema(
            latent=pa.uint32(),
            firing_count=pa.uint64(),
            firing_frequency=pa.float64(),
            peak=pa.float32(),
            mean=pa.float32(),
            median=pa.float32(),
            quantile_90=pa.float32(),
            quantile_99=pa.float32(),
            dead=pa.bool_(),
            top_tokens=_strings,
            top_token_fractions=_f32s,
            promoted_tokens=_strings,
            suppressed_tokens=_strings,
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

EXAMPLES = Contract(
    name="examples",
    version=3,
    stage="examples",
    holds="The latents chosen, their windows in two splits that share no document and no text, and their contrasts.",
    tables={
        "latents.parquet": _schema(
            latent=pa.uint32(),
            rank=pa.uint32(),
            status=pa.string(),
            detail=pa.string(),
            n_windows=pa.uint32(),
            n_distinct_windows=pa.uint32(),
            activating_window_fraction=pa.float64(),
            firing_count=pa.uint64(),
            firing_frequency=pa.float64(),
            peak=pa.float32(),
            stratum=pa.int32(),
            inclusion_probability=pa.float64(),
            shortfall=pa.string(),
        ),
        "examples.parquet": _schema(
            latent=pa.uint32(),
            example_id=pa.string(),
            split=pa.string(),
            kind=pa.string(),
            source=pa.string(),
            contrast=pa.string(),
            supplier=pa.uint32(),
            rank=pa.int32(),
            decile=pa.int8(),
            document=pa.int32(),
            context=pa.uint32(),
            start=pa.uint32(),
            tokens=_u32s,
            activations=_f32s,
            text=pa.string(),
            spans=_i32s,
            marks=_i32s,
        ),
        "promoted.parquet": _schema(latent=pa.uint32(), promoted_tokens=_strings, suppressed_tokens=_strings),
        "prompts.parquet": _schema(
            latent=pa.uint32(),
            example_id=pa.string(),
            purpose=pa.string(),
            quintile=pa.int8(),
            document=pa.int32(),
            context=pa.uint32(),
            start=pa.uint32(),
            tokens=_u32s,
            text=pa.string(),
        ),
    },
    others={
        "subject.json": "how the subject read the corpus, for whoever runs it on other texts: beginning (ids before every text), special (ids"
        " left out, of those that occur), vocabulary (digest of the tokenizer's), median_norm and max_norm_multiple (of attention sinks)"
    },
)

EXPLANATIONS = Contract(
    name="explanations",
    version=1,
    stage="explain",
    holds="What every explainer says of every latent asked for: one row each, with its status.",
    tables={
        "explanations.parquet": _schema(
            latent=pa.uint32(),
            explainer=pa.string(),
            text=pa.string(),
            status=pa.string(),
            detail=pa.string(),
            prompt_digest=pa.string(),
            reply=pa.string(),
            reply_key=pa.string(),
        )
    },
)

_metrics = dict.fromkeys(COLUMNS, pa.float64())
_nulls = {f"null_{name}": pa.float64() for name in METRIC_KINDS}

SCORES = Contract(
    name="scores",
    version=2,
    stage="score",
    holds="One judgment per held-out example (or prompt, trial, text) and explainer, and the scores made of them; the explainer is `none`"
    " where a scorer reads no explanation.",
    tables={
        "judgments.parquet": _schema(
            latent=pa.uint32(),
            explainer=pa.string(),
            example_id=pa.string(),
            null=pa.bool_(),
            is_activating=pa.bool_(),
            says_activating=pa.bool_(),
            confidence=pa.float64(),
            value=pa.float64(),
            levels=_f32s,
            text=pa.string(),
            status=pa.string(),
            detail=pa.string(),
            reply_key=pa.string(),
        ),
        "scores.parquet": _schema(
            latent=pa.uint32(),
            explainer=pa.string(),
            null=pa.bool_(),
            contrast_source=pa.string(),
            status=pa.string(),
            detail=pa.string(),
            **_metrics,
            decile_found=pa.list_(pa.float64()),
            n_activating=pa.uint32(),
            n_contrast=pa.uint32(),
            n_failed=pa.uint32(),
            stopped_early=pa.bool_(),
            partner=pa.uint32(),
        ),
    },
)


JACOBIAN = Contract(
    name="jacobian",
    version=1,
    stage="jacobian",
    holds="What the latents of an MLP's input do to those of its output: one row per pair of latents that were active together, and how sparse"
    " that is. Both SAEs have unit decoder rows.",
    tables={
        "edges.parquet": pa.schema(
            [("out", pa.uint32()), ("in", pa.uint32()), ("mean", pa.float64()), ("mean_abs", pa.float64()), ("count", pa.uint64())]
        ),
        "contexts.parquet": _schema(
            context=pa.uint32(),
            n_tokens=pa.uint32(),
            n_paired_tokens=pa.uint32(),
            n_pairs=pa.uint64(),
            mean_abs_sum=pa.float64(),
            n_above=pa.list_(pa.uint64()),
            power_sums=pa.list_(pa.float64()),
        ),
    },
    others={
        "metrics.json": "input and output (each: sae, width, l0, fvu, dead_fraction of its evaluation.json), module, redrawn, pair (`one training`,"
        " `two trainings`, or null where not both are JSAE halves), mlp_fvu, n_tokens, n_contexts, n_edges, figures (each: value, low, high)"
    },
)

EDGES = Contract(
    name="edges",
    version=1,
    stage="edges",
    holds="What the latents of an MLP's output do, told by the explanations of their strongest inputs, and how well these predict where they fire.",
    tables={
        "explained.parquet": _schema(
            latent=pa.uint32(),
            explainer=pa.string(),
            text=pa.string(),
            n_inputs=pa.uint32(),
            n_explained=pa.uint32(),
            strength_explained=pa.float64(),
            rank=pa.uint32(),
            input=pa.uint32(),
            input_text=pa.string(),
            mean=pa.float64(),
            mean_abs=pa.float64(),
            count=pa.uint64(),
            weight=pa.float64(),
        ),
        "scores.parquet": _schema(
            latent=pa.uint32(),
            explainer=pa.string(),
            null=pa.bool_(),
            status=pa.string(),
            detail=pa.string(),
            auroc=pa.float64(),
            low=pa.float64(),
            high=pa.float64(),
            own_auroc=pa.float64(),
            n_inputs=pa.uint32(),
            n_explained=pa.uint32(),
            strength_explained=pa.float64(),
            n_activating=pa.uint32(),
            n_contrast=pa.uint32(),
            inclusion_probability=pa.float64(),
            partner=pa.uint32(),
        ),
    },
    others={
        "metrics.json": "by explainer: n_asked, statuses, score, null, lift, own (mean, low, high, n of each; own: of the latents' own explanations),"
        " own_lead (own minus score, on the latents that have both)"
    },
)


def _strings_of(*names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, pa.string())


_apart = {name: pa.float64() for name in ("difference", "low", "high", "p_value", "p_adjusted", "smallest_detectable")}

_rates = {f"{side}_positive_rate{end}": pa.float64() for side in ("true", "false") for end in ("", "_low", "_high")}

_sides = {"width": pa.uint32(), "l0": pa.float64(), "fvu": pa.float64()}

COMPARISON = Contract(
    name="comparison",
    version=5,
    stage="compare",
    holds="Every SAE beside every other: one row per latent and scorer, one row per cell and metric, one row per cell and decile of strength,"
    " one row per pair of SAEs or of explainers; the Jacobians of MLPs and what is said of their edges.",
    tables={
        "latents.parquet": _schema(
            sae=pa.string(),
            explainer=pa.string(),
            scorer=pa.string(),
            latent=pa.uint32(),
            explanation=pa.string(),
            explanation_status=pa.string(),
            firing_frequency=pa.float64(),
            inclusion_probability=pa.float64(),
            status=pa.string(),
            **_metrics,
            **_nulls,
        ),
        "saes.parquet": _schema(
            sae=pa.string(),
            loss=pa.string(),
            width=pa.uint32(),
            d_in=pa.uint32(),
            hookpoint=pa.string(),
            subject=pa.string(),
            l0=pa.float64(),
            fvu=pa.float64(),
            ce_recovered=pa.float64(),
            dead_fraction=pa.float64(),
            n_tokens=pa.uint64(),
            baseline=pa.string(),
        ),
        "cells.parquet": _schema(
            sae=pa.string(),
            explainer=pa.string(),
            scorer=pa.string(),
            metric=pa.string(),
            contrast_source=pa.string(),
            headline=pa.bool_(),
            mean=pa.float64(),
            low=pa.float64(),
            high=pa.float64(),
            median=pa.float64(),
            quartile_1=pa.float64(),
            quartile_3=pa.float64(),
            frequency_weighted_mean=pa.float64(),
            n=pa.uint32(),
            n_asked=pa.uint32(),
            null=pa.float64(),
            null_low=pa.float64(),
            null_high=pa.float64(),
            lift=pa.float64(),
            lift_low=pa.float64(),
            lift_high=pa.float64(),
            n_lift=pa.uint32(),
            n_calls=pa.uint64(),
            statuses=pa.string(),
        ),
        "deciles.parquet": _schema(
            **_strings_of("sae", "explainer", "scorer"),
            decile=pa.int8(),
            found=pa.float64(),
            low=pa.float64(),
            high=pa.float64(),
            n=pa.uint32(),
        ),
        "pairs.parquet": _schema(
            **_strings_of("scorer", "metric", "explainer", "sae_a", "sae_b"),
            **_apart,
            n_a=pa.uint32(),
            n_b=pa.uint32(),
            eligible_a=pa.float64(),
            eligible_b=pa.float64(),
            standardised=pa.float64(),
            standardised_low=pa.float64(),
            standardised_high=pa.float64(),
            by_frequency=pa.bool_(),
            unlike=_strings,
            forced=pa.bool_(),
        ),
        "explainer_pairs.parquet": _schema(
            **_strings_of("scorer", "metric", "sae", "explainer_a", "explainer_b"),
            **_apart,
            n=pa.uint32(),
        ),
        "matches.parquet": _schema(**_strings_of("sae_a", "sae_b"), latent_a=pa.uint32(), latent_b=pa.uint32(), cosine=pa.float32()),
        "overlaps.parquet": _schema(
            **_strings_of("sae_a", "sae_b", "hookpoint"),
            n_shared=pa.uint32(),
            n_only_a=pa.uint32(),
            n_only_b=pa.uint32(),
            mean_cosine=pa.float64(),
        ),
        "shared_pairs.parquet": _schema(
            **_strings_of("scorer", "metric", "explainer", "sae_a", "sae_b"),
            **_apart,
            n=pa.uint32(),
        ),
        "correlations.parquet": _schema(
            **_strings_of("sae", "explainer", "scorer_a", "scorer_b"),
            spearman=pa.float64(),
            low=pa.float64(),
            high=pa.float64(),
            n=pa.uint32(),
        ),
        "judges.parquet": _schema(
            **_strings_of("sae", "scorer_a", "scorer_b"),
            n=pa.uint32(),
            agreement=pa.float64(),
            low=pa.float64(),
            high=pa.float64(),
            kappa=pa.float64(),
            n_yes_yes=pa.uint32(),
            n_yes_no=pa.uint32(),
            n_no_yes=pa.uint32(),
            n_no_no=pa.uint32(),
            reference=pa.string(),
            **_rates,
        ),
        "imported.parquet": _schema(
            **_strings_of("imported", "sae", "explainer", "their_scorer", "their_metric"),
            recomputed=pa.bool_(),
            definition=pa.string(),
            **_strings_of("scorer", "metric"),
            n=pa.uint32(),
            n_theirs=pa.uint32(),
            n_ours=pa.uint32(),
            **{name: pa.float64() for side in ("their_mean", "mean", "spearman") for name in (side, f"{side}_low", f"{side}_high")},
        ),
        "jacobians.parquet": _schema(
            **_strings_of("jacobian", "input", "output", "module", "pair"),
            redrawn=pa.bool_(),
            **{f"{name}_{side}": kind for name, kind in _sides.items() for side in ("input", "output")},
            n_tokens=pa.uint64(),
            n_edges=pa.uint64(),
            **{f"{name}{end}": pa.float64() for name in JACOBIAN_FIGURES for end in ("", "_low", "_high")},
        ),
        "jacobian_pairs.parquet": _schema(
            **_strings_of("figure", "jacobian_a", "jacobian_b"),
            **{name: pa.float64() for name in ("difference", "low", "high")},
            unlike=_strings,
        ),
        "edge_scores.parquet": _schema(
            **_strings_of("jacobian", "explainer"),
            n_asked=pa.uint32(),
            statuses=pa.string(),
            **{f"{name}{end}": pa.float64() for name in ("score", "null", "lift", "own", "own_lead") for end in ("", "_low", "_high")},
            **{f"n_{name}": pa.uint32() for name in ("score", "null", "lift", "own", "own_lead")},
        ),
        "explained_edges.parquet": pa.schema([("jacobian", pa.string()), *EDGES.tables["explained.parquet"]]),
    },
)

IMPORT = Contract(
    name="import",
    version=1,
    stage="latentry import",
    holds="Explanations and scores that others made, as they were taken from their files. It is no folder of a stage: params name its"
    " tables by their digests.",
    tables={
        "explanations.parquet": _schema(
            latent=pa.uint32(),
            **_strings_of("text", "explainer_model", "method", "author", "date", "place"),
        ),
        "scores.parquet": _schema(
            latent=pa.uint32(),
            **_strings_of("scorer", "metric"),
            recomputed=pa.bool_(),
            score=pa.float64(),
            **{name: pa.uint32() for name in ("n", "n_activating", "n_contrast", "n_failed")},
            definition=pa.string(),
        ),
    },
    others={
        "import.json": "format, the source's files with their digests, what was chosen, counts, what was left out and why, provenance as it was found"
    },
)
"""Outside `data/`, in a folder that its user named; `scores.parquet` is there only where the source had scores."""

CONTRACTS = (MODEL, TOKENS, ACTIVATIONS, SAE, LATENTS, EXAMPLES, EXPLANATIONS, SCORES, JACOBIAN, EDGES, COMPARISON)


def as_markdown() -> str:
    """`docs/contracts.md`: every contract with its files and columns."""
    parts = [
        "# Contracts\n",
        "Generated by `make docs` from `src/latentry/contracts.py`. Every folder of a stage also holds `manifest.json`.\n",
    ]
    for contract in (*CONTRACTS, IMPORT):
        parts.append(f"## {contract.name}, version {contract.version}\n\nWritten by `{contract.stage}`. {contract.holds}\n")
        parts += [f"- `{name}`: {text}" for name, text in contract.others.items()]
        for name, schema in contract.tables.items():
            columns = ", ".join(f"`{field.name}` {field.type}" for field in schema)
            parts.append(f"- `{name}`: {columns}")
        parts.append("")
    return "\n".join(parts)
