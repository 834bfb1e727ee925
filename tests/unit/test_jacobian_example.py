"""examples/jacobian: a JSAE pair, two SAEs trained apart by the same recipe, and a pair on the redrawn subject, of what the example has."""

import re
from pathlib import Path

import yaml

from latentry.params import load_params, parse_params
from small_params import small_params

ROOT = Path(__file__).parents[2]
HERE = ROOT / "examples" / "jacobian" / "params.yaml"
LIKE_THE_EXAMPLE = ("seed", "corpus", "activations", "evaluation", "latents")
PAGE = (ROOT / "docs" / "jacobian.md").read_text(encoding="utf-8")


def test_its_text_and_models_are_those_of_the_example():
    example, here = (yaml.safe_load(path.read_text()) for path in (ROOT / "params.yaml", HERE))
    assert {name: here[name] for name in LIKE_THE_EXAMPLE} == {name: example[name] for name in LIKE_THE_EXAMPLE}
    assert here["tokens"] | {"n_tokens": 0} == example["tokens"] | {"n_tokens": 0}
    assert here["models"].items() <= example["models"].items()


def test_what_is_compared_differs_in_the_loss_or_in_the_subject_alone():
    params = load_params(HERE)
    assert set(params.jacobians) == {"jsae", "separate", "redrawn"}
    for asked in params.jacobians.values():
        saes = [params.saes[name] for name in (asked.input, asked.output)]
        points = [params.subject.hookpoints[sae.hookpoint] for sae in saes]
        assert [point.side for point in points] == ["input", "output"]
        assert points[0].module == points[1].module == "model.layers.15.mlp"
    common = {"epochs", "batch", "lr", "k", "dead_after", "lr_decay", "lr_warm_up", "decoder_norm", "seed", "aux_coefficient"}
    recipes = [{knob: getattr(sae.train, knob) for knob in common} | {"width": sae.width} for sae in params.saes.values()]
    assert all(recipe == recipes[0] for recipe in recipes)


def test_the_piece_of_params_in_the_page_is_right():
    (piece,) = [yaml.safe_load(found) for found in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    saes = {name: {"kind": "random", "hookpoint": "mlp-in", "width": 64, "k": 4} for name in ("jsae-in", "topk-in")}
    saes |= {name: {"kind": "random", "hookpoint": "mlp-out", "width": 64, "k": 4} for name in ("jsae-out", "topk-out")}
    points = piece["subject"]["hookpoints"]
    params = parse_params(small_params(subject__hookpoints=points, saes=saes, jacobians=piece["jacobians"]))
    assert set(params.jacobians) == {"pair", "separate"}
