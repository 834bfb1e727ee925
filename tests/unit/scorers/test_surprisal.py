"""Surprisal with a model that expects the words of the explanation."""

import numpy as np
import pytest

from fakes import ask_by, failed, scorer_inputs
from latentry.records import Reply, Request, Status
from latentry.scorers import surprisal
from planted_windows import item


def expects(request: Request) -> Reply:
    """A word that the last turn names takes 1 nat, another 5, a token a word."""
    told = request.messages[-1].content.split()
    values = tuple(-1.0 if word in told else -5.0 for word in request.continuation.split())
    return Reply(status=Status.OK, text="", detail="", continuation=values, key="k")


def scored(rule, one):
    scorer = surprisal.build(surprisal.Config(kind="surprisal", client="base"), scorer_inputs(ask=lambda _: ask_by(rule)))
    judgments = scorer.judge([one])
    return judgments, scorer.score(one, judgments, np.random.default_rng(0))


def test_windows_that_the_explanation_lets_expect_are_told_apart():
    judgments, score = scored(expects, item("tax"))
    assert score.values["auroc"].value == 1.0
    assert [one.confidence for one in judgments if one.is_activating] == [4.0] * 12  # one word of 9 becomes 4 nats likelier
    assert {one.says_activating for one in judgments} == {None}
    _, other = scored(expects, item("whale"))
    assert other.values["auroc"].value == 0.5  # nothing is likelier: all tie


def test_the_first_token_counts():
    """In window 0 the word is the first."""
    judgments, _ = scored(expects, item("tax", n=1))
    assert judgments[0].confidence == 4.0


def test_the_neutral_pass_is_one_request_for_all_explanations_of_a_window():
    asked: list[Request] = []

    def rule(request):
        asked.append(request)
        return expects(request)

    scorer = surprisal.build(surprisal.Config(kind="surprisal", client="base"), scorer_inputs(ask=lambda _: ask_by(rule)))
    scorer.judge([item("tax"), item("whale", null=True)])
    assert len(set(asked)) == 24 * 3


@pytest.mark.parametrize(
    ("spoilt", "status"),
    [
        (lambda _: Reply(status=Status.OK, text="", detail=""), Status.PARSE_ERROR),
        (lambda reply: Reply(status=Status.OK, text="", detail="", continuation=reply.continuation[1:]), Status.PARSE_ERROR),
        (lambda _: failed(Status.UNSUPPORTED), Status.UNSUPPORTED),
        (lambda _: failed(Status.CLIENT_ERROR), Status.CLIENT_ERROR),
    ],
    ids=["none", "one too few", "unsupported", "failed"],
)
@pytest.mark.parametrize("which", [surprisal.NEUTRAL, "tax"])
def test_a_pass_without_log_probabilities_is_a_status(spoilt, status, which):
    def rule(request):
        reply = expects(request)
        return spoilt(reply) if request.messages[-1].content.endswith(f": {which}") else reply

    judgments, score = scored(rule, item("tax"))
    assert {(one.status, one.confidence) for one in judgments} == {(status, None)}
    assert (score.status, score.n_failed) == (status, 24)


def test_an_empty_explanation_is_scored_as_it_is():
    _, score = scored(expects, item(""))
    assert (score.status, score.values["auroc"].value) == (Status.OK, 0.5)
