"""The steered explainer on a subject whose words are known."""

import pytest
from pydantic import ValidationError

from fakes import Answer, ask_by, failed
from latentry.explainers.base import LatentExamples, SaeFacts
from latentry.explainers.steered import Config, build
from latentry.records import Explanation, Purpose, Reply, Request, Split, Status
from planted_steering import NOTHING, WHALE, PlantedSteering, prompts
from planted_windows import window

STEERED = PlantedSteering({WHALE: prompts(WHALE), NOTHING: prompts(NOTHING)})
SAE = SaeFacts(name="planted", width=10, promoted=dict, steered=STEERED)


def latent(number: int, status: Status = Status.OK) -> LatentExamples:
    shown = tuple(window(number, i, "tax", split=Split.EXPLAIN) for i in range(10)) if status is Status.OK else ()
    return LatentExamples(latent=number, status=status, detail="", examples=shown)


def explained(rule, *latents: LatentExamples, **settings) -> list[Explanation]:
    config = Config(kind="steered", client="model", **settings)
    return build(config, "named", 0, lambda _: ask_by(rule), SAE).explain(latents or [latent(WHALE)])


def reads(request: Request) -> Answer:
    """What a model says that reads the first piece of every line."""
    lines = [line for line in request.messages[-1].content.splitlines() if "->" in line]
    pieces = {line.split("-> ")[1].split('"')[1] for line in lines}
    return f"EXPLANATION: {' or '.join(sorted(pieces))}"


def test_the_word_that_a_latent_promotes_is_what_is_said_of_it():
    (row,) = explained(reads)
    assert (row.text, row.status, row.explainer) == ("whale", Status.OK, "named")


def test_only_prompts_to_explain_are_shown_with_the_tokens_that_rise():
    asked: list[Request] = []
    explained(lambda one: asked.append(one) or reads(one), n_tokens=2)
    lines = asked[0].messages[-1].content.splitlines()
    ends = [line.split("... ")[1].split(" -> ")[0] for line in lines]
    assert ends == [" ".join(prompt.text.split()[-8:]) for prompt in prompts(WHALE) if prompt.purpose is Purpose.EXPLAIN]
    assert all(line.split(" -> ")[1].count('"') <= 4 for line in lines)


def test_latents_that_cannot_be_steered_have_rows_with_their_status_in_order():
    rows = explained(reads, latent(NOTHING), latent(5), latent(WHALE), latent(6, Status.DEAD))
    assert [row.latent for row in rows] == [NOTHING, 5, WHALE, 6]
    assert [row.status for row in rows] == [Status.KL_UNREACHED, Status.UNDERSAMPLED, Status.OK, Status.DEAD]
    assert "the 1 nats asked for" in rows[0].detail


def judged(request: Request) -> Answer:
    """A nat for each word of the explanation each time that it stands in the passage."""
    words = request.messages[-1].content.split()
    return Reply(
        status=Status.OK, text="", detail="", continuation=tuple(-5.0 + words.count(word) for word in request.continuation.split())
    )


def draws(request: Request) -> Answer:
    return f"EXPLANATION: {('tax', 'whale', 'sea')[request.sample]}"


def test_of_several_the_one_is_kept_that_the_prompts_bear_out():
    (row,) = chosen(judged)
    assert row.text == "whale"


def chosen(judge) -> list[Explanation]:
    config = Config(kind="steered", client="model", judge="base", k=3)
    asks = {"model": ask_by(draws), "base": ask_by(judge)}
    return build(config, "named", 0, asks.__getitem__, SAE).explain([latent(WHALE)])


@pytest.mark.parametrize(
    ("answer", "status"),
    [(failed(Status.CLIENT_ERROR), Status.CLIENT_ERROR), (failed(Status.UNSUPPORTED), Status.UNSUPPORTED), ("none", Status.PARSE_ERROR)],
)
def test_nothing_is_chosen_where_a_reading_failed(answer: Answer, status: Status):
    (row,) = chosen(lambda one: answer if one.continuation == "sea" else judged(one))
    assert row.text is None and row.status is status and "readings to choose by failed" in row.detail


def test_several_need_a_judge():
    with pytest.raises(ValidationError, match="k is 2 and there is no judge to choose by"):
        Config(kind="steered", client="model", k=2)


def test_an_unreadable_reply_is_a_status():
    (row,) = explained(lambda _: "no tag")
    assert row.text is None and row.status is Status.PARSE_ERROR
