"""The further explainers on planted latents: what is shown, what is said without a call, and what a file may hold."""

import dataclasses
from collections.abc import Sequence

import pytest

from fakes import Answer, ask_by, failed, said
from latentry.explainers import best_of_k, contrastive, default, output_centric, single_token
from latentry.explainers.base import LatentExamples, Promoted, SaeFacts
from latentry.records import Example, Explanation, Request, Split, Status
from planted_windows import asked, window

PROMOTED = {1: Promoted(more=(" tax", " duty", "\n"), less=("the",))}
SAE = SaeFacts(name="planted", width=10, promoted=lambda: PROMOTED)


def windows(word: str | None, n: int, first: int = 0) -> tuple[Example, ...]:
    return tuple(dataclasses.replace(window(1, first + i, word, split=Split.EXPLAIN), rank=i) for i in range(n))


def latent(n: int = 20, n_contrast: int = 20, number: int = 1) -> LatentExamples:
    examples = windows("tax", n) + windows(None, n_contrast, 100)
    return LatentExamples(latent=number, status=Status.OK, detail="", examples=examples)


def explained(module, rule, *latents: LatentExamples, longest: int | None = None, **settings) -> list[Explanation]:
    needed = {"client": "m"} if "client" in module.Config.model_fields else {}
    config = module.Config(kind=module.__name__.rpartition(".")[2], **needed, **settings)
    return module.build(config, "named", 0, lambda _: ask_by(rule, longest), SAE).explain(latents or [latent()])


def seen_by(module, answer: Answer = "EXPLANATION: x", **settings) -> list[Request]:
    seen: list[Request] = []
    explained(module, lambda request: seen.append(request) or answer, **settings)
    return seen


def test_contrasts_stand_beside_the_windows_and_have_no_marks():
    (request,) = seen_by(contrastive, max_examples=4)
    marked_list, silent_list = request.messages[-1].content.split("List B:")
    assert (marked_list.count("<<tax>>"), silent_list.count("<<"), silent_list.count("\n") - 1) == (4, 0, 3)


@pytest.mark.parametrize("module", [default, contrastive])
def test_a_prompt_too_long_for_the_context_is_cut_by_examples_and_keeps_its_instructions(module):
    seen: list[Request] = []

    def rule(request: Request) -> str:
        seen.append(request)
        return "EXPLANATION: taxes"

    whole = sum(len(message.content) for message in seen_by(module)[0].messages)
    (row,) = explained(module, rule, longest=whole - 200)
    (cut,) = seen
    assert 0 < sum(len(message.content) for message in cut.messages) <= whole - 200
    assert cut.messages[:-1] == seen_by(module)[0].messages[:-1]
    assert 10 < cut.messages[-1].content.count("<<tax>>") < 20
    assert (row.status, row.text) == (Status.OK, "taxes")
    assert "of 20 windows" in row.detail
    tight = explained(module, rule, longest=1)
    assert seen[-1].messages[-1].content.count("<<tax>>") == 1 and tight[0].text == "taxes"


def test_language_length_levels_and_thinking_are_asked_for():
    (request,) = seen_by(default, language="German", max_words=3, levels=True, reasoning_tokens=100, worked=1)
    system = request.messages[0].content
    assert "Write the phrase in German." in system and "at most three words" in system and "Think aloud" in system
    assert "(tax 10)" in request.messages[-1].content
    assert (request.max_tokens, len(request.messages)) == (140, 4)


def test_levels_are_tenths_of_the_latents_strongest_rounded_up():
    weak = dataclasses.replace(windows("tax", 1)[0], activations=(0.31, *(0.0,) * 8))
    strong = dataclasses.replace(windows("tax", 1)[0], activations=(1.0, *(0.0,) * 8))
    config = default.Config(kind="default", client="m", levels=True)
    lines = default.prompt([weak, strong], config)[-1].content.splitlines()
    assert [line.rpartition(" (")[2] for line in lines[1:3]] == ["tax 4)", "tax 10)"]


@pytest.mark.parametrize(
    "reply",
    ["Ces mots parlent d'impôts.", "解释：税金", "EXPLICATION : impôts", "Erklärung: Steuern"],
)
def test_a_reply_in_another_language_without_the_tag_is_kept_and_is_no_explanation(reply):
    (row,) = explained(default, lambda _: reply)
    assert (row.text, row.status, row.reply) == (None, Status.PARSE_ERROR, reply)


def test_a_single_token_is_named_without_a_call():
    (row,) = explained(single_token, lambda _: pytest.fail("asked"))
    assert (row.text, row.status, row.reply_key) == ('the token "tax"', Status.OK, None)
    assert len(row.prompt_digest) == 64


def test_a_latent_of_several_tokens_is_unsupported_with_the_share_of_the_first():
    mixed = LatentExamples(latent=1, status=Status.OK, detail="", examples=windows("tax", 3) + windows("duty", 1, 50))
    (row,) = explained(single_token, lambda _: pytest.fail("asked"), mixed)
    assert (row.text, row.status) == (None, Status.UNSUPPORTED)
    assert '"tax" has 75%' in row.detail
    (row,) = explained(single_token, lambda _: pytest.fail("asked"), mixed, min_fraction=0.75)
    assert row.text == 'the token "tax"'


@pytest.mark.parametrize(
    ("token", "name"), [("\n\n", "line break"), (" ", "blank"), (",", '"," (comma)'), ("税", '"税"'), ("a b", '"a b"')]
)
def test_tokens_are_named_as_a_reader_meets_them(token, name):
    assert single_token.named(token) == name


def test_promoted_tokens_are_shown_alone_or_with_the_windows():
    (alone,), (joined,) = seen_by(output_centric), seen_by(output_centric, windows=True)
    assert alone.messages[-1].content == 'More often: "tax", "duty"\nLess often: "the"'
    assert joined.messages[-1].content.count("<<tax>>") == 20


def test_a_latent_without_promoted_tokens_is_unsupported_and_not_asked():
    row, other = explained(output_centric, lambda _: "EXPLANATION: x", dataclasses.replace(latent(), latent=2), latent())
    assert (row.latent, row.status, other.status) == (2, Status.UNSUPPORTED, Status.OK)


def judge(texts: Sequence[str], true: str):
    """Explains with the next text at each sample, and judges by whether the description is the true one."""

    def rule(request: Request) -> Answer:
        if not request.alternatives:
            return f"EXPLANATION: {texts[request.sample]}" if texts[request.sample] else ""
        description, (shown,) = asked(request.messages)
        fits = ("tax" in shown) if description == true else True
        return {"Yes": -0.1, "No": -2.0} if fits else {"Yes": -2.0, "No": -0.1}

    return rule


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_best_of_k_is_the_one_that_holds_on_windows_it_was_not_made_from(place):
    texts = ["everything", "all things", "the lot"]
    texts[place] = "taxes"
    (row,) = explained(best_of_k, judge(texts, "taxes"), k=3, of="contrastive")
    assert (row.text, row.explainer, row.status) == ("taxes", "named", Status.OK)


def test_validation_windows_are_not_shown_to_the_inner_explainer():
    seen: list[Request] = []
    rule = judge(["a", "b"], "a")
    explained(best_of_k, lambda request: seen.append(request) or rule(request), k=2, n_validation=5)
    drawn, judged = [one for one in seen if not one.alternatives], [one for one in seen if one.alternatives]
    assert [(one.temperature, one.sample) for one in drawn] == [(0.0, 0), (0.8, 1)]
    shown = {line.split(". ", 1)[1].replace("<<", "").replace(">>", "") for one in drawn for line in said(one).splitlines() if ". " in line}
    validated = {asked(one.messages)[1][0] for one in judged}
    assert len(validated) == 10 and not validated & shown


def test_where_no_draw_can_be_read_the_first_failure_stands():
    (row,) = explained(best_of_k, judge(["", ""], "x"), k=2)
    assert (row.text, row.status) == (None, Status.PARSE_ERROR)


def test_unreadable_draws_lose_to_readable_ones():
    (row,) = explained(best_of_k, judge(["", "taxes"], "x"), k=2)
    assert row.text == "taxes"


def failing(texts: Sequence[str], true: str, status: Status, fails) -> list[Explanation]:
    """Best of as many as there are texts, where the requests that `fails` names bring nothing."""
    rule = judge(texts, true)
    return explained(best_of_k, lambda request: failed(status, "HTTP 500") if fails(request) else rule(request), k=len(texts))


@pytest.mark.parametrize("status", [Status.CLIENT_ERROR, Status.REFUSED])
def test_where_every_judgment_failed_nothing_is_chosen(status):
    (row,) = failing(["everything", "taxes"], "taxes", status, lambda request: bool(request.alternatives))
    assert (row.text, row.status) == (None, status)
    assert "32 of 32 judgments" in row.detail and "HTTP 500" in row.detail


def test_a_text_whose_judgments_failed_for_the_moment_does_not_lose():
    (row,) = failing(["everything", "taxes"], "taxes", Status.CLIENT_ERROR, lambda one: bool(one.alternatives) and "taxes" in said(one))
    assert (row.text, row.status) == (None, Status.CLIENT_ERROR)


def test_a_draw_that_failed_for_the_moment_is_not_dropped():
    (row,) = failing(["everything", "taxes"], "taxes", Status.CLIENT_ERROR, lambda one: one.sample == 1)
    assert (row.text, row.status) == (None, Status.CLIENT_ERROR)
    assert "1 of 2 draws failed: HTTP 500" in row.detail


def test_what_failed_for_good_is_told_beside_the_choice():
    (row,) = failing(["all", "taxes", "the lot"], "taxes", Status.REFUSED, lambda one: one.sample == 2)
    assert (row.text, row.detail) == ("taxes", "1 of 3 draws brought no text (1 refused)")
    (row,) = failing(["all", "taxes"], "taxes", Status.REFUSED, lambda one: bool(one.alternatives) and ": all\n" in said(one))
    assert (row.text, row.detail) == ("taxes", "16 of 32 judgments to choose by failed")


def test_without_windows_to_judge_by_the_first_draw_stands():
    (row,) = explained(best_of_k, judge(["everything", "taxes"], "taxes"), latent(n_contrast=0), k=2)
    assert (row.text, row.status) == ("everything", Status.OK)


@pytest.mark.parametrize("of", ["lexical", "best_of_k", "defult"])
def test_only_explainers_that_ask_a_model_can_be_drawn_from(of):
    with pytest.raises(ValueError, match="asks a model"):
        best_of_k.Config(kind="best_of_k", client="m", of=of)
