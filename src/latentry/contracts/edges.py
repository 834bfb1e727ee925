"""Jacobians of an MLP between the latents of two SAEs, and what is said of their edges."""

import pyarrow as pa

from latentry.contracts.base import Contract, schema

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
        "contexts.parquet": schema(
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
        "explained.parquet": schema(
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
        "scores.parquet": schema(
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
