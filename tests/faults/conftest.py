"""Stages that start at once, and projects to disturb."""

import pytest

from faults.disturbed import put_back
from faults.stage_runs import StageRuns
from pipeline.tiny import environment


@pytest.fixture(scope="session")
def stages(tmp_path_factory):
    """Runs stages as `dvc` would, without the seconds that they take to load."""
    runs = StageRuns(environment(tmp_path_factory.getbasetemp()))
    yield runs
    runs.close()


@pytest.fixture(scope="module")
def one_project(request, copied):
    """A copy of the whole project for the tests of one file."""
    return copied(request.module.__name__.rpartition(".")[2])


@pytest.fixture
def project(one_project, whole):
    """The copy, put right before each test."""
    put_back(one_project, whole)
    return one_project
