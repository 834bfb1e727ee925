"""How replies become judgments."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import ask_by
from latentry.records import Message, Reply, Status
from latentry.scorers.asking import Case, judged_singly, listed_answers, p_yes, yes_or_no
from latentry.scorers.base import Item


def reply(alternatives: dict[str, float]) -> Reply:
    return Reply(status=Status.OK, text="", detail="", alternatives=alternatives)


def logs(**probabilities: float) -> dict[str, float]:
    return {text.replace("_", " "): math.log(p) for text, p in probabilities.items()}


def test_p_yes_sums_every_spelling_of_each_side():
    graded = reply(logs(Yes=0.2, yes=0.1, _Yes=0.1, YES=0.05, No=0.1, _no=0.05, Maybe=0.3))
    assert p_yes(graded) == pytest.approx(0.45 / 0.60)


def test_p_yes_takes_the_smallest_alternative_for_an_absent_side():
    assert p_yes(reply(logs(Yes=0.9, The=0.06, A=0.04))) == pytest.approx(0.9 / 0.94)
    assert p_yes(reply(logs(No=0.9, The=0.06, A=0.04))) == pytest.approx(0.04 / 0.94)


@pytest.mark.parametrize("alternatives", [{"Yes": -0.1}, {"Yes": 0.0}, {"No": -9999.0}, {"Yes": 5.0}, {"Yes": 5.0, "No": -1.0}])
def test_one_log_probability_or_an_impossible_one_grades_nothing(alternatives: dict[str, float]):
    assert p_yes(reply(alternatives)) is None


def test_a_log_probability_of_1_may_be_rounded_upwards():
    assert p_yes(reply({"Yes": 1e-4, "No": -9.0})) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(("alternatives", "why"), [({"Yes": 0.0}, "top_logprobs"), ({"Yes": 5.0, "No": -1.0}, "above 0")])
def test_judgments_say_why_log_probabilities_grade_nothing(alternatives: dict[str, float], why: str):
    item = Item(latent=1, explainer="told", null=False, text="taxes", examples=())
    case = Case(example_id="a", is_activating=True, shown="tax")
    (row,) = judged_singly(ask_by(lambda _: alternatives), [item], [[case]], lambda *_: [Message(role="user", content="?")])
    assert (row.status, row.says_activating, row.confidence) == (Status.PARSE_ERROR, None, None)
    assert why in row.detail


def test_p_yes_is_none_when_neither_side_is_there():
    assert p_yes(reply(logs(The=0.5, A=0.4))) is None
    assert p_yes(reply({})) is None
    assert p_yes(reply({"Yes": -math.inf, "No": -math.inf})) is None
    assert p_yes(reply({"Yes": math.nan})) is None


@given(st.floats(-5000, 0), st.floats(-5000, 0))
def test_p_yes_is_the_logistic_of_the_difference_however_far_apart(yes: float, no: float):
    p = p_yes(reply({"Yes": yes, " No": no}))
    assert p is not None and 0 <= p <= 1
    assert p == pytest.approx(0.5 * (1 + math.tanh((yes - no) / 2)), abs=1e-12)


@pytest.mark.parametrize(
    ("text", "answer"),
    [("Yes", True), (" no.", False), ("**Yes**, it does", True), ("NO", False), ("Nothing", None), ("", None), ("Maybe yes", None)],
)
def test_yes_or_no_reads_the_first_word(text: str, answer: bool | None):
    assert yes_or_no(text) is answer


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("[1, 0, 1]", [True, False, True]),
        ("The answer is [0,0,1].", [False, False, True]),
        ("[1, 0]", None),
        ("[1, 0, 1, 0]", None),
        ("1, 0, 1", None),
        ("[1, 0, 1] or [0, 0, 1]", None),
        ("[1, 2, 0]", None),
        ("[true, false, true]", None),
        ("[1.0, 0, 1]", None),
        ("[one, two, three]", None),
        ("", None),
    ],
)
def test_a_list_is_read_only_when_it_is_exactly_what_was_asked(text: str, answers: list[bool] | None):
    assert listed_answers(text, 3) == answers
