"""Simulation: with a judge that grades levels in slots, and with one that writes them."""

import math
import re

import numpy as np
import pytest

from fakes import ask_by, failed, scorer_inputs
from latentry.records import Reply, Request, Status
from latentry.scorers import simulation
from planted_windows import item, window

DIGITS = tuple("0123456789")


def scored(rule, one, **settings):
    """Judgments and score of one item by a judge that answers by the rule."""
    one_token = settings.pop("one_token", DIGITS)
    config = simulation.Config(kind="simulation", client="judge", **settings)
    scorer = simulation.build(config, scorer_inputs(ask=lambda _: ask_by(rule, one_token=one_token)))
    judgments = scorer.judge([one])
    return judgments, scorer.score(one, judgments, np.random.default_rng(0))


def slots(levels_of) -> object:
    """A judge in process: sure of a level at each token, which stands at the end of each slot's text."""

    def rule(request: Request) -> Reply:
        tokens = [text.split("\n")[-1].removesuffix("\t") for text in request.slots]
        sure = [{level: -0.1 if level == str(levels_of(token)) else -6.0 for level in request.alternatives} for token in tokens]
        return Reply(status=Status.OK, text="", detail="", slots=tuple(sure), key="k")

    return rule


def writes(levels_of, change=lambda text: text) -> object:
    """A judge that writes its lines after the tokens listed."""

    def rule(request: Request) -> str:
        tokens = request.messages[-1].content.split("Tokens:\n")[1].split("\n")
        return change("\n".join(f"{token}\t{levels_of(token)}" for token in tokens))

    return rule


def on(word: str, level: int = 9):
    return lambda token: level if token.strip() == word else 0


def test_levels_on_the_right_tokens_correlate_and_on_others_do_not():
    _, right = scored(slots(on("tax")), item("taxes"))
    _, wrong = scored(slots(on("house")), item("houses"))
    assert right.values["pearson_0to9"].value > 0.99
    assert wrong.values["pearson_0to9"].value < 0.1
    assert (right.n_activating, right.n_contrast, right.n_failed) == (12, 12, 0)


def test_a_level_is_the_expectation_over_the_levels_graded():
    p = {"0": 0.5, "4": 0.3, "9": 0.1}  # the rest lies on other texts
    levels = simulation.expected_levels([{level: math.log(value) for level, value in p.items()}], 1)
    assert levels == pytest.approx(((4 * 0.3 + 9 * 0.1) / 0.9,))


def test_the_metric_says_which_levels_the_judge_has():
    _, small = scored(slots(on("tax")), item("taxes"))
    _, large = scored(slots(on("tax", 10)), item("taxes"), one_token=(*DIGITS, "10"))
    _, written = scored(writes(on("tax", 10)), item("taxes"), one_token=())
    assert [set(one.values) for one in (small, large, written)] == [{"pearson_0to9"}, {"pearson"}, {"pearson"}]
    assert large.values["pearson"].value > 0.99 and written.values["pearson"].value > 0.99


def test_levels_shown_as_worked_do_not_pass_the_judges_own_top():
    asked: list[Request] = []

    def rule(request):
        asked.append(request)
        return slots(on("tax"))(request)

    scored(rule, item("taxes"))
    worked = "".join(message.content for message in asked[0].messages if message.role == "assistant")
    assert max(map(int, re.findall(r"\t(\d+)", worked))) == 9
    assert len(asked) == 24 and asked[0].alternatives == DIGITS


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "\nmore\t0",
        lambda text: text.rpartition("\n")[0],
        lambda text: text.replace("\t0", "\t11", 1),
        lambda text: text.replace("\t", " "),
        lambda text: "\n".join(reversed(text.split("\n"))),
        lambda _: "",
    ],
    ids=["a line more", "a line less", "a level beyond", "no tabs", "another order", "nothing"],
)
def test_a_written_reply_that_does_not_fit_the_tokens_counts_for_nothing(change):
    judgments, score = scored(writes(on("tax"), change), item("taxes"), one_token=())
    assert {(one.status, one.levels) for one in judgments} == {(Status.PARSE_ERROR, ())}
    assert (score.status, score.n_failed, dict(score.values)) == (Status.PARSE_ERROR, 24, {})


def test_a_fence_around_the_lines_is_no_line():
    judgments, _ = scored(writes(on("tax"), lambda text: f"```\n{text}\n```\n"), item("taxes"), one_token=())
    assert {one.status for one in judgments} == {Status.OK}


@pytest.mark.parametrize("levels", [(), ({"0": -0.1},), ({"0": math.nan},) * 9, ({},) * 9], ids=["none", "too few", "nan", "empty"])
def test_missing_log_probabilities_are_a_status(levels):
    reply = Reply(status=Status.OK, text="", detail="", slots=levels)
    judgments, _ = scored(lambda _: reply, item("taxes"))
    assert {one.status for one in judgments} == {Status.PARSE_ERROR}


def test_the_same_level_everywhere_is_constant_and_refusals_are_counted():
    _, score = scored(slots(lambda _: 3), item("taxes"))
    assert (score.status, dict(score.values)) == (Status.CONSTANT, {})
    _, refused = scored(lambda _: failed(Status.REFUSED), item("taxes"))
    assert (refused.status, refused.n_failed) == (Status.REFUSED, 24)


def test_every_token_has_its_line_also_those_that_share_a_character():
    made = window(1, 0, "tax", text="tax 🐳🐳 a\tb\n. end")
    pieces = ((0, 3), (4, 5), (4, 5), (5, 6), (7, 8), (8, 10), (10, 12), (13, 16))
    example = type(made)(
        **{name: getattr(made, name) for name in made.__slots__}
        | {"tokens": tuple(range(8)), "activations": (1.0,) + (0.0,) * 7, "spans": tuple(end for piece in pieces for end in piece)}
    )
    shown = simulation.shown_tokens(example)
    assert shown == ["tax", " 🐳", "", "🐳", " a", "⇥b", "↵.", " end"]
    assert len(simulation.slots_request("x", example, 9).slots) == 8
