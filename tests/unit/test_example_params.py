"""`examples` of params.yaml: which latents, and contrasts that name models and each other."""

import copy
from typing import Any

import pytest

from latentry.errors import ParamsError
from latentry.params import Params, parse_params
from small_params import put, small_params

SEMANTIC = {"kind": "semantic", "model": "encoder"}


def with_contrasts(**contrasts: Any) -> dict[str, Any]:
    return small_params(examples__contrasts={"random": {}, **contrasts})


def changed(tree: dict[str, Any], **places: Any) -> dict[str, Any]:
    """A copy with some places set anew, by dotted path with `__` for the dots."""
    tree = copy.deepcopy(tree)
    for path, value in places.items():
        put(tree, path.replace("__", "."), value)
    return tree


def faults(tree: dict[str, Any]) -> str:
    with pytest.raises(ParamsError) as raised:
        parse_params(tree)
    return str(raised.value)


def parsed(tree: dict[str, Any]) -> Params:
    return parse_params(tree)


def test_latents_may_be_all_a_list_or_a_range_and_their_number_may_be_left_open() -> None:
    for asked in ("all", [3, 17], {"first": 0, "last": 63}):
        assert parsed(small_params(examples__latents=asked)).examples.latents is not None
    tree = small_params()
    del tree["examples"]["n_latents"]
    assert parsed(tree).examples.n_latents is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"examples__latents": [3, 64]}, "examples.latents: 64 is no latent of SAE 'topk-64', which has 0 to 63"),
        ({"examples__latents": {"first": 0, "last": 64}}, "examples.latents: 64 is no latent of SAE 'topk-64'"),
        ({"examples__latents": {"first": 9, "last": 3}}, "last is 3; at least first, 9"),
        ({"examples__latents": [True]}, "examples.latents.0: is True; input should be a valid integer"),
        ({"examples__latents": {"first": False, "last": 3}}, "examples.latents.first: is False; input should be a valid integer"),
        ({"examples__strata": 1}, "examples.strata: is 1; input should be greater than or equal to 2"),
        ({"examples__windows": "sliding"}, "examples.windows: is 'sliding'; input should be 'fixed' or 'centred'"),
        ({"examples__explain__how": "best"}, "examples.explain.how: is 'best'"),
        ({"examples__window": 40}, "examples.window: is 40; at most `tokens.context`, 32"),
    ],
)
def test_wrong_settings_of_the_sample_and_the_windows_are_told_with_what_is_allowed(changes: dict[str, Any], said: str) -> None:
    assert said in faults(small_params(**changes))


@pytest.mark.parametrize(
    ("contrasts", "said"),
    [
        (
            {"near": {"kind": "semantic", "model": "encodr"}},
            "examples.contrasts.near.model: 'encodr' is not under `models`; did you mean 'encoder'",
        ),
        ({"near": {"kind": "semantic"}}, "examples.contrasts.near.model: is missing"),
        ({"alike": {"kind": "neighbours", "by": "dot"}}, "examples.contrasts.alike.by: is 'dot'; input should be 'jaccard' or 'cosine'"),
        (
            {"mixture": {"kind": "mixed", "shares": {"random": 0.5, "rando": 0.5}}},
            "'rando' is not under `examples.contrasts`; did you mean 'random'",
        ),
        ({"mixture": {"kind": "mixed", "shares": {"random": 0.5, "near": 0.6}}, "near": SEMANTIC}, "the shares add up to 1.1, wanted 1"),
        (
            {
                "one": {"kind": "mixed", "shares": {"random": 0.5, "near": 0.5}},
                "two": {"kind": "mixed", "shares": {"random": 0.5, "one": 0.5}},
                "near": SEMANTIC,
            },
            "examples.contrasts.two.shares: 'one' is mixed itself; name its parts",
        ),
        (
            {"wrong-position": {"kind": "same_document"}},
            "examples.contrasts.wrong-position: the name means the contrasts that fuzzing makes",
        ),
        ({"windows": {"kind": "random"}}, "examples.contrasts.windows: the name means the activating examples in their ids; rename"),
        (
            {"mixture": {"kind": "mixed", "shares": {"random": 0.98, "same_document": 0.02}}, "same_document": {}},
            "examples.contrasts.mixture.shares: 'same_document' has none of the 10 windows of `examples.held_out.n_contrast`",
        ),
        ({"neighbors": {}}, "examples.contrasts.neighbors.kind: there is no 'neighbors'; did you mean 'neighbours'"),
    ],
)
def test_wrong_contrasts_are_told_by_their_path(contrasts: dict[str, Any], said: str) -> None:
    assert said in faults(with_contrasts(**contrasts))


def test_a_share_too_small_for_the_explain_split_is_told_where_that_split_has_the_mixture() -> None:
    mixture = {"kind": "mixed", "shares": {"random": 0.5, "same_document": 0.5}}
    others = {"random": {}, "same_document": {}}
    first = small_params(examples__contrasts={"mixture": mixture, **others}, examples__explain__n_contrast=1)
    assert "'same_document' has none of the 1 windows of `examples.explain.n_contrast`" in faults(first)
    assert parsed(changed(first, examples__explain__n_contrast=0))
    assert parsed(changed(first, examples__contrasts={**others, "mixture": mixture}))


def test_the_embedding_scorer_refuses_contrasts_that_its_own_model_chose_also_in_a_mixture() -> None:
    own = with_contrasts(near=SEMANTIC, mixture={"kind": "mixed", "shares": {"random": 0.5, "near": 0.5}})
    for contrast in ("near", "mixture"):
        said = faults(changed(own, scorers__embedding__contrast=contrast))
        assert "scorers.embedding.contrast: 'near' is chosen by 'encoder', the scorer's own model; name another" in said
    assert parsed(changed(own, scorers__detection__contrast="near"))
    second = {"format": "folder", "sources": [{"kind": "random", "purpose": "embedding_model", "seed": 1}]}
    assert parsed(changed(own, models__other=second, scorers__embedding__contrast="near", scorers__embedding__model="other"))
