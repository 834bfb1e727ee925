"""The explorer written whole: the page, what it lists, what can be searched and sorted, and every latent's details.

The page asks nobody but its own folder, so it opens from disk. Everything that came from a corpus or a model is data here, and
the page shows it as text and never as markup.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Float64

from latentry import contracts
from latentry.explorer.site.chunks import ChunkFolder, packed
from latentry.explorer.site.details import row_details
from latentry.explorer.site.rows import SaeRows, plain, sae_rows
from latentry.explorer.site.similar import Vectors, similar_rows
from latentry.explorer.site.words import N_FILES, WordIndex
from latentry.metric_kinds import METRIC_KINDS, kind_of
from latentry.store import manifest_digest, read_manifest

ROWS_PER_CHUNK, DETAILS_PER_CHUNK = 1000, 40
PAGE_FILES = ("latents.html", "explorer.js", "explorer.css")
_QUALITY = ("width", "loss", "l0", "fvu", "hookpoint", "subject", "baseline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The axes of the comparison, in the order of params."""

    saes: tuple[str, ...]
    explainers: tuple[str, ...]
    scorers: Mapping[str, str]
    """Each scorer's headline metric, by its column."""
    contrasts: Mapping[str, str]


def names_of(cells: pa.Table, saes: pa.Table) -> Names:
    """What there is, read off the comparison's tables."""
    heads = [row for row in cells.to_pylist() if row["headline"]]
    return Names(
        saes=tuple(saes["sae"].to_pylist()),
        explainers=tuple(dict.fromkeys(row["explainer"] for row in heads)),
        scorers={row["scorer"]: kind_of(row["metric"]) for row in heads},
        contrasts={row["scorer"]: row["contrast_source"] for row in heads},
    )


def write_site(
    *,
    data: Path,
    tables: Mapping[str, pa.Table],
    settings: Mapping[str, str],
    out: Path,
    embedded: Callable[[Sequence[str]], Vectors] | None = None,
) -> int:
    """Write the explorer into a folder beside the report; returns how many latents it lists.

    `embedded` gives unit vectors of explanations, for the similar ones; None: none are shown. SAEs whose examples are not
    there yet are left out.
    """
    names = names_of(tables["cells.parquet"], tables["saes.parquet"])
    figures = {row["sae"]: row for row in tables["saes.parquet"].to_pylist()}
    there = [sae for sae in names.saes if (data / "examples" / sae / "manifest.json").is_file()]
    parts = [sae_rows(data, sae, names.explainers, names.scorers, tables["latents.parquet"]) for sae in there]
    details = _details(data, parts, tables, _similar(parts, embedded))
    write_pages(out, names, parts, [_about(data, sae, figures[sae]) for sae in there], details, settings)
    return sum(len(part.latents) for part in parts)


def write_pages(
    out: Path,
    names: Names,
    parts: Sequence[SaeRows],
    about: Sequence[Mapping[str, Any]],
    details: Iterable[Mapping[str, Any]],
    settings: Mapping[str, str],
) -> None:
    """The site from what was read: `about` has a record for each part, `details` one for each row, in order."""
    partial = out / ".data"
    shutil.rmtree(partial, ignore_errors=True)
    chunks = ChunkFolder(partial)
    _write_in_chunks(chunks, "rows", (row for part in parts for row in _listed(part, names)), ROWS_PER_CHUNK)
    _write_in_chunks(chunks, "details", details, DETAILS_PER_CHUNK)
    _write_words(chunks, parts)
    chunks.write("meta", _meta(names, parts, about, list(_write_orders(chunks, parts)), settings))
    shutil.rmtree(out / "data", ignore_errors=True)
    partial.rename(out / "data")
    for name in PAGE_FILES:
        (out / name).write_bytes((resources.files("latentry.explorer") / "templates" / name).read_bytes())


def _meta(
    names: Names,
    parts: Sequence[SaeRows],
    about: Sequence[Mapping[str, Any]],
    orders: Sequence[Mapping[str, Any]],
    settings: Mapping[str, str],
) -> dict[str, Any]:
    return {
        "n_rows": sum(len(part.latents) for part in parts),
        "rows_per_chunk": ROWS_PER_CHUNK,
        "details_per_chunk": DETAILS_PER_CHUNK,
        "n_word_files": N_FILES,
        "saes": [{**one, "first": first, "n": len(part.latents)} for one, part, first in zip(about, parts, _firsts(parts), strict=True)],
        "explainers": list(names.explainers),
        "scorers": [_scorer(scorer, metric, names.contrasts[scorer]) for scorer, metric in names.scorers.items()],
        "orders": list(orders),
        "settings": dict(settings),
    }


def _scorer(scorer: str, metric: str, contrast: str) -> dict[str, Any]:
    kind = METRIC_KINDS[metric]
    return {
        "name": scorer,
        "metric": kind.title,
        "contrast": contrast,
        "chance": kind.chance,
        "definition": kind.definition,
        "unit": kind.unit,
    }


def _firsts(parts: Sequence[SaeRows]) -> list[int]:
    """The first row of each SAE."""
    return np.cumsum([0, *(len(part.latents) for part in parts)])[:-1].tolist()


def _about(data: Path, sae: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    """One SAE: its figures, and the digests by which its results are traced."""
    folders = {kind: data / kind / sae for kind in ("saes", "examples", "explanations")} | {"tokens": data / "tokens"}
    digests = {kind: manifest_digest(folder)[:12] for kind, folder in folders.items() if (folder / "manifest.json").is_file()}
    if "saes" in digests:
        files = read_manifest(folders["saes"], contracts.SAE).files
        digests |= {name: digest[:12] for name, digest in files.items() if name.endswith((".safetensors", ".pt", ".npz"))}
    return {"name": sae, **{key: figures[key] for key in _QUALITY}, "digests": digests}


def _write_in_chunks(chunks: ChunkFolder, name: str, rows: Iterable[Any], size: int) -> None:
    left = iter(rows)
    for number in count():
        some = list(islice(left, size))
        if not some:
            return
        chunks.write(f"{name}/{number}", some)


def _listed(part: SaeRows, names: Names) -> Iterator[list[Any]]:
    """[latent, status, frequency, explanations, scores, label] with explainers and scorers by their places in `names`."""
    explainers, scorers = list(names.explainers), list(names.scorers)
    places = [(explainers.index(score.explainer), scorers.index(score.scorer), score.value.tolist()) for score in part.scores]
    for place, latent in enumerate(part.latents):
        texts = [part.texts[explainer][place] for explainer in explainers]
        scores = [[explainer, scorer, plain(values[place])] for explainer, scorer, values in places if values[place] == values[place]]
        yield [latent["latent"], latent["status"], plain(latent["firing_frequency"]), texts, scores, part.labels[place]]


def _write_words(chunks: ChunkFolder, parts: Sequence[SaeRows]) -> None:
    index = WordIndex()
    for part, first in zip(parts, _firsts(parts), strict=True):
        for place, latent in enumerate(part.latents):
            texts = (texts[place] for texts in part.texts.values())
            index.add(first + place, " ".join([str(latent["latent"]), part.labels[place], *(text for text in texts if text)]))
    index.write(chunks)


def _write_orders(chunks: ChunkFolder, parts: Sequence[SaeRows]) -> Iterator[dict[str, Any]]:
    """Rows from the largest number to the smallest, those without one last; the sample's own order needs no file."""
    for place, ((name, explainer), values) in enumerate(_columns(parts).items()):
        # a stable sort of the negative leaves equal ones in the sample's order, and puts NaN last
        chunks.write(f"orders/{place}", packed(np.argsort(-values, kind="stable"), "<u4"))
        yield {"name": name, "explainer": explainer, "n": int(np.isfinite(values).sum())}


def _columns(parts: Sequence[SaeRows]) -> dict[tuple[str, str], Float64[np.ndarray, " row"]]:
    """What rows are sorted by: (name, explainer or empty)."""
    latents = [row for part in parts for row in part.latents]
    columns = {
        ("latent", ""): np.array([row["latent"] for row in latents], float),
        ("frequency", ""): np.array([row["firing_frequency"] for row in latents], float),
    }
    for explainer, scorer in dict.fromkeys((score.explainer, score.scorer) for part in parts for score in part.scores):
        columns[scorer, explainer] = np.concatenate([_values_of(part, explainer, scorer) for part in parts]).astype(float)
    return columns


def _values_of(part: SaeRows, explainer: str, scorer: str) -> Float32[np.ndarray, " row"]:
    found = [score.value for score in part.scores if (score.explainer, score.scorer) == (explainer, scorer)]
    return found[0] if found else np.full(len(part.latents), np.nan, np.float32)


def _similar(parts: Sequence[SaeRows], embedded: Callable[[Sequence[str]], Vectors] | None) -> dict[int, list[tuple[int, float]]]:
    if embedded is None:
        return {}
    texts = [
        (first + place, text)
        for part, first in zip(parts, _firsts(parts), strict=True)
        for of_explainer in part.texts.values()
        for place, text in enumerate(of_explainer)
        if text
    ]
    return similar_rows(texts, embedded)


def _details(
    data: Path, parts: Sequence[SaeRows], tables: Mapping[str, pa.Table], similar: Mapping[int, Sequence[tuple[int, float]]]
) -> Iterator[dict[str, Any]]:
    """Everything of each row, with its similar rows by number."""
    for part, first in zip(parts, _firsts(parts), strict=True):
        for place, found in enumerate(row_details(data, part, tables)):
            yield {**found, "similar": [[other, value] for other, value in similar.get(first + place, ())]}
