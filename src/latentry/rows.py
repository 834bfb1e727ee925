"""Between records and tables: the columns are a record's fields, in both directions."""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

import pyarrow as pa

R = TypeVar("R")


def records_of(table: pa.Table, record: type[R]) -> list[R]:
    """Rows as records: lists become tuples, strings become enums."""
    hints = typing.get_type_hints(record)
    converters = {name: _converter(hints[name]) for name in table.column_names}
    columns = [[convert(value) for value in table[name].to_pylist()] for name, convert in converters.items()]
    return [record(**dict(zip(converters, row, strict=True))) for row in zip(*columns, strict=True)]


def _converter(hint: Any) -> Callable[[Any], Any]:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        if isinstance(option, type) and issubclass(option, Enum):
            return lambda value: None if value is None else option(value)
        if typing.get_origin(option) is tuple:
            return lambda value: None if value is None else tuple(value)
    return lambda value: value


def table_of(records: Iterable[Any], schema: pa.Schema) -> pa.Table:
    """Records, or rows as mappings, as a table with exactly the schema's columns."""
    rows = [_plain(record) for record in records]
    return pa.Table.from_pylist(rows, schema=schema)


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table with exactly the schema's columns and types."""
    return table.select(schema.names).cast(schema)


def _plain(record: Any) -> Mapping[str, Any]:
    if isinstance(record, Mapping):
        return record
    values = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}
