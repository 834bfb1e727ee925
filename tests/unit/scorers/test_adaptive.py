"""Adaptive judging: where it stops, that what it reports is not biased, and that nobody else's answers matter."""

from dataclasses import replace

import numpy as np
import pytest

from fakes import ask_by, failed, scorer_inputs
from latentry.randomness import rng_for
from latentry.records import Judgment, Status
from latentry.registry import variant
from latentry.scorers.adaptive import Adaptive, judged_by_rounds, known_so_far, rounds_of
from latentry.scorers.asking import Case
from latentry.scorers.base import WRONG_POSITION
from planted_windows import asked, item

HELD_OUT = 50
PLANTED = item("tax", n=HELD_OUT)
CASES = [Case(example_id=example.example_id, is_activating=any(example.activations), shown="") for example in PLANTED.examples]


def scorer(kind, rule, **settings):
    config = variant("scorers", kind).Config(kind=kind, client="judge", **settings)
    return variant("scorers", kind).build(config, scorer_inputs(ask=lambda _: ask_by(rule)))


def follows(request):
    explanation, texts = asked(request.messages)
    answers = [explanation.split()[-1] in text.replace("<<", "").replace(">>", "").split() for text in texts]
    if not request.alternatives:
        return str([int(answer) for answer in answers])
    return {"Yes": -0.1, "No": -2.4} if answers[0] else {"Yes": -2.4, "No": -0.1}


def guesses(request):
    says = rng_for(0, request.messages[-1].content).random(len(asked(request.messages)[1])) < 0.5
    return str([int(answer) for answer in says]) if not request.alternatives else {"Yes": -0.5, "No": -0.6 if says[0] else -0.4}


def right_with(accuracy):
    """A judge that is right so often, by chance drawn per latent and window."""

    def judge(items, cases, number):
        made = []
        for one, of_item in zip(items, cases, strict=True):
            luck = rng_for(1, f"{accuracy} {number}", one.latent).random(len(of_item)) < accuracy
            made += [judgment(one, case, case.is_activating == right) for case, right in zip(of_item, luck.tolist(), strict=True)]
        return made

    return judge


def judgment(one, case, says):
    return Judgment(
        latent=one.latent,
        explainer=one.explainer,
        example_id=case.example_id,
        null=one.null,
        is_activating=case.is_activating,
        says_activating=says,
        confidence=None,
        status=Status.OK,
        detail="",
        reply_key=None,
    )


def of_latent(judgments, latent):
    return [one for one in judgments if one.latent == latent]


def test_a_round_holds_one_window_of_each_decile_and_ten_contrasts():
    deciles = {example.example_id: example.decile for example in PLANTED.examples}
    rounds = rounds_of(PLANTED, CASES)
    assert len(rounds) == HELD_OUT // 10
    for one in rounds:
        assert sorted(deciles[case.example_id] for case in one if case.is_activating) == list(range(1, 11))
        assert sum(not case.is_activating for case in one) == 10
    assert sorted(case.example_id for one in rounds for case in one) == sorted(case.example_id for case in CASES)


def test_what_does_not_divide_into_rounds_is_judged_in_the_last_ones():
    some = [case for case in CASES if case.is_activating][:13] + [case for case in CASES if not case.is_activating][:35]
    rounds = rounds_of(PLANTED, some)
    assert [(sum(c.is_activating for c in one), sum(not c.is_activating for c in one)) for one in rounds] == [
        (10, 10),
        (3, 10),
        (0, 10),
        (0, 5),
    ]


@pytest.mark.parametrize("accuracy", [0.5, 0.7, 0.9, 0.98])
def test_scores_of_adaptive_judging_are_not_biased_and_their_intervals_cover_the_truth(accuracy):
    latents = [replace(PLANTED, latent=latent) for latent in range(500)]
    judgments = judged_by_rounds(latents, [CASES] * len(latents), right_with(accuracy), Adaptive(max_width=0.2), 0)
    by_latent = {}
    for one in judgments:
        by_latent.setdefault(one.latent, []).append(one)
    found = [known_so_far(of) for of in by_latent.values()]
    assert len(found) == 500
    assert np.mean([one.value for one in found]) == pytest.approx(accuracy, abs=0.01)
    assert np.mean([one.low <= accuracy <= one.high for one in found]) >= 0.93


@pytest.mark.parametrize("kind", ["detection", "fuzzing"])
@pytest.mark.parametrize("way", ["single", "list"])
def test_a_clear_latent_takes_two_rounds_and_says_so_and_an_unclear_one_all(kind, way):
    clear = scorer(kind, follows, ask=way, contrast="random", adaptive={"max_width": 0.25})
    unclear = scorer(kind, guesses, ask=way, contrast="random", adaptive={"max_width": 0.15})
    few, all_of_them = clear.judge([PLANTED]), unclear.judge([PLANTED])
    assert (len(few), len(all_of_them)) == (40, 100)
    score = clear.score(PLANTED, few, rng_for(0, "test"))
    assert (score.stopped_early, score.n_activating, score.n_contrast) == (True, 20, 20)
    known = known_so_far(few)
    found = score.values["balanced_accuracy"]
    assert (found.value, found.low, found.high) == (known.value, known.low, known.high)
    assert not unclear.score(PLANTED, all_of_them, rng_for(0, "test")).stopped_early


def test_wrong_position_contrasts_are_judged_by_rounds_too():
    judge = scorer("fuzzing", lambda _: {"Yes": -0.01, "No": -5.0}, contrast=WRONG_POSITION, adaptive={"max_width": 0.3})
    judgments = judge.judge([PLANTED])
    assert [sum(one.is_activating == truth for one in judgments) for truth in (True, False)] == [20, 20]
    score = judge.score(PLANTED, judgments, rng_for(0, "test"))
    assert (score.values["balanced_accuracy"].value, score.status) == (0.5, Status.OK)


def test_without_adaptive_every_window_is_judged_and_nothing_is_marked():
    judge = scorer("detection", follows)
    judgments = judge.judge([PLANTED])
    assert len(judgments) == 100
    assert not judge.score(PLANTED, judgments, rng_for(0, "test")).stopped_early


def test_what_a_latent_is_asked_depends_on_its_own_answers_alone():
    judge = scorer("detection", follows, ask="list", adaptive={"max_width": 0.2})
    others = [item("whale", latent=2, word="tax", n=HELD_OUT), replace(PLANTED, null=True, text="whale"), item("tax", latent=3, n=20)]
    together = judge.judge([*others, PLANTED])
    alone = judge.judge([PLANTED])
    assert [one for one in together if (one.latent, one.null) == (1, False)] == alone


def test_a_null_is_stopped_by_its_own_interval():
    judge = scorer("detection", follows, adaptive={"max_width": 0.2})
    own, null = PLANTED, replace(PLANTED, null=True, text="whale")
    judgments = judge.judge([own, null])
    assert sum(not one.null for one in judgments) == 40
    # never yes: sure of the contrasts, wrong on every activating window, as narrow as all right
    assert known_so_far([one for one in judgments if one.null]).value == 0.5


def test_failed_judgments_do_not_narrow_an_interval():
    judge = scorer("detection", lambda _: failed(Status.REFUSED), adaptive={"max_width": 0.5})
    judgments = judge.judge([PLANTED])
    assert len(judgments) == 100
    assert judge.score(PLANTED, judgments, rng_for(0, "test")).status is Status.REFUSED


def test_all_stop_once_the_mean_over_latents_is_known_closely_enough():
    latents = [replace(PLANTED, latent=latent) for latent in range(40)]
    cases = [CASES] * len(latents)
    judgments = judged_by_rounds(latents, cases, right_with(0.7), Adaptive(max_sae_width=0.08), 0)
    n = {latent: len(of_latent(judgments, latent)) for latent in range(40)}
    assert set(n.values()) == {40}
    closer = judged_by_rounds(latents, cases, right_with(0.7), Adaptive(max_sae_width=0.001), 0)
    assert len(closer) == 100 * len(latents)


def test_two_latents_that_agree_by_chance_do_not_make_a_mean_that_is_known():
    latents = [replace(PLANTED, latent=latent) for latent in (1, 2)]

    def says_every_second(items, cases, number):  # noqa: ARG001
        return [judgment(one, case, i % 2 == 0) for one, of in zip(items, cases, strict=True) for i, case in enumerate(of)]

    assert len(judged_by_rounds(latents, [CASES] * 2, says_every_second, Adaptive(max_sae_width=0.1), 0)) == 200


def test_adaptive_without_a_width_is_a_fault_that_says_what_to_do():
    for wrong in ({}, {"max_width": None}, {"max_width": 0.0}, {"max_width": 0.2, "widht": 1}):
        with pytest.raises(ValueError, match=r"max_width|widht"):
            variant("scorers", "detection").Config(kind="detection", client="judge", adaptive=wrong)
