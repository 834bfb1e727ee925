"""Entries of `saes` that are no pair: each fault by its path, what was found, and what to do."""

import copy

import pytest

from latentry.errors import ParamsError
from latentry.params import parse_params
from small_params import put, small_params

HOOKPOINTS = {
    "mlp-in": {"module": "model.layers.1.mlp", "side": "input"},
    "mlp-out": {"module": "model.layers.1.mlp", "side": "output"},
    "next-out": {"module": "model.layers.2.mlp", "side": "output"},
    "norm-out": {"module": "model.layers.1.post_attention_layernorm", "side": "output"},
    "random-out": {"module": "model.layers.1.mlp", "side": "output", "random": {}},
}
TRAIN = {"epochs": 1, "k": 4}
PAIR = {
    "jsae-in": {"kind": "jsae", "half": "input", "hookpoint": "mlp-in", "width": 64, "train": TRAIN | {"partner": "mlp-out"}},
    "jsae-out": {"kind": "jsae", "half": "output", "hookpoint": "mlp-out", "width": 64, "train": TRAIN | {"partner": "mlp-in"}},
}
LOADED = {
    "pair-in": {"kind": "jsae", "half": "input", "hookpoint": "mlp-in", "width": 64, "folder": "/a/pair"},
    "pair-out": {"kind": "jsae", "half": "output", "hookpoint": "mlp-out", "width": 64, "folder": "/a/pair"},
}


def faults_of(saes, **changes):
    tree = small_params(subject__hookpoints=HOOKPOINTS, saes=copy.deepcopy(saes))
    for path, value in changes.items():
        put(tree, path.replace("__", "."), value)
    try:
        parse_params(tree)
    except ParamsError as error:
        return "\n".join(error.faults)
    return ""


def test_a_pair_has_no_faults_and_says_what_it_reads():
    params = parse_params(small_params(subject__hookpoints=HOOKPOINTS, saes=PAIR))
    assert params.saes["jsae-in"].pair == params.saes["jsae-out"].pair == ("mlp-in", "mlp-out")
    assert faults_of(PAIR | LOADED) == ""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"saes__jsae-out__width": 32}, "saes.jsae-in: differs from its partner 'jsae-out' in `width` (64, 32); "),
        ({"saes__jsae-out__train__k": 8}, "saes.jsae-out: differs from its partner 'jsae-in' in `train.k` (8, 4); "),
        ({"saes__jsae-in__train__jacobian_coefficient": 3}, "in `train.jacobian_coefficient` (3.0, 300.0)"),
        ({"saes__jsae-in__train__partner": "nowhere"}, "saes.jsae-in.train.partner: 'nowhere' is not under `subject.hookpoints`"),
        (
            {"saes__jsae-in__train__partner": "next-out"},
            "saes.jsae-in.train.partner: 'next-out' is of 'model.layers.2.mlp', 'mlp-in' of 'model.layers.1.mlp'; ",
        ),
        (
            {"saes__jsae-in__half": "output"},
            "saes.jsae-in.hookpoint: 'mlp-in' is the input of 'model.layers.1.mlp', 'mlp-out' the output; ",
        ),
        ({"saes__jsae-in__train__partner": "random-out"}, "'random-out' and 'mlp-in' differ in `random`"),
        ({"saes__jsae-in__writes": "mlp-out"}, "leave `writes` out, and name `train.partner`"),
        ({"saes__jsae-in__folder": "/a/pair"}, "found train and folder of `train`, `folder` and `hub`; name exactly one"),
        ({"saes__jsae-in__train__k": 65}, "saes.jsae-in.train.k: 65 is above the width"),
        ({"saes__jsae-in__train__lambda": 1}, "saes.jsae-in.train.lambda: is 1; unknown key"),
        ({"saes__jsae-in__train__l1_coefficient": 1}, "loss 'jsae' has no such knob (its own are k, aux_coefficient, partner, "),
    ],
)
def test_each_fault_of_a_pair_that_is_trained_is_told(changes, told):
    assert told in faults_of(PAIR, **changes)


@pytest.mark.parametrize(("alone", "other"), [("jsae-in", "output"), ("jsae-out", "input")])
def test_a_half_without_its_partner_is_told(alone, other):
    told = faults_of({alone: PAIR[alone]})
    assert (
        f"saes.{alone}: its partner is missing: no entry of kind jsae is the half of the {other} at '{PAIR[alone]['train']['partner']}'"
        in told
    )


def test_of_several_pairs_at_one_mlp_each_half_finds_its_own():
    others = {f"other-{half}": entry | {"width": 32} for half, entry in zip(("in", "out"), PAIR.values(), strict=True)}
    assert faults_of(PAIR | others) == ""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"saes__pair-out__hookpoint": "next-out"},
            "saes.pair-out.hookpoint: 'next-out' is of model.layers.2, the pair's other half 'pair-in' of model.layers.1; ",
        ),
        (
            {"saes__pair-out__hookpoint": "mlp-in"},
            "saes.pair-out.hookpoint: 'mlp-in' is an input; the half of the output reads an MLP's output",
        ),
        ({"saes__pair-out__width": 32}, "saes.pair-out.width: is 32, the pair's other half 'pair-in' has 64; a pair has one width"),
    ],
)
def test_each_fault_of_a_pair_from_elsewhere_is_told(changes, told):
    assert told in faults_of(LOADED, **changes)


def test_a_pair_from_elsewhere_may_read_the_norm_before_the_mlp_and_a_half_may_come_alone():
    normed = LOADED | {"pair-in": LOADED["pair-in"] | {"hookpoint": "norm-out"}}
    assert faults_of(normed) == ""
    assert faults_of({"pair-out": LOADED["pair-out"]}) == ""
