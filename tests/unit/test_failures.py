"""How many rows may fail by the world's fault before a stage stops, and what its process then ends with."""

import logging
import os

import pytest

from latentry.errors import CorpusError, EndpointError, GateError, LatentryError, ParamsError, TooManyFailuresError
from latentry.failures import check_failures
from latentry.records import Status
from latentry.runtime import device_of, run_stage

OK, REFUSED, PARSE = Status.OK, Status.REFUSED, Status.PARSE_ERROR


@pytest.mark.parametrize("fraction", [0.2, 0.3, 1.0])
def test_as_many_failures_as_allowed_pass(fraction):
    check_failures([OK] * 8 + [REFUSED, PARSE], fraction, "cell")


def test_one_more_stops_with_counts_by_status():
    with pytest.raises(
        TooManyFailuresError, match=r"explain@a: 3 of 10 rows failed \(2 refused, 1 parse_error\), above max_failed_fraction 0\.2"
    ):
        check_failures([OK] * 7 + [REFUSED, REFUSED, PARSE], 0.2, "explain@a")


@pytest.mark.parametrize("status", [Status.PARSE_ERROR, Status.REFUSED, Status.TRUNCATED, Status.CLIENT_ERROR])
def test_with_none_allowed_any_failure_of_the_world_stops(status):
    with pytest.raises(TooManyFailuresError):
        check_failures([OK] * 99 + [status], 0.0, "cell")


@pytest.mark.parametrize("status", [Status.DEAD, Status.UNDERSAMPLED, Status.SINGLE_CLASS, Status.CONSTANT, Status.UNSUPPORTED])
def test_what_is_nobodys_failure_never_stops(status):
    check_failures([status] * 10, 0.0, "cell")


def test_no_rows_are_no_failures():
    check_failures([], 0.0, "cell")


@pytest.fixture
def quiet(monkeypatch):
    """Running a stage sets the process's environment and logging; both are put back."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    levels = {
        name: logging.getLogger(name).level
        for name in ("transformers", "sentence_transformers", "httpx", "openai", "mlflow", "alembic", "sae_lens")
    }
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LatentryError("x"), 1),
        (GateError("x"), 1),
        (TooManyFailuresError("x"), 1),
        (ParamsError("params.yaml", ["x"]), 2),
        (CorpusError("x"), 2),
        (EndpointError("x"), 3),
    ],
)
def test_a_stage_ends_with_the_code_of_its_error_and_its_message_without_a_traceback(capsys, error, code):
    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        run_stage(main)
    assert ended.value.code == code
    assert capsys.readouterr().err == f"error: {error}\n"


@pytest.mark.usefixtures("quiet")
def test_a_stage_that_ends_well_ends_with_0_and_a_fault_of_ours_is_not_hidden(capsys):
    with pytest.raises(SystemExit) as ended:
        run_stage(lambda: None)
    assert ended.value.code == 0
    with pytest.raises(SystemExit) as ended:
        run_stage(lambda: 1 / 0)
    assert ended.value.code == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_named_device_is_taken_as_named():
    assert str(device_of("cpu")) == "cpu"
    assert device_of("auto").type in {"cpu", "cuda", "mps", "xpu"}
