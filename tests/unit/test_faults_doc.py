"""docs/faults.md against the suite: every row names tests that exist, and every test of the suite stands in a row."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"
NAMED = re.compile(r"`([a-z_/]+\.py)::(test_\w+)`")


def named_in(path: Path) -> set[tuple[str, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {(path.relative_to(ROOT / "tests").as_posix(), node.name) for node in functions if node.name.startswith("test_")}


def rows() -> list[str]:
    return [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and not line.startswith("| fault")]


def test_every_row_names_tests_that_exist():
    there = {test for path in (ROOT / "tests").rglob("test_*.py") for test in named_in(path)}
    named = [(row, set(NAMED.findall(row))) for row in rows()]
    assert len(named) > 20
    assert [row for row, tests in named if not tests] == []
    assert [test for _, tests in named for test in tests - there] == []


def test_every_test_of_the_suite_stands_in_a_row():
    suite = {test for path in (ROOT / "tests" / "faults").glob("test_*.py") for test in named_in(path)}
    assert suite - set(NAMED.findall("\n".join(rows()))) == set()


def test_rows_say_fault_place_outcome_and_remedy():
    assert {row.count(" | ") for row in rows()} == {4}
