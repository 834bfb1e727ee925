"""A table that is written in parts is the table, and is there only when it is whole."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from latentry import store
from latentry.contracts import Contract
from latentry.store import Work, work

NUMBERS = Contract(name="numbers", version=1, stage="count", holds="Numbers.", tables={"numbers.parquet": pa.schema([("n", pa.int64())])})


def part(first: int, last: int) -> pa.Table:
    return pa.table({"n": pa.array(range(first, last), pa.int32())})


def made(project, parts: list[pa.Table]) -> pa.Table:
    with work(project / "out", NUMBERS, cell="numbers", params={"parts": len(parts)}) as making:
        assert making is not None
        with making.open_table("numbers.parquet") as write:
            for one in parts:
                write(one)
    return pq.read_table(project / "out" / "numbers.parquet")


def test_parts_are_one_table_of_the_contract_with_the_bytes_of_one_written_whole(project, tmp_path) -> None:
    assert made(project, [part(0, 5), part(5, 9)])["n"].to_pylist() == list(range(9))
    whole = Work(tmp_path, tmp_path, NUMBERS)
    whole.write_table("numbers.parquet", part(0, 9))
    assert (tmp_path / "numbers.parquet").read_bytes() == (project / "out" / "numbers.parquet").read_bytes()


def test_many_parts_become_few_row_groups_and_none_becomes_an_empty_table(project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ROWS_PER_GROUP", 10)
    assert made(project, [part(i, i + 1) for i in range(35)]).num_rows == 35
    assert pq.ParquetFile(project / "out" / "numbers.parquet").num_row_groups == 4
    assert made(project, []).num_rows == 0


def test_a_fault_between_two_parts_leaves_no_file(tmp_path) -> None:
    making = Work(tmp_path, tmp_path, NUMBERS)
    with pytest.raises(ValueError, match="in between"), making.open_table("numbers.parquet") as write:
        write(part(0, 5))
        raise ValueError("in between")
    assert list(tmp_path.iterdir()) == []
