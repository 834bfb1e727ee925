"""Plain rows: CSV, JSON lines, a JSON list or Parquet, one explanation a row, by the column names that explainer kind `fixed` knows.

Scores stand in a column `score`, with `scorer`, `metric`, `n` and `definition` beside it where they are known; a row of the same text
again brings one more score. Our own `explanations.parquet` is such a file.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from latentry.errors import ExchangeError
from latentry.exchange.imported import index_of
from latentry.exchange.reading import Unreadable, csv_rows, json_rows, listed_rows, name_of, parquet_rows
from latentry.exchange.source import Counts, Entry, Score, Source, plain, require_file, said
from latentry.explainers.fixed import LATENT, TEXT
from latentry.records import Status

_LABELS = ("sae", "explainer", "layer", "modelId", "hookpoint", "typeName", "explanationModelName")
_ABOUT = {
    "explanationModelName": "explainer_model",
    "explainer_model": "explainer_model",
    "typeName": "method",
    "method": "method",
    "authorId": "author",
    "author": "author",
    "createdAt": "date",
    "date": "date",
}
_SCORES = ("score", "scorer", "metric", "n", "definition")
_COLUMNS = frozenset((*LATENT, *TEXT, *_LABELS, *_ABOUT, *_SCORES, "status"))
_FAILED = frozenset(status.value for status in Status if status is not Status.OK)
_ENDINGS = (".csv", ".jsonl", ".jsonl.gz", ".json", ".parquet")


def source(path: Path) -> Source:
    """The explanations of one file.

    Raises:
        ExchangeError: it is no file, or of no format that is read; while rows are read: it is damaged, or names no latents.
    """
    require_file(path, "rows", f"{', '.join(_ENDINGS)}")
    return Source(root=path, files=(path,), rows=_entries(path), provenance={})


def _entries(path: Path) -> Iterator[Entry | Unreadable]:
    named, found = False, None
    for row in _rows(path, name_of(path, path)):
        if isinstance(row, Unreadable):
            yield row
            continue
        found = found or ", ".join(map(plain, list(row[1])[:10]))
        named = named or any(column in row[1] for column in LATENT)
        why = _twice(row[1])
        yield Unreadable(place=row[0], why=why) if why else _entry(*row)
    if not named:
        wanted = f"one of {', '.join(LATENT)} is wanted, and one of {', '.join(TEXT)} for the text; in UTF-8, CSV with commas"
        said = "has no rows" if found is None else f"no row names its latent, its columns are {found or 'none'}"
        raise ExchangeError(f"{path.name}: {said}; {wanted}")


def _rows(path: Path, name: str) -> Iterable[tuple[str, Mapping[str, Any]] | Unreadable]:
    ending = next((ending for ending in _ENDINGS if path.name.lower().endswith(ending)), None)
    if ending is None:
        raise ExchangeError(f"{path.name}: is none of {', '.join(_ENDINGS)}; write it as one of these")
    if ending == ".parquet":
        return parquet_rows(path, name, _COLUMNS)
    return {".csv": csv_rows, ".json": listed_rows}.get(ending, json_rows)(path, name)


def _entry(place: str, row: Mapping[str, Any]) -> Entry:
    scores = (_score(row),) if row.get("score") not in (None, "") else ()
    return Entry(
        place=place,
        latent=_first(row, LATENT),
        text=None if row.get("status") in _FAILED else _first(row, TEXT),
        has_text=not scores or any(name in row for name in TEXT),
        labels={label: plain("" if row[label] is None else row[label]) for label in _LABELS if label in row},
        about=said(row, _ABOUT),
        scores=scores,
    )


def _twice(row: Mapping[str, Any]) -> str:
    """Why it is not known which latent or text a row means; empty where it is."""
    latents = {name: row[name] for name in LATENT if row.get(name) not in (None, "")}
    texts = {name: row[name] for name in TEXT if row.get(name) not in (None, "")}
    if len({str(value if (number := index_of(value)) is None else number) for value in latents.values()}) > 1:
        return f"it names its latent as {' and as '.join(f'{name} {plain(value)[:40]}' for name, value in latents.items())}"
    if len({" ".join(str(value).split()) for value in texts.values()}) > 1:
        return f"its texts differ in {' and '.join(texts)}; one is wanted"
    return ""


def _score(row: Mapping[str, Any]) -> Score:
    n, metric = index_of(row.get("n")), plain(row.get("metric") or "score")
    return Score(
        scorer=plain(row.get("scorer") or "theirs"),
        metric=metric,
        score=row["score"],
        definition=plain(row.get("definition") or f"{metric}, as the file has it"),
        counts=Counts(n=n if n is not None and 0 <= n < 2**32 else None),
    )


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)
