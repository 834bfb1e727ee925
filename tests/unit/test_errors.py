"""Every error of ours comes out of another process as it was raised there: type, message and exit code."""

import pickle

import pytest

from latentry.errors import LatentryError, ParamsError
from latentry.exchange.bundle_file import BundleError


def tree(error: type[LatentryError]) -> list[type[LatentryError]]:
    return [error, *(below for child in error.__subclasses__() for below in tree(child))]


@pytest.mark.parametrize("kind", [kind for kind in tree(LatentryError) if kind not in (ParamsError, BundleError)])
def test_an_error_survives_the_way_between_processes(kind):
    back = pickle.loads(pickle.dumps(kind("data/tokens: holds nothing; run again")))  # noqa: S301 (our own bytes)
    assert (type(back), str(back), back.exit_code) == (kind, "data/tokens: holds nothing; run again", kind.exit_code)


def test_a_bundles_faults_survive():
    raised = BundleError(["a has changed", "b is missing"], "get it anew")
    back = pickle.loads(pickle.dumps(raised))  # noqa: S301 (our own bytes)
    assert (type(back), str(back), back.faults, back.exit_code) == (BundleError, str(raised), raised.faults, 2)


def test_wrong_params_survive_with_every_fault():
    raised = ParamsError("params.yaml", ["run.batch: is 0", "saes: is empty"])
    back = pickle.loads(pickle.dumps(raised))  # noqa: S301 (our own bytes)
    assert (str(back), back.source, back.faults) == (str(raised), raised.source, raised.faults)
