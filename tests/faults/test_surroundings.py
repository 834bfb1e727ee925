"""What stands around a run: its clock, language, umask, folder and hash seed. None of it is in a result."""

import os
import shutil
from pathlib import Path

import pytest

from faults.disturbed import CELLS, MAKERS, STORES, assert_nothing_left, ended, forget, locked, results, start, take_away

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FAKE_TIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
AROUND = {
    "a clock in 1999": {"LD_PRELOAD": str(FAKE_TIME), "FAKETIME": "@1999-12-31 23:59:58"},
    "a clock in 2037": {"LD_PRELOAD": str(FAKE_TIME), "FAKETIME": "@2037-06-01 00:00:00"},
    "another time zone": {"TZ": "Pacific/Kiritimati"},
    "the plain C language": {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "POSIX without UTF-8 for input and output": {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii:strict"},
    "a comma for decimals": {"LC_ALL": "de_DE.UTF-8", "LC_NUMERIC": "de_DE.UTF-8"},
    "another hash seed": {"PYTHONHASHSEED": "4242"},
}
LATER = [CELLS[name] for name in ("tokens", "examples@tiny", "explain@tiny", "score@tiny-detection", "compare")]
"""Cells that handle text, or a clock, or sets of names."""


@pytest.mark.parametrize("around", AROUND)
def test_no_result_depends_on_what_stands_around(project, whole, around):
    """The cells run as processes of their own, each from nothing."""
    if "LD_PRELOAD" in AROUND[around] and FAKE_TIME is None:
        pytest.skip("libfaketime is not installed (Debian: libfaketime)")
    for made in STORES:
        shutil.rmtree(project / made)
    take_away(project, *LATER)
    for cell in LATER:
        code, said = ended(start(project, "python", *cell.command.split(), **AROUND[around]))
        assert code == 0, said
    assert results(project, *LATER) == results(whole, *LATER)


def test_dvc_goes_on_after_the_clock_was_set_back(project, whole):
    """Results are older than what they were made from, by their times; digests decide, so nothing but `track` runs."""
    for number, path in enumerate(sorted(path for path in (project / "data").rglob("*") if path.is_file())):
        os.utime(path, (1e9 + number % 7 * 1e8,) * 2)
    code, said = ended(start(project, "dvc", "repro"))
    assert code == 0, said
    assert [line for line in said.splitlines() if line.startswith("Running stage")] == ["Running stage 'track':"]
    assert results(project) == results(whole)


@pytest.mark.parametrize("mask", [0o077, 0o000], ids=oct)
def test_the_umask_decides_who_may_read_and_nothing_else(project, whole, mask):
    cells = [CELLS["examples@tiny"], CELLS["score@tiny-embedding"]]
    forget(project, *cells)
    before = os.umask(mask)
    try:
        code, said = ended(start(project, "dvc", "repro", "-s", *(cell.name for cell in cells)))
    finally:
        os.umask(before)
    assert code == 0, said
    assert results(project, *cells) == results(whole, *cells)
    assert locked(project) == locked(whole)


@pytest.mark.parametrize("name", ["with spaces, Überprüfung", "日本語 🐋", "quote's & $HOME; a%20b#c?d", "-dash"])
def test_a_folder_of_any_name_holds_the_same_results(copied, whole, name):
    project = copied("named").parent / name
    project.with_name("named").rename(project)
    cells = [cell for cell in MAKERS if not cell.name.startswith(("models", "sae", "activations"))]
    forget(project, *cells)
    code, said = ended(start(project, "dvc", "repro"))
    assert code == 0, said
    assert "TRACKING FAILED" not in said
    assert results(project) == results(whole)
    assert locked(project) == locked(whole)
    assert_nothing_left(project)
    shutil.rmtree(project)


def test_a_command_in_a_folder_below_uses_the_project_or_says_where_to_go(project):
    below = project / "report"
    code, said = ended(start(below, "latentry", "check", PYTHONPATH=str(project / "src")))
    assert code == 2 and "run from the project's folder" in said and "Traceback" not in said
    code, said = ended(start(below, "dvc", "repro", "../dvc.yaml:tokens", PYTHONPATH=str(project / "src")))
    assert code == 0, said
