"""Neuronpedia's bulk exports: explanations of a source in batches of JSON lines, beside what the site says of the source.

The folder is that of one source, or one that holds several; scores are in none of them. Rows of several models, sources, methods or
explainer models are told apart by these names, as `modelId`, `layer`, `typeName` and `explanationModelName`.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from latentry.errors import ExchangeError
from latentry.exchange.reading import Unreadable, json_rows, name_of
from latentry.exchange.source import Entry, Source, plain, require_folder, said

_LABELS = ("modelId", "layer", "typeName", "explanationModelName")
_ABOUT = {"explanationModelName": "explainer_model", "typeName": "method", "authorId": "author", "createdAt": "date"}
_OF_SOURCE = {
    "release.jsonl": {"name": "release", "description": "release_title", "urls": "release_urls", "creatorName": "release_creator"},
    "model.jsonl": {"id": "model"},
    "sourceset.jsonl": {"name": "source_set", "description": "source_set_title", "creatorName": "source_set_creator"},
    "source.jsonl": {"id": "source", "saelensRelease": "sae_lens_release", "saelensSaeId": "sae_lens_id", "hfRepoId": "weights"},
}
"""What is kept of each file's first row, by our names."""


def source(path: Path) -> Source:
    """The explanations below a folder.

    Raises:
        ExchangeError: it is no folder, or holds no batches of explanations; while rows are read: a file is damaged.
    """
    require_folder(path, "neuronpedia", "that of one source, with explanations/batch-0.jsonl.gz")
    folders = [folder for folder in (path, *sorted(path.iterdir())) if (folder / "explanations").is_dir()]
    batches = [file for folder in folders for file in sorted((folder / "explanations").iterdir(), key=_order) if _is_batch(file)]
    if not batches:
        raise ExchangeError(
            f"{path}: holds no explanations/batch-N.jsonl.gz, nor do the folders in it; name the folder of a source of an export"
        )
    about = [folder / name for folder in folders for name in _OF_SOURCE if (folder / name).is_file()]
    rows = (row for file in batches for row in _rows(file, name_of(file, path)))
    provenance = _provenance(folders[0], path) if len(folders) == 1 else {}
    return Source(root=path, files=(*about, *batches), rows=rows, provenance=provenance)


def _is_batch(file: Path) -> bool:
    return re.fullmatch(r"batch-\d+\.jsonl(\.gz)?", file.name) is not None


def _order(file: Path) -> tuple[int, str]:
    """By number, so that batch 10 comes after batch 9."""
    found = re.search(r"\d{1,18}", file.name)
    return (int(found[0]) if found else -1, file.name)


def _rows(file: Path, name: str) -> Iterator[Entry | Unreadable]:
    for row in json_rows(file, name):
        yield row if isinstance(row, Unreadable) else _entry(*row)


def _entry(place: str, row: Mapping[str, Any]) -> Entry:
    return Entry(
        place=place,
        latent=row.get("index"),
        text=row.get("description"),
        labels={label: plain(row.get(label) or "") for label in _LABELS},
        about=said(row, _ABOUT),
    )


def _provenance(folder: Path, root: Path) -> dict[str, str]:
    """What the source's own files say; one that cannot be read says nothing, for no row depends on it."""
    found: dict[str, str] = {}
    for name, names in _OF_SOURCE.items():
        if (folder / name).is_file():
            first = next(iter(json_rows(folder / name, name_of(folder / name, root))), None)
            found |= said(first[1], names) if isinstance(first, tuple) else {}
    return found
