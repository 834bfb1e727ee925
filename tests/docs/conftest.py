"""One small example, run once for all tests of the docs that need results."""

from collections.abc import Callable
from pathlib import Path

import pytest

from docs.example_project import copy_of, lay_out, run_all


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """A project in which every cell has run."""
    folder = tmp_path_factory.mktemp("docs") / "project"
    lay_out(folder)
    run_all(folder)
    return folder


@pytest.fixture(scope="session")
def project_of(finished: Path, tmp_path_factory) -> Callable[[str], Path]:
    """A copy of one's own, under a name."""
    return lambda name: copy_of(finished, tmp_path_factory.mktemp("readers") / name)
