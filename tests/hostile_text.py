"""Texts that would do something where they are shown, if anything obeyed them."""

import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HOSTILE = (
    "<script>document.title='owned';alert(1)</script>",
    "</script><script>document.title='owned'</script><!--",
    "<img src=x onerror=\"document.title='owned'\"><svg onload=alert(1)><iframe src=https://example.org>",
    "'\"><a href=\"javascript:document.title='owned'\">click</a><style>body{display:none}</style>",
    "{{ 7*7 }}{% raw %}${7*7}#{7*7}<%= 7*7 %>",
    '=HYPERLINK("https://example.org","x") +cmd|\' /C calc\'!A0 @SUM(1) -1+1',
    "[link](javascript:alert(1)) ![image](https://example.org/x.png) **bold** | a | b |\n|---|---|\n# head",
    "\x1b[2J\x1b[31mred\x1b]0;owned\x07\x1b]8;;https://example.org\x07x\x1b]8;;\x07\x9b31m\x08\x08\r over",
    "\u202egnirts\u202c \u2066isolated\u2069 \u200bzero\u200bwidth\ufeff\u00ad \U000e0041",
    "before\x00after \x7f \u2028 line \u2029 paragraph \x85",
    "constructor __proto__ toString hasOwnProperty",
    "long " + "x" * 20_000,
)
_COLUMNS = ("text", "explanation", "detail", "status_detail", "top_tokens", "promoted_tokens", "suppressed_tokens", "tokens")


def poison(data: Path) -> None:
    """Put them into every text of a study's tables: behind what stands there, so that marks still fit."""
    for path in sorted(data.rglob("*.parquet")):
        texts = itertools.cycle(HOSTILE)
        table = pq.read_table(path)
        for name in (name for name in _COLUMNS if name in table.column_names):
            kind = table.schema.field(name).type
            values = [_poisoned(value, texts) for value in table[name].to_pylist()]
            if pa.types.is_string(kind) or (pa.types.is_list(kind) and pa.types.is_string(kind.value_type)):
                table = table.set_column(table.column_names.index(name), table.schema.field(name), pa.array(values, kind))
        pq.write_table(table, path)
        _tell(path)


def _tell(path: Path) -> None:
    """The manifest beside it knows how long its file is, and what is in it."""
    manifest = path.with_name("manifest.json")
    told = json.loads(manifest.read_text())
    told["sizes"][path.name] = path.stat().st_size
    told["files"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(told))


def _poisoned(value: object, texts: Iterator[str]) -> object:
    if isinstance(value, str):
        return value + next(texts)
    return [_poisoned(one, texts) for one in value] if isinstance(value, list) else value
