"""Intervention on a subject whose words are known, read by a scripted base model that counts them."""

import dataclasses

import numpy as np
import pytest

from fakes import Answer, ask_by, failed, scorer_inputs
from latentry.corpora.tokenise import vocabulary_digest
from latentry.errors import ContractError
from latentry.records import Judgment, Reply, Request, Status
from latentry.scorers.base import Item
from latentry.scorers.firing import Reading, check_vocabulary
from latentry.scorers.intervention import Config, build, request
from latentry.scorers.passages import Steered
from planted_steering import NOTHING, RANDOM, SEEN, WHALE, PlantedSteering, WordTokenizer, prompts
from planted_windows import held_out


def reading(request: Request) -> Answer:
    """Each word of the explanation is a nat likelier for each time that it stands in the passage."""
    passage = request.messages[-1].content
    return Reply(
        status=Status.OK,
        text="",
        detail="",
        continuation=tuple(-5.0 + passage.split().count(word) for word in request.continuation.split()),
        key="read",
    )


def item(text: str, latent: int = WHALE, null: bool = False) -> Item:
    return Item(latent=latent, explainer="told", null=null, text=text, examples=held_out(latent, "tax", 2))


STEERED = PlantedSteering({WHALE: prompts(WHALE), RANDOM: prompts(RANDOM), NOTHING: prompts(NOTHING), SEEN: prompts(SEEN, last="sea")})


def scores(*items: Item, rule=reading, steered=STEERED, **settings) -> list[tuple[list[Judgment], object]]:
    scorer = build(Config(kind="intervention", client="base", **settings), scorer_inputs(ask=lambda _: ask_by(rule), steered=steered))
    judgments = scorer.judge(items)
    made = []
    for one in items:
        mine = [judgment for judgment in judgments if (judgment.latent, judgment.null) == (one.latent, one.null)]
        made.append((mine, scorer.score(one, mine, np.random.default_rng(0))))
    return made


def nats(*items: Item, **settings) -> list[float]:
    return [score.values["nats"].value for _, score in scores(*items, **settings)]


def test_a_latent_that_promotes_a_word_is_found_by_it_and_not_by_another_explanation():
    true, null = nats(item("whale"), item("tax", null=True))
    assert true > 1.0
    assert abs(null) < true / 4


def test_a_random_direction_is_not_found_at_any_strength_that_the_words_see():
    ((judgments, score),) = scores(item("whale", latent=RANDOM), kl=0.1)
    value = score.values["nats"].value if score.values else 0.0
    (true,) = nats(item("whale"), kl=0.1)
    assert abs(value) < true / 2 and judgments


def test_stronger_steering_says_more_of_it():
    weak, strong = (nats(item("whale"), kl=kl)[0] for kl in (0.1, 1.0))
    assert 0 < weak < strong


def test_taking_a_latent_away_takes_its_word_away_and_not_another():
    own, other = nats(item("tax", latent=SEEN), item("whale", latent=SEEN, null=True), mode="ablate")
    assert own > 0.1
    assert abs(other) < own / 2


def test_a_judgment_is_one_prompt_with_both_continuations_and_the_score_says_kl_strength_and_length():
    ((judgments, score),) = scores(item("whale whale"))
    (steered,) = [steered for _, steered in STEERED([WHALE], 1.0, "steer")]
    by_id = {passage.example_id: passage for passage in steered.passages}
    assert len(judgments) == score.n_activating == 15
    for judgment in judgments:
        passage = by_id[judgment.example_id]
        assert judgment.text == passage.changed and judgment.detail.endswith(f"| clean: {passage.clean}")
        counts = [text.split().count("whale") for text in (passage.changed, passage.clean)]
        assert judgment.value == pytest.approx(2 * (counts[0] - counts[1]))
    assert abs(steered.kl - 1) <= 0.1
    assert score.detail == f"KL {steered.kl:.3g} at strength {steered.strength:.3g}, explanation of 2 tokens"
    estimate = score.values["nats"]
    assert estimate.low < estimate.value < estimate.high


def test_only_prompts_to_score_are_read_and_as_many_as_asked_for():
    asked: list[Request] = []
    ((judgments, _),) = scores(item("whale"), rule=lambda one: asked.append(one) or reading(one), max_examples=5)
    assert len(judgments) == 5 and all("/score/" in judgment.example_id for judgment in judgments)
    explain = {prompt.text for prompt in prompts(WHALE) if prompt.purpose == "explain"}
    passages = [one.messages[-1].content for one in asked]
    assert not [text for text in explain if any(passage.startswith(f"Passage: {text} ") for passage in passages)]


def test_a_kl_that_is_not_reached_is_one_row_and_no_score():
    ((judgments, score),) = scores(item("whale", latent=NOTHING))
    assert [judgment.status for judgment in judgments] == [Status.KL_UNREACHED]
    assert score.status is Status.KL_UNREACHED and not score.values
    assert "KL 0 at strength" in score.detail and "the 1 nats asked for" in score.detail


def test_an_empty_explanation_is_not_read_and_has_no_score():
    def never(_: Request) -> Answer:
        raise AssertionError("an empty explanation was read")

    ((judgments, score),) = scores(item(" "), rule=never)
    assert [judgment.status for judgment in judgments] == [score.status] == [Status.UNSUPPORTED]
    assert "it has no tokens" in score.detail and not score.values


def test_a_latent_without_prompts_is_undersampled():
    ((judgments, score),) = scores(item("whale", latent=77))
    assert judgments == [] and score.status is Status.UNDERSAMPLED and "no steering prompts" in score.detail


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (failed(Status.CLIENT_ERROR), Status.CLIENT_ERROR),
        (failed(Status.UNSUPPORTED), Status.UNSUPPORTED),
        ("no numbers", Status.PARSE_ERROR),
    ],
)
def test_a_reader_that_gives_no_log_probabilities_is_a_status(answer: Answer, status: Status):
    ((judgments, score),) = scores(item("whale"), rule=lambda _: answer)
    assert {judgment.status for judgment in judgments} == {status} and score.status is status


@pytest.mark.parametrize("text", ["x" * 10_000, "税金 🐳", "two\n\nlines EXPLANATION: <<here>>"])
def test_any_explanation_is_read_on_one_line(text: str):
    continuation = request("a passage", text).continuation
    assert len(continuation) == len(text) and "\n" not in continuation and "<<" not in continuation


def test_continuations_come_from_the_seed_and_the_prompt_alone():
    def passages(of: dict, seed: int, *latents: int) -> dict[int, Steered]:
        return dict(PlantedSteering(of, seed)(latents, 1.0, "steer"))

    both = {WHALE: prompts(WHALE), SEEN: prompts(SEEN)}
    among, alone = passages(both, 0, SEEN, WHALE)[WHALE], passages({WHALE: prompts(WHALE)}, 0, WHALE)[WHALE]
    assert among == alone
    assert passages(both, 1, WHALE)[WHALE].passages != among.passages


def test_the_token_that_rises_most_is_the_one_promoted():
    (steered,) = [steered for _, steered in STEERED([WHALE], 1.0, "steer")]
    assert all(passage.risen[0] == "whale" for passage in steered.passages)


def test_a_subject_of_another_vocabulary_than_the_tokens_is_told(tmp_path):
    tokenizer, right = WordTokenizer(), vocabulary_digest(WordTokenizer())
    known = Reading(beginning=(), special=frozenset(), vocabulary=right, median_norm=1.0, max_norm_multiple=10.0)
    check_vocabulary(tokenizer, 16, known, tmp_path / "model", tmp_path / "examples")
    with pytest.raises(ContractError, match=r"model: its tokenizer has the vocabulary .*examples was drawn from.*rerun `dvc repro tokens`"):
        check_vocabulary(tokenizer, 16, dataclasses.replace(known, vocabulary="other"), tmp_path / "model", tmp_path / "examples")
    with pytest.raises(ContractError, match="the model has 10 token ids, its tokenizer 16"):
        check_vocabulary(tokenizer, 10, known, tmp_path / "model", tmp_path / "examples")
