"""What params.yaml may say of steering."""

import pytest

from latentry.errors import ParamsError
from latentry.params import parse_params
from small_params import small_params

INTERVENTION = {"kind": "intervention", "client": "base"}
BASE = {"clients__base": {"kind": "transformers", "model": "subject", "chat": False}}


def faults_of(tree: dict) -> tuple[str, ...]:
    try:
        parse_params(tree)
    except ParamsError as error:
        return tuple(error.faults)
    return ()


def test_whoever_steers_needs_prompts():
    steering = {**BASE, "scorers__cause": INTERVENTION, "explainers__effect": {"kind": "steered", "client": "judge"}}
    assert faults_of(small_params(**steering)) == (
        "explainers.effect: steers latents on prompts, and none are drawn; set `examples.steering`, {} for its defaults",
        "scorers.cause: steers latents on prompts, and none are drawn; set `examples.steering`, {} for its defaults",
    )
    assert faults_of(small_params(**steering, examples__steering={"tokens": 16})) == ()


def test_sensitivity_needs_no_prompts_and_no_contrast():
    assert faults_of(small_params(scorers__fires={"kind": "sensitivity", "client": "judge"})) == ()


def test_prompts_are_no_longer_than_a_context():
    assert faults_of(small_params(examples__steering={})) == ("examples.steering.tokens: is 64; at most `tokens.context`, 32",)


@pytest.mark.parametrize("contexts", [10, 30])
def test_prompts_are_even_over_quintiles_and_purposes(contexts):
    (fault,) = faults_of(small_params(examples__steering={"contexts": contexts, "tokens": 16}))
    assert fault.startswith(f"examples.steering.contexts: is {contexts}; ")


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        (INTERVENTION | {"kl": 0}, "kl"),
        (INTERVENTION | {"mode": "patch"}, "mode"),
        ({"kind": "sensitivity", "client": "judge", "temperature": 0}, "temperature"),
        ({"kind": "sensitivity", "client": "nobody"}, "client"),
    ],
)
def test_wrong_knobs_name_their_path(entry, path):
    (fault,) = faults_of(small_params(**BASE, scorers__cause=entry, examples__steering={"tokens": 16}))
    assert fault.startswith(f"scorers.cause.{path}: ")
