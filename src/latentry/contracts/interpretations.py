"""What latents are shown by, what is said of them, and how well it fits."""

import pyarrow as pa

from latentry.contracts.base import F32S, I32S, STRINGS, U32S, Contract, schema
from latentry.metric_kinds import COLUMNS

METRICS = dict.fromkeys(COLUMNS, pa.float64())

EXAMPLES = Contract(
    name="examples",
    version=3,
    stage="examples",
    holds="The latents chosen, their windows in two splits that share no document and no text, and their contrasts.",
    tables={
        "latents.parquet": schema(
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
        "examples.parquet": schema(
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
            tokens=U32S,
            activations=F32S,
            text=pa.string(),
            spans=I32S,
            marks=I32S,
        ),
        "promoted.parquet": schema(latent=pa.uint32(), promoted_tokens=STRINGS, suppressed_tokens=STRINGS),
        "prompts.parquet": schema(
            latent=pa.uint32(),
            example_id=pa.string(),
            purpose=pa.string(),
            quintile=pa.int8(),
            document=pa.int32(),
            context=pa.uint32(),
            start=pa.uint32(),
            tokens=U32S,
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
        "explanations.parquet": schema(
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

SCORES = Contract(
    name="scores",
    version=2,
    stage="score",
    holds="One judgment per held-out example (or prompt, trial, text) and explainer, and the scores made of them; the explainer is `none`"
    " where a scorer reads no explanation.",
    tables={
        "judgments.parquet": schema(
            latent=pa.uint32(),
            explainer=pa.string(),
            example_id=pa.string(),
            null=pa.bool_(),
            is_activating=pa.bool_(),
            says_activating=pa.bool_(),
            confidence=pa.float64(),
            value=pa.float64(),
            levels=F32S,
            text=pa.string(),
            status=pa.string(),
            detail=pa.string(),
            reply_key=pa.string(),
        ),
        "scores.parquet": schema(
            latent=pa.uint32(),
            explainer=pa.string(),
            null=pa.bool_(),
            contrast_source=pa.string(),
            status=pa.string(),
            detail=pa.string(),
            **METRICS,
            decile_found=pa.list_(pa.float64()),
            n_activating=pa.uint32(),
            n_contrast=pa.uint32(),
            n_failed=pa.uint32(),
            stopped_early=pa.bool_(),
            partner=pa.uint32(),
        ),
    },
)
