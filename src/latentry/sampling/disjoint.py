"""The rule that no explanation is judged on what it was made from, checked on the finished table.

It knows nothing of how the examples were drawn, so that it finds the drawing's faults.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int64

from latentry.contracts import EXAMPLES
from latentry.errors import ContractError
from latentry.records import Example, Split
from latentry.rows import records_of
from latentry.store import read_manifest, read_table


def verify_disjoint(examples: pa.Table, split_by: str = "document") -> None:
    """Check that no latent has a document, or a text, in both of its splits: when examples are written, and when they are read.

    With `split_by` "context" documents may be shared, but contexts may not be shared or be neighbours.

    Raises:
        ContractError: something is shared; the first latents that share it are named.
    """
    latent = examples["latent"].to_numpy().astype(np.int64)
    explain = examples["split"].to_numpy() == Split.EXPLAIN.value
    text = examples["text"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    _verify(latent, text.astype(np.int64), explain, "a text", (0,))
    if split_by == "document":
        _verify(latent, examples["document"].to_numpy().astype(np.int64), explain, "a document", (0,))
    else:
        _verify(latent, examples["context"].to_numpy().astype(np.int64), explain, "a context, or neighbouring ones,", (-1, 0, 1))


def _verify(
    latent: Int64[np.ndarray, " example"],
    unit: Int64[np.ndarray, " example"],
    explain: Bool[np.ndarray, " example"],
    what: str,
    reach: Sequence[int],
) -> None:
    # One number for (latent, unit), with room for the neighbours of the first and the last unit.
    spacing = int(unit.max(initial=0)) + 3
    key = latent * spacing + unit + 1
    to_explain, held_out = key[explain], np.unique(key[~explain])
    shared = np.unique(np.concatenate([to_explain[_is_among(to_explain + step, held_out)] for step in reach]) // spacing)
    if shared.size:
        raise ContractError(
            f"examples: {shared.size} latents have {what} in both of their splits, first {shared[:5].tolist()};"
            " none may; rerun `dvc repro examples`, and report it if it comes again"
        )


def _is_among(values: Int64[np.ndarray, " value"], ascending: Int64[np.ndarray, " n"]) -> Bool[np.ndarray, " value"]:
    places = np.searchsorted(ascending, values)
    return (np.append(ascending, -1)[places] == values) if ascending.size else np.zeros(values.size, dtype=bool)


def read_examples(folder: Path, split: Split | None = None) -> dict[int, list[Example]]:
    """The examples of `data/examples/<S>` by latent, of one split or both, checked again to share nothing.

    Raises:
        ContractError: they are not complete, or something is shared.
    """
    table = read_table(folder, EXAMPLES, "examples.parquet")
    verify_disjoint(table, read_manifest(folder, EXAMPLES).params["examples"]["split_by"])
    if split is not None:
        table = table.filter(pc.field("split") == split.value)
    found: dict[int, list[Example]] = defaultdict(list)
    for example in records_of(table, Example):
        found[example.latent].append(example)
    return dict(found)
