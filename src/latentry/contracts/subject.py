"""What comes of the models and the corpus: weights, tokens, activations."""

import pyarrow as pa

from latentry.contracts.base import Contract, schema

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
    tables={"documents.parquet": schema(document=pa.int32(), name=pa.string(), text=pa.string())},
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
