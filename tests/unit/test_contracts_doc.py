"""The contracts between stages, and the page that tells of them."""

from pathlib import Path

import pytest

from latentry.contracts import CONTRACTS, as_markdown

PAGE = Path(__file__).parents[2] / "docs" / "contracts.md"


def test_the_page_is_what_the_code_says():
    assert PAGE.read_text(encoding="utf-8") == as_markdown(), "docs/contracts.md is stale: run `make docs`"


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.name)
def test_every_contract_has_its_version_files_and_columns_on_the_page(contract):
    section = as_markdown().split(f"## {contract.name}, version {contract.version}\n")[1].split("\n## ")[0]
    assert all(f"`{name}`" in section for name in (*contract.tables, *contract.others))
    for schema in contract.tables.values():
        assert all(f"`{field.name}` {field.type}" in section for field in schema)


def test_no_two_contracts_share_a_name_and_no_table_has_a_column_twice():
    assert len({contract.name for contract in CONTRACTS}) == len(CONTRACTS)
    assert all(len(set(schema.names)) == len(schema.names) for contract in CONTRACTS for schema in contract.tables.values())
