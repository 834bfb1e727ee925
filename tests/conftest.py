"""The whole tiny pipeline, run once for all its tests; and its being here puts `tests` on the import path: fakes and planted corpora are
imported by their names."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.tiny import lay_out, run


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Path:
    """A project in which every cell has run."""
    folder = tmp_path_factory.mktemp("tiny")
    lay_out(folder)
    run(folder, "dvc", "repro", "--quiet")
    return folder


@pytest.fixture(scope="session")
def copied(whole: Path, tmp_path_factory) -> Callable[[str], Path]:
    """A project of one's own with all that has run, and the parameters as they were."""

    def copy(name: str) -> Path:
        folder = tmp_path_factory.mktemp("copies") / name
        shutil.copytree(whole, folder)
        lay_out(folder)
        return folder

    return copy
