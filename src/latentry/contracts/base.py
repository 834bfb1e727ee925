"""What a contract is, and the Arrow types that tables share."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa


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


def schema(**columns: pa.DataType) -> pa.Schema:
    """Columns by name, each with its type."""
    return pa.schema([pa.field(name, kind) for name, kind in columns.items()])


def strings_of(*names: str) -> dict[str, pa.DataType]:
    """Columns of text."""
    return dict.fromkeys(names, pa.string())


STRINGS, F32S = pa.list_(pa.string()), pa.list_(pa.float32())
U32S, I32S = pa.list_(pa.uint32()), pa.list_(pa.int32())
