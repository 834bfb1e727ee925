"""`jacobians` of params.yaml: what names alone tell to be wrong is told before any work."""

import pytest

from latentry.errors import ParamsError
from latentry.params import parse_params
from small_params import put, small_params

MLP = "model.layers.1.mlp"
TRAIN = {"epochs": 1, "k": 4}


def tree(**changes):
    whole = small_params(
        subject__hookpoints={
            "mlp-in": {"module": MLP, "side": "input"},
            "mlp-out": {"module": MLP},
            "other-out": {"module": "model.layers.0.mlp"},
            "redrawn-out": {"module": MLP, "random": {}},
        },
        saes={
            name: {"kind": "sae_lens", "hookpoint": name, "width": 64, "loss": "topk", "train": TRAIN}
            for name in ("mlp-in", "mlp-out", "other-out", "redrawn-out")
        },
        jacobians={"one": {"input": "mlp-in", "output": "mlp-out", "scorer": "embedding"}},
    )
    for path, value in changes.items():
        put(whole, path.replace("__", "."), value)
    return whole


def faults(whole) -> str:
    with pytest.raises(ParamsError) as raised:
        parse_params(whole)
    return str(raised.value)


def test_two_saes_of_one_mlp_are_right_and_none_at_all_is_too():
    assert parse_params(tree()).jacobians["one"].inputs == 10
    assert parse_params(tree(jacobians={})).jacobians == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"jacobians__one__input": "mlp-inn"}, "jacobians.one.input: 'mlp-inn' is not under `saes`; did you mean 'mlp-in'"),
        ({"jacobians__one__scorer": "embeding"}, "jacobians.one.scorer: 'embeding' is not under `scorers`; did you mean 'embedding'"),
        ({"jacobians__one__scorer": "detection"}, "jacobians.one.scorer: 'detection' is of kind 'detection'"),
        (
            {"jacobians__one__output": "other-out"},
            "jacobians.one.output: reads model.layers.0.mlp, and the input SAE model.layers.1.mlp: another layer",
        ),
        ({"jacobians__one__output": "redrawn-out"}, "jacobians.one.output: its hookpoint and that of the input SAE differ in `random`"),
        (
            {"jacobians__one": {"input": "mlp-out", "output": "mlp-in", "scorer": "embedding"}},
            "output: its hookpoint is the input of model.layers.1.mlp",
        ),
        ({"jacobians__one__input": "mlp-out"}, "jacobians.one.input: its hookpoint is the output of model.layers.1.mlp"),
        ({"jacobians__one__tokens": 0}, "jacobians.one.tokens: is 0"),
        ({"jacobians__one__input_sae": "mlp-in"}, "jacobians.one.input_sae: unknown key"),
        (
            {
                "saes__mlp-in__writes": "other-out",
                "saes__mlp-in__loss": "transcoder",
                "saes__mlp-in__train": {"epochs": 1, "l1_coefficient": 1},
            },
            "jacobians.one.input: 'mlp-in' is a transcoder",
        ),
        ({"saes__jacobians": {"kind": "random", "hookpoint": "mlp-in", "width": 64, "k": 4}}, "saes.jacobians: the name stands for"),
    ],
)
def test_what_names_tell_to_be_wrong_is_told(changes, said):
    assert said in faults(tree(**changes))


def test_a_half_of_the_wrong_side_is_told():
    halves = {
        f"pair-{half}": {"kind": "jsae", "hookpoint": f"mlp-{half[:-3]}", "width": 64, "half": half, "folder": "pair"}
        for half in ("input", "output")
    }
    halves["pair-input"]["hookpoint"], halves["pair-output"]["hookpoint"] = "mlp-in", "mlp-out"
    saes = {"pair-input": halves["pair-output"] | {"hookpoint": "mlp-in"}, "pair-output": halves["pair-output"]}
    whole = tree(saes=saes, jacobians={"one": {"input": "pair-input", "output": "pair-output", "scorer": "embedding"}})
    assert "jacobians.one.input: is the output half of its pair; name the input half" in faults(whole)
