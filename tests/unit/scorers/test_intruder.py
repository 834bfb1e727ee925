"""The intruder, with judges that see the planted word, or nothing."""

import re

import numpy as np
import pytest

from fakes import ask_by, failed, scorer_inputs
from latentry.records import Request, Status
from latentry.scorers import intruder
from latentry.scorers.base import Item
from planted_windows import held_out, item


def scored(rule, one: Item, **settings):
    config = intruder.Config(kind="intruder", client="judge", **settings)
    scorer = intruder.build(config, scorer_inputs(ask=lambda _: ask_by(rule)))
    judgments = scorer.judge([one])
    return judgments, scorer.score(one, judgments, np.random.default_rng(0))


def shown(request: Request) -> dict[str, str]:
    return dict(re.findall(r"^(\d)\. (.*)$", request.messages[-1].content, re.MULTILINE))


def sees(request: Request) -> dict[str, float]:
    """Names the window without the word."""
    return {number: -3.0 if "tax" in text.split() else -0.1 for number, text in shown(request).items()}


FULL = item("", n=40)
"""Four windows of every decile."""


def test_a_judge_that_sees_the_word_finds_every_intruder_and_one_that_does_not_one_in_five():
    judgments, score = scored(sees, FULL)
    assert len(judgments) == len({one.example_id for one in judgments}) == 30
    assert (score.values["accuracy"].value, score.n_activating) == (1.0, 30)
    many = Item(latent=1, explainer="none", null=False, text="", examples=FULL.examples)
    blind = [
        scored(lambda _: {"3": -0.1, "1": -2.0}, Item(latent=n, explainer="none", null=False, text="", examples=many.examples))
        for n in range(40)
    ]
    assert np.mean([score.values["accuracy"].value for _, score in blind]) == pytest.approx(0.2, abs=0.04)  # 1,200 trials: s.e. .012


def test_a_trial_is_four_different_windows_of_one_decile_and_a_silent_one():
    deciles = {one.text: one.decile for one in FULL.examples}
    for trial in intruder.trials(FULL, "random", 0):
        others = [deciles[text] for number, text in enumerate(trial.texts, start=1) if number != trial.intruder]
        assert len(set(trial.texts)) == 5 and len(set(others)) == 1 and others[0] > 0
        assert deciles[trial.texts[trial.intruder - 1]] == 0


def test_trials_are_even_over_deciles_in_every_prefix_of_ten_and_drawn_by_latent():
    made = intruder.trials(FULL, "random", 0)
    for start in (0, 10, 20):
        assert sorted(int(trial.trial_id.split("/")[2]) for trial in made[start : start + 10]) == list(range(1, 11))
    assert intruder.trials(FULL, "random", 1) != made
    judgments, _ = scored(sees, FULL, max_examples=7)
    assert [one.example_id for one in judgments] == [trial.trial_id for trial in made[:7]]


def test_a_decile_with_too_few_windows_is_a_counted_shortfall():
    fires = tuple(one for one in FULL.examples if one.decile != 3 or one.example_id.endswith("/2"))
    judgments, score = scored(sees, Item(latent=1, explainer="none", null=False, text="", examples=fires))
    short = [one for one in judgments if one.status is Status.UNDERSAMPLED]
    assert len(short) == 3 and {one.detail for one in short} == {"1 activating windows in decile 3 of the 4 needed"}
    assert (score.n_activating, score.n_failed, score.values["accuracy"].value) == (27, 3, 1.0)
    _, none = scored(sees, item("", n=12))
    assert (none.status, none.n_failed, dict(none.values)) == (Status.UNDERSAMPLED, 30, {})
    silent = Item(latent=1, explainer="none", null=False, text="", examples=held_out(1, "tax", 40)[:40])
    assert {one.detail for one in scored(sees, silent)[0]} == {"no contrast"}


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ({"1": -4.0, " 4": -0.2, "5": -3.0}, 4),
        ({"2": -1.0, "1": -1.0}, 1),
        ("5", 5),
        (" **3**.", 3),
        ("", None),
        ("15", None),
        ("six", None),
        ({"Text": -0.1, "The": -2.0}, None),
    ],
)
def test_what_a_reply_names(answer, number):
    (reply,) = ask_by(lambda _: answer)([Request(messages=intruder.prompt(["a"] * 5)[-1:], max_tokens=1)])  # type: ignore[arg-type]
    assert intruder.named(reply) == number


@pytest.mark.parametrize(("answer", "status"), [("?", Status.PARSE_ERROR), (failed(Status.REFUSED), Status.REFUSED)])
def test_unreadable_and_failed_replies_are_statuses(answer, status):
    judgments, score = scored(lambda _: answer, FULL)
    assert {(one.status, one.value) for one in judgments} == {(status, None)}
    assert (score.status, score.n_failed) == (status, 30)
