"""How a stage's folder comes to be: written in a work folder shard by shard, then moved whole into its place.

A folder that stands under its own name is complete and has a manifest; a file that stands under its own name is
complete. What the folders hold is `contracts`'s.
"""

import dataclasses
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from latentry.atomic import FOLDER_MODE, beside, full_disk_named, is_whole, remove_leftovers, require_room, write_atomic
from latentry.contracts import Contract
from latentry.errors import ContractError
from latentry.loaded_code import loaded_files
from latentry.locks import work_folder
from latentry.rows import fitted, records_of, table_of

MANIFEST = "manifest.json"

ROWS_PER_GROUP = 16384
"""Rows written at once of a table that is given in parts: what a reader of a few rows has to read, too."""

SMALL_BYTES = 8 << 20
"""A file up to this size is read whole and checked by its digest wherever its folder is read; larger ones by their size, and by `latentry verify`."""

R = TypeVar("R")

_PARENT = os.getppid()
"""Who started this process, read as early as can be: `dvc`, while it lives."""


def project_root() -> Path:
    """`$DVC_ROOT`, else the nearest parent that holds `.dvc`, else the current folder.

    Experiments in temporary folders have the project's own root here, so that they share its caches.
    """
    named = os.environ.get("DVC_ROOT")
    if named:
        return Path(named)
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / ".dvc").is_dir()), here)


def cache_folder(name: str) -> Path:
    """A folder under `<root>/.cache`, made when it is not there."""
    folder = project_root() / ".cache" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def digest_of(value: Any) -> str:
    """sha256 of a value's canonical JSON, in hex."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a complete folder says of itself. It holds no time, host, money or package version."""

    contract: str
    version: int
    cell: str
    """The stage's cell that wrote it, such as `latents@topk-1k`."""
    key: str
    """Digest of everything that the content follows from."""
    params: Mapping[str, Any]
    inputs: Mapping[str, str]
    """Digest of the manifest of each folder that was read."""
    counts: Mapping[str, Any]
    files: Mapping[str, str]
    """sha256 of each file beside the manifest, by relative path."""
    sizes: Mapping[str, int]
    """Bytes of each of them."""


def read_manifest(folder: Path, contract: Contract) -> Manifest:
    """The manifest of a complete folder.

    Raises:
        ContractError: the folder is not there, is incomplete, or holds another contract or version.
    """
    rerun = f"rerun `dvc repro {contract.stage}`"
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ContractError(f"{folder}: holds no complete {contract.name!r} (no {MANIFEST}); {rerun}") from None
    except ValueError as error:
        raise ContractError(f"{folder / MANIFEST}: unreadable ({error}); {rerun}") from error
    if not isinstance(found, dict) or not {field.name for field in dataclasses.fields(Manifest)} <= found.keys():
        raise ContractError(f"{folder / MANIFEST}: is no manifest of latentry's; {rerun}")
    if (found.get("contract"), found.get("version")) != (contract.name, contract.version):
        raise ContractError(
            f"{folder}: holds contract {found.get('contract')!r} v{found.get('version')},"
            f" this code reads {contract.name!r} v{contract.version}; {rerun}"
        )
    return Manifest(**found)


def manifest_digest(folder: Path) -> str:
    """Digest that stands for a folder and, through the chain of inputs, for all it was made from.

    Raises:
        ContractError: the folder is not complete, or one of its files is missing, has another size, or is small and has another content.
    """
    path = folder / MANIFEST
    rerun = "delete the folder and run `dvc repro` again"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        sizes, digests = manifest["sizes"], manifest.get("files", {})
    except FileNotFoundError:
        raise ContractError(f"{folder}: holds no complete results (no {MANIFEST}); run `dvc repro` for it") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ContractError(f"{path}: is no manifest of latentry's ({error}); {rerun}") from error
    for name, size in sizes.items():
        found = (folder / name).stat().st_size if (folder / name).is_file() else None
        if found != size:
            raise ContractError(f"{folder / name}: {'is missing' if found is None else f'has {found} bytes'}, written were {size}; {rerun}")
        if size <= SMALL_BYTES and file_digest(folder / name) != digests.get(name):
            raise ContractError(f"{folder / name}: has another content than was written; {rerun}")
    return file_digest(path)


def content_digest(folder: Path) -> str:
    """Digest of the files of a complete folder, whoever made them and by whatever code: what answers and vectors follow from.

    Raises:
        ContractError: as `manifest_digest`.
    """
    manifest_digest(folder)
    return digest_of(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"])


def read_table(folder: Path, contract: Contract, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """One table of a folder, checked against its contract.

    Raises:
        ContractError: as `read_manifest`, or the table is missing, damaged, or has other columns.
    """
    read_manifest(folder, contract)
    wanted = contract.tables[name]
    try:
        schema = pq.read_schema(folder / name)
        if schema.names != wanted.names:
            raise ContractError(f"{folder / name}: has columns {schema.names}, wanted {wanted.names}; rerun `dvc repro {contract.stage}`")
        return pq.read_table(folder / name, columns=list(columns) if columns else None)
    except (OSError, pa.ArrowException) as error:
        raise ContractError(f"{folder / name}: unreadable ({error}); rerun `dvc repro {contract.stage}`") from error


def read_records(folder: Path, contract: Contract, name: str, record: type[R]) -> list[R]:
    """A table's rows as records of `latentry.records`; the columns are the record's fields."""
    return records_of(read_table(folder, contract, name), record)


class Work:
    """A stage's folder in the making. Shards that were committed by an earlier, killed run are still here."""

    def __init__(self, folder: Path, out: Path, contract: Contract) -> None:
        self.folder, self.out, self._contract = folder, out, contract
        self.counts: dict[str, Any] = {}
        """Goes to the manifest."""

    def path(self, name: str) -> Path:
        """Where a file of the folder stands while it is in the making."""
        return self.folder / name

    def has(self, name: str) -> bool:
        """Whether that file was committed, now or by an earlier run of the same key, and its end is there."""
        return is_whole(self.path(name))

    def write_file(self, name: str, write: Callable[[Path], object], n_bytes: int | None = None) -> None:
        """Commit one file by a function that writes it to a path; `n_bytes`, where known, is told when the disk is full."""
        write_atomic(self.path(name), write, n_bytes)

    def write_json(self, name: str, value: Any) -> None:
        """Commit a JSON file; NaN and infinity are refused."""
        text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
        self.write_file(name, lambda path: path.write_text(text + "\n", encoding="utf-8"))

    def write_table(self, name: str, rows: "pa.Table | Iterable[Any]") -> None:
        """Commit one Parquet file of the contract, from a table, records or mappings."""
        schema = self._contract.tables[name]
        table = fitted(rows, schema) if isinstance(rows, pa.Table) else table_of(rows, schema)
        self.write_file(name, lambda path: pq.write_table(table, path, compression="zstd"))

    @contextmanager
    def open_table(self, name: str) -> Iterator[Callable[[pa.Table], None]]:
        """Commit one Parquet file of the contract from tables given one after another, so that all of them are never in memory."""
        schema = self._contract.tables[name]
        with beside(self.path(name)) as partial, pq.ParquetWriter(partial, schema, compression="zstd") as writer:
            held: list[pa.Table] = []

            def write(table: pa.Table) -> None:
                held.append(fitted(table, schema))
                if sum(part.num_rows for part in held) >= ROWS_PER_GROUP:
                    writer.write_table(pa.concat_tables(held))
                    held.clear()

            yield write
            writer.write_table(pa.concat_tables([schema.empty_table(), *held]))

    def write_arrays(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Commit one safetensors file of numpy arrays."""
        whole = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
        self.write_file(name, lambda path: save_file(whole, path), sum(array.nbytes for array in whole.values()))


@contextmanager
def work(
    out: Path,
    contract: Contract,
    *,
    cell: str,
    params: Mapping[str, Any],
    inputs: Iterable[Path] = (),
    how: Mapping[str, Any] | None = None,
) -> Iterator[Work | None]:
    """Make one stage's folder: yields it in the making, and moves it to `out` when the block ends well.

    `how` (shard and batch sizes) tells apart half-made folders that cannot be continued as one another; no manifest holds it.

    Yields None when the very same result is there already. An exception or a kill leaves the committed files for the next run
    with the same key. A second process with the same cell and key waits for the first. A process whose parent was killed (`dvc` alone)
    goes on, and leaves the finished folder where it is: DVC deletes a stage's outs before it runs it again, and takes it then.
    """
    read = {folder.as_posix(): manifest_digest(folder) for folder in inputs}
    key = digest_of(
        [cell, contract.name, contract.version, params, read, how or {}, {name: file_digest(path) for name, path in loaded_files().items()}]
    )
    base = cache_folder("work")
    with work_folder(base, cell, key) as folder:
        if _holds(out, key):
            yield None
            return
        if _holds(folder, key):
            _move(folder, out)
            yield None
            return
        folder.mkdir(exist_ok=True)
        remove_leftovers(folder)
        making = Work(folder, out, contract)
        with full_disk_named(folder):
            yield making
        folder.chmod(FOLDER_MODE)  # a copied model brings its own
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
        manifest = Manifest(
            contract=contract.name,
            version=contract.version,
            cell=cell,
            key=key,
            params=params,
            inputs=read,
            counts=making.counts,
            files={path.relative_to(folder).as_posix(): file_digest(path) for path in files},
            sizes={path.relative_to(folder).as_posix(): path.stat().st_size for path in files},
        )
        making.write_json(MANIFEST, dataclasses.asdict(manifest))
        if os.getppid() == _PARENT:
            _move(folder, out)
        else:
            sys.stderr.write(f"{cell}: finished, but what started it is gone; the result waits in {folder} for the next run\n")


def _holds(out: Path, key: str) -> bool:
    try:
        found = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        return found["key"] == key and all((out / name).is_file() for name in found["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _move(folder: Path, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists():
        shutil.rmtree(out)
    try:
        folder.replace(out)
    except OSError:  # another file system: copy beside, then rename
        copied = out.with_name(f".{out.name}.moving")
        shutil.rmtree(copied, ignore_errors=True)
        require_room(copied, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
        shutil.copytree(folder, copied)
        copied.replace(out)
        shutil.rmtree(folder)
