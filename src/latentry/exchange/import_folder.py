"""`imports/NAME`: explanations and scores that others made, as two tables, and a file that says where they are from and what was left out.

Always true: the same source gives the same bytes, no path of a machine stands in it, and it is there whole or not at all.
"""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from latentry.atomic import write_atomic
from latentry.contracts import IMPORT
from latentry.errors import ExchangeError
from latentry.exchange.export_place import new_folder, require_free
from latentry.exchange.imported import LeftOut, Taken, number_of, sift
from latentry.exchange.plain_json import write_json
from latentry.exchange.reading import name_of
from latentry.exchange.source import Source
from latentry.store import file_digest

MARK = "import.json"
EXPLANATIONS, SCORES = "explanations.parquet", "scores.parquet"
_FILES_NAMED = 1000
"""Files of a source that are named one by one; of more, their digest together."""
_VALUES_NAMED = 20
_ABOUT = ("explainer_model", "method", "author", "date")


def make_import(
    out: Path, form: str, path: Path, *, sae: str, width: int | None, where: Mapping[str, str], force: bool
) -> tuple[Taken, dict[str, Any]]:
    """Read a source and write the folder; returns what was taken, and what `import.json` says. `from_FORM.py` reads the source.

    Raises:
        ExchangeError: the source cannot be read or chosen from, holds nothing of this SAE, or the folder is there already.
    """
    require_free(out, force=force, mark=MARK)
    source: Source = import_module(f"latentry.exchange.from_{form}").source(path)
    taken = sift(source.rows, width, where)
    told: dict[str, Any] = {
        "contract": IMPORT.name,
        "version": IMPORT.version,
        "name": out.name,
        "format": form,
        "sae": sae,
        "width": width,
    }
    told |= {"where": dict(where), "counts": _counts(taken), "left_out": _left_out(taken)}
    told |= {"provenance": {**source.provenance, **_about(taken)}, "source": _files(source)}
    with new_folder(out, force=force, mark=MARK) as folder:
        _write(folder / EXPLANATIONS, _texts(taken), EXPLANATIONS)
        if taken.n_scores_taken():
            _write(folder / SCORES, _scores(taken), SCORES)
        told["tables"] = {file.name: file_digest(file) for file in sorted(folder.glob("*.parquet"))}
        write_json(folder / MARK, told)
    return taken, told


def _write(path: Path, rows: Iterator[Mapping[str, Any]], table: str) -> None:
    content = pa.Table.from_pylist(list(rows), schema=IMPORT.tables[table])
    write_atomic(path, lambda partial: pq.write_table(content, partial, compression="zstd"))


def _texts(taken: Taken) -> Iterator[dict[str, Any]]:
    for latent, text in sorted(taken.texts.items()):
        yield {"latent": latent, "text": text.text, **{name: text.about.get(name) for name in _ABOUT}, "place": text.place}


def _scores(taken: Taken) -> Iterator[dict[str, Any]]:
    for latent, held in sorted(taken.scores.items()):
        for _, score in sorted(held.items()):
            counts = dataclasses.asdict(score.counts)
            named = {name: getattr(score, name) for name in ("scorer", "metric", "recomputed", "definition")}
            yield {"latent": latent, **named, **counts, "score": number_of(score.score)}


def _counts(taken: Taken) -> dict[str, int]:
    return {
        "rows": taken.n_rows,
        "taken": len(taken.texts),
        "scores": taken.n_scores,
        "scores_taken": taken.n_scores_taken(),
        "latents_without_text": len(taken.without_text()),
    }


def _left_out(taken: Taken) -> dict[str, Any]:
    def told(left: LeftOut) -> dict[str, Any]:
        return {why: {"n": n, "first": left.first[why]} for why, n in sorted(left.counts.items())}

    return {"rows": told(taken.left), "scores": told(taken.left_scores), "latents_without_text": taken.without_text()[:_VALUES_NAMED]}


def _about(taken: Taken) -> dict[str, list[str]]:
    """The commonest values of what is known of each text."""
    found = {name: Counter(text.about[name] for text in taken.texts.values() if name in text.about) for name in _ABOUT}
    return {
        name: [value for value, _ in sorted(values.items(), key=_commonest)[:_VALUES_NAMED]] for name, values in found.items() if values
    }


def _commonest(counted: tuple[str, int]) -> tuple[int, str]:
    return (-counted[1], counted[0])


def _files(source: Source) -> dict[str, Any]:
    """The source's files with their digests; together one digest of names and digests."""
    try:
        digests = {name_of(file, source.root): file_digest(file) for file in source.files}
    except OSError as error:
        raise ExchangeError(f"{error.filename}: went while it was read ({error.strerror}); import again") from error
    whole = hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items())).encode("utf-8", "replace"))
    named = digests if len(digests) <= _FILES_NAMED else {}
    return {"n_files": len(digests), "sha256": whole.hexdigest(), "files": named}


def summary(taken: Taken, told: Mapping[str, Any]) -> Iterator[str]:
    """What a person is told: counts, and the first of what was left out."""
    known = "whose width params do not say" if taken.width is None else f"of {taken.width:,} latents"
    read = f"{_n(taken.n_rows, 'row')} in {_n(told['source']['n_files'], 'file')}"
    yield f"{told['format']}: {read}, {len(taken.texts):,} taken for SAE {told['sae']!r} {known}"
    yield from _left(taken.left, "row")
    if missing := taken.without_text():
        yield f"  {_n(len(missing), 'latent')} of the SAE without a text: {_some(list(map(str, missing)), len(missing))}"
    yield f"scores: {taken.n_scores:,} read, {taken.n_scores_taken():,} taken"
    yield from _left(taken.left_scores, "score")
    for name, found in told["provenance"].items():
        yield f"  {name.replace('_', ' ')}: {found if isinstance(found, str) else ', '.join(found)}"


def _left(left: LeftOut, what: str) -> Iterator[str]:
    for why, n in sorted(left.counts.items()):
        yield f"  {_n(n, what)} left out, {why}: {_some(left.first[why], n)}"


def _n(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _some(shown: Sequence[str], n: int) -> str:
    some = list(shown[:5])
    return ", ".join(some) + (f" and {n - len(some):,} more" if n > len(some) else "")


def params_block(taken: Taken, told: Mapping[str, Any], folder: str, max_chars: int) -> Iterator[str]:
    """What to put into params.yaml, line by line; `max_chars` is what an explainer takes where it is not told otherwise."""
    name, tables, longest = told["name"], told["tables"], max(len(" ".join(text.text.split())) for text in taken.texts.values())
    more = f", max_chars: {longest}" if longest > max_chars else ""
    of = f"sae: {told['sae']}"
    yield "explainers:"
    yield f"  {name}: {{kind: fixed, path: {folder}/{EXPLANATIONS}, sha256: {tables[EXPLANATIONS]}, {of}{more}}}"
    if SCORES in tables:
        yield "comparison:"
        yield "  imported:"
        yield f"    {name}: {{path: {folder}/{SCORES}, sha256: {tables[SCORES]}, {of}, explainer: {name}}}"
