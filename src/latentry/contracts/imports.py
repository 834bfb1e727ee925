"""What others made, outside `data/`."""

import pyarrow as pa

from latentry.contracts.base import Contract, schema, strings_of

IMPORT = Contract(
    name="import",
    version=1,
    stage="latentry import",
    holds="Explanations and scores that others made, as they were taken from their files. It is no folder of a stage: params name its"
    " tables by their digests.",
    tables={
        "explanations.parquet": schema(
            latent=pa.uint32(),
            **strings_of("text", "explainer_model", "method", "author", "date", "place"),
        ),
        "scores.parquet": schema(
            latent=pa.uint32(),
            **strings_of("scorer", "metric"),
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
