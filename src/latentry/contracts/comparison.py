"""All results side by side."""

import pyarrow as pa

from latentry.contracts.base import STRINGS, Contract, schema, strings_of
from latentry.contracts.edges import EDGES
from latentry.contracts.interpretations import METRICS
from latentry.metric_kinds import JACOBIAN_FIGURES, METRIC_KINDS

_nulls = {f"null_{name}": pa.float64() for name in METRIC_KINDS}

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
        "latents.parquet": schema(
            sae=pa.string(),
            explainer=pa.string(),
            scorer=pa.string(),
            latent=pa.uint32(),
            explanation=pa.string(),
            explanation_status=pa.string(),
            firing_frequency=pa.float64(),
            inclusion_probability=pa.float64(),
            status=pa.string(),
            **METRICS,
            **_nulls,
        ),
        "saes.parquet": schema(
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
        "cells.parquet": schema(
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
        "deciles.parquet": schema(
            **strings_of("sae", "explainer", "scorer"),
            decile=pa.int8(),
            found=pa.float64(),
            low=pa.float64(),
            high=pa.float64(),
            n=pa.uint32(),
        ),
        "pairs.parquet": schema(
            **strings_of("scorer", "metric", "explainer", "sae_a", "sae_b"),
            **_apart,
            n_a=pa.uint32(),
            n_b=pa.uint32(),
            eligible_a=pa.float64(),
            eligible_b=pa.float64(),
            standardised=pa.float64(),
            standardised_low=pa.float64(),
            standardised_high=pa.float64(),
            by_frequency=pa.bool_(),
            unlike=STRINGS,
            forced=pa.bool_(),
        ),
        "explainer_pairs.parquet": schema(
            **strings_of("scorer", "metric", "sae", "explainer_a", "explainer_b"),
            **_apart,
            n=pa.uint32(),
        ),
        "matches.parquet": schema(**strings_of("sae_a", "sae_b"), latent_a=pa.uint32(), latent_b=pa.uint32(), cosine=pa.float32()),
        "overlaps.parquet": schema(
            **strings_of("sae_a", "sae_b", "hookpoint"),
            n_shared=pa.uint32(),
            n_only_a=pa.uint32(),
            n_only_b=pa.uint32(),
            mean_cosine=pa.float64(),
        ),
        "shared_pairs.parquet": schema(
            **strings_of("scorer", "metric", "explainer", "sae_a", "sae_b"),
            **_apart,
            n=pa.uint32(),
        ),
        "correlations.parquet": schema(
            **strings_of("sae", "explainer", "scorer_a", "scorer_b"),
            spearman=pa.float64(),
            low=pa.float64(),
            high=pa.float64(),
            n=pa.uint32(),
        ),
        "judges.parquet": schema(
            **strings_of("sae", "scorer_a", "scorer_b"),
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
        "imported.parquet": schema(
            **strings_of("imported", "sae", "explainer", "their_scorer", "their_metric"),
            recomputed=pa.bool_(),
            definition=pa.string(),
            **strings_of("scorer", "metric"),
            n=pa.uint32(),
            n_theirs=pa.uint32(),
            n_ours=pa.uint32(),
            **{name: pa.float64() for side in ("their_mean", "mean", "spearman") for name in (side, f"{side}_low", f"{side}_high")},
        ),
        "jacobians.parquet": schema(
            **strings_of("jacobian", "input", "output", "module", "pair"),
            redrawn=pa.bool_(),
            **{f"{name}_{side}": kind for name, kind in _sides.items() for side in ("input", "output")},
            n_tokens=pa.uint64(),
            n_edges=pa.uint64(),
            **{f"{name}{end}": pa.float64() for name in JACOBIAN_FIGURES for end in ("", "_low", "_high")},
        ),
        "jacobian_pairs.parquet": schema(
            **strings_of("figure", "jacobian_a", "jacobian_b"),
            **{name: pa.float64() for name in ("difference", "low", "high")},
            unlike=STRINGS,
        ),
        "edge_scores.parquet": schema(
            **strings_of("jacobian", "explainer"),
            n_asked=pa.uint32(),
            statuses=pa.string(),
            **{f"{name}{end}": pa.float64() for name in ("score", "null", "lift", "own", "own_lead") for end in ("", "_low", "_high")},
            **{f"n_{name}": pa.uint32() for name in ("score", "null", "lift", "own", "own_lead")},
        ),
        "explained_edges.parquet": pa.schema([("jacobian", pa.string()), *EDGES.tables["explained.parquet"]]),
    },
)
