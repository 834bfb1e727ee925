"""Which cells hold rows whose call failed for the moment, and what follows from them: `latentry retry`.

What was answered stays answered: only calls that brought nothing are asked again, since the reply store keeps no failure of that kind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from latentry.contracts import EXPLANATIONS, SCORES, Contract
from latentry.errors import ContractError
from latentry.params import Params
from latentry.records import Status
from latentry.store import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A cell with rows to ask again."""

    cell: str
    """As DVC names it."""
    n_rows: int
    n_failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """A cell that asks, and where its rows are."""

    name: str
    sae: str
    folder: Path
    contract: Contract
    table: str


def failed_cells(params: Params, data: Path = Path("data")) -> list[Failed]:
    """The cells that params name, in the order in which they run; one that is not there is left out."""
    return [failed for cell in _cells(params, data) for failed in _failed(cell)]


def unmade_cells(params: Params, data: Path = Path("data")) -> list[str]:
    """Cells without results: never run, failed as a whole, or made by another version."""
    return [cell.name for cell in _cells(params, data) if _status(cell) is None]


def following_cells(params: Params, failed: Sequence[str], data: Path = Path("data")) -> list[str]:
    """What was made of the results of failed cells, in the order in which it runs; a cell without results of its own is left out."""
    saes = {sae for sae in params.saes if f"explain@{sae}" in failed}
    scores = [cell.name for cell in _cells(params, data) if cell.contract is SCORES and cell.sae in saes and _status(cell) is not None]
    edges = [
        f"edges@{name}" for name, one in params.jacobians.items() if {one.input, one.output} & saes and (data / "edges" / name).exists()
    ]
    compared = ["compare", "track"] if (data / "comparison").exists() else []
    return [*(cell for cell in scores if cell not in failed), *edges, *compared]


def _cells(params: Params, data: Path) -> Iterator[_Cell]:
    for sae in params.saes:
        folder = data / "explanations" / sae
        yield _Cell(name=f"explain@{sae}", sae=sae, folder=folder, contract=EXPLANATIONS, table="explanations.parquet")
    for sae in params.saes:
        for scorer in params.scorers:
            folder = data / "scores" / sae / scorer
            yield _Cell(name=f"score@{sae}-{scorer}", sae=sae, folder=folder, contract=SCORES, table="judgments.parquet")


def _status(cell: _Cell) -> list[str] | None:
    """The status of each row; None where there are no results that can be read."""
    try:
        return read_table(cell.folder, cell.contract, cell.table, ["status"])["status"].to_pylist()
    except ContractError:
        return None  # not made yet, or of another version: `dvc repro` makes it


def _failed(cell: _Cell) -> Iterator[Failed]:
    status = _status(cell) or []
    n_failed = status.count(Status.CLIENT_ERROR.value)
    if n_failed:
        yield Failed(cell=cell.name, n_rows=len(status), n_failed=n_failed)
