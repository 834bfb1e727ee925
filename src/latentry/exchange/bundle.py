"""A study's results as one zip: the report, the tables, the manifests of all they rest on, and what reproduces them, with checksums.

Always true: the same results give the same bytes (names in order, one fixed time), every file but the list of checksums stands in it,
and weights, activations and the corpus stay out. Reading one is `bundle_file.py`'s.
"""

import hashlib
import io
import json
import stat
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from latentry.atomic import beside
from latentry.errors import ContractError, ExchangeError
from latentry.exchange.bundle_file import ABOUT, FORMAT, PIECE, SUMS, VERSION
from latentry.exchange.complete import COMPARISON, folders_of, require_complete, require_current, require_report
from latentry.exchange.export_place import require_free_file
from latentry.exchange.provenance import Chain, chain_of, made_at, provenance
from latentry.params import Params
from latentry.store import MANIFEST, file_digest

REPRODUCING = ("params.yaml", "dvc.yaml", "dvc.lock")
"""With the commit, these make the results again."""
_OPTIONAL = ("metrics/summary.json",)
_BESIDE_TABLES = ("evaluation.json", "source.json")
_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest that a zip can say."""
_PACKED = (".parquet", ".png")
"""Compressed already."""
_README = """Results of a study made with latentry: explanations of SAE latents and their scores.

report/index.html       the comparison; report/latents.html lists and searches every latent. Both open without a network.
data/                   the tables in Parquet, and in manifest.json of each folder what it was made from
bundle.json             where all of it comes from: models, tokens, SAEs, judges, parameters and commit
params.yaml, dvc.yaml, dvc.lock    with the commit in bundle.json these make it again
                        (`"dirty": "true"` there: with changes that are not in that commit)

Check it with `sha256sum -c SHA256SUMS` after unpacking, or with `latentry verify FILE` before.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundled:
    """What was written."""

    n_files: int
    n_bytes: int
    """Before they were packed."""
    digest: str
    """sha256 of the zip."""
    content_digest: str
    """sha256 of the list of checksums: the same for the same results, also where another zlib packs them otherwise."""
    made_at: str
    """The commit, and whether it holds all of the code."""


def export_bundle(here: Path, params: Params, out: Path, *, force: bool = False) -> Bundled:
    """Write the zip, whole or not at all.

    Raises:
        ContractError: the results are not complete, or not of these params.
        ExchangeError: `out` is taken.
    """
    if out.is_dir():
        raise ExchangeError(f"{out}: is a folder, a bundle is one file; name one, such as {out / 'results.zip'}")
    require_free_file(out, force=force)
    saes = list(params.saes)
    folders = [*folders_of(params, saes), COMPARISON]
    require_complete(here, folders)
    require_report(here)
    require_current(here, params, folders)
    chain = chain_of(here, folders)
    files = dict(_files(here, chain, folders))
    about = {"format": FORMAT, "version": VERSION, **provenance(here, params, chain, saes)}
    texts = {"README.txt": _README, ABOUT: f"{json.dumps(about, indent=1, ensure_ascii=False, allow_nan=False)}\n"}
    with beside(out) as partial:
        sums, n_bytes = _write(partial, files, texts)
    content_digest = hashlib.sha256(_listed(sums).encode()).hexdigest()
    return Bundled(n_files=len(sums) + 1, n_bytes=n_bytes, digest=file_digest(out), content_digest=content_digest, made_at=made_at(about))


def _files(here: Path, chain: Chain, folders: list[str]) -> Iterator[tuple[str, Path]]:
    """Every file of the project that goes in, by its place in it."""
    missing = [name for name in REPRODUCING if not (here / name).is_file()]
    if missing:
        raise ContractError(
            f"{here}: has no {', '.join(missing)}, which a bundle holds so that it can be made again; run from the project's folder"
        )
    yield from ((name, here / name) for name in (*REPRODUCING, *_OPTIONAL) if (here / name).is_file())
    for path in (here / "report").rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            yield path.relative_to(here).as_posix(), path
    yield from ((f"{folder}/{MANIFEST}", here / folder / MANIFEST) for folder in chain.manifests)
    for folder in folders:
        for name in chain.files(folder):
            if name.endswith(".parquet") or name in _BESIDE_TABLES:
                yield f"{folder}/{name}", here / folder / name


def _write(path: Path, files: Mapping[str, Path], texts: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """Pack everything in the order of names, the list of checksums last; returns that list and the bytes packed."""
    sums: dict[str, str] = {}
    n_bytes = 0
    with zipfile.ZipFile(path, "w") as packed:
        for name in sorted({*files, *texts}):
            size = len(texts[name].encode()) if name in texts else files[name].stat().st_size
            with packed.open(_entry(name, size), "w") as into:
                sums[name] = _copied(io.BytesIO(texts[name].encode()), into) if name in texts else _copied_file(files[name], into)
            n_bytes += size
        listed = _listed(sums).encode()
        with packed.open(_entry(SUMS, len(listed)), "w") as into:
            into.write(listed)
    return sums, n_bytes + len(listed)


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.create_system, entry.external_attr, entry.file_size = 3, (stat.S_IFREG | 0o644) << 16, size
    entry.compress_type = zipfile.ZIP_STORED if name.endswith(_PACKED) else zipfile.ZIP_DEFLATED
    return entry


def _copied_file(path: Path, into: IO[bytes]) -> str:
    with path.open("rb") as file:
        return _copied(file, into)


def _copied(file: IO[bytes], into: IO[bytes]) -> str:
    """Copy in pieces; returns the sha256 of what was copied."""
    digest = hashlib.sha256()
    while piece := file.read(PIECE):
        into.write(piece)
        digest.update(piece)
    return digest.hexdigest()


def _listed(sums: Mapping[str, str]) -> str:
    """As `sha256sum` writes and checks it."""
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items())
