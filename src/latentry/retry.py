"""Which cells hold rows whose call failed for the moment, so that they can be run again: `latentry retry`.

What was answered stays answered: only calls that brought nothing are asked again, since the reply store keeps no failure of that kind.
"""

from collections.abc import Iterator
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


def failed_cells(params: Params, data: Path = Path("data")) -> list[Failed]:
    """The cells that params name, in the order in which they run; one that is not there is left out."""
    cells = [(f"explain@{sae}", data / "explanations" / sae, EXPLANATIONS, "explanations.parquet") for sae in params.saes]
    cells += [
        (f"score@{sae}-{scorer}", data / "scores" / sae / scorer, SCORES, "judgments.parquet")
        for sae in params.saes
        for scorer in params.scorers
    ]
    return [failed for cell in cells for failed in _failed(*cell)]


def _failed(cell: str, folder: Path, contract: Contract, table: str) -> Iterator[Failed]:
    try:
        status = read_table(folder, contract, table, ["status"])["status"].to_pylist()
    except ContractError:
        return  # not made yet, or of another version: `dvc repro` makes it
    n_failed = status.count(Status.CLIENT_ERROR.value)
    if n_failed:
        yield Failed(cell=cell, n_rows=len(status), n_failed=n_failed)
