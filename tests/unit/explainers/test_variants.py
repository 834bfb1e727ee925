"""The further explainers on planted latents: what is shown, what is said without a call, and what a file may hold."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fakes import Answer, ask_by, said
from latentry.errors import ParamsError
from latentry.explainers import best_of_k, contrastive, default, fixed, output_centric, single_token
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


@pytest.mark.parametrize("of", ["lexical", "best_of_k", "defult"])
def test_only_explainers_that_ask_a_model_can_be_drawn_from(of):
    with pytest.raises(ValueError, match="asks a model"):
        best_of_k.Config(kind="best_of_k", client="m", of=of)


ROWS = [{"latent": 1, "text": "taxes"}, {"latent": 2, "text": " of  the sea "}]


def write(path, rows):
    """A file of explanations, in the format of its name."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        names = list(rows[0])
        path.write_text("\n".join([",".join(names), *(",".join(str(row.get(name, "")) for name in names) for row in rows)]) + "\n")
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        path.write_text(json.dumps(rows))
    return path


def fixed_rows(path, *numbers: int, **settings) -> list[Explanation]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return explained(
        fixed, lambda _: pytest.fail("asked"), *(latent(number=number) for number in numbers), path=str(path), sha256=digest, **settings
    )


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl", "a.json"])
def test_texts_of_a_file_are_the_explanations_and_the_rest_is_unsupported(tmp_path, name):
    one, two, three = fixed_rows(write(tmp_path / name, ROWS), 1, 2, 3)
    assert (one.text, two.text, three.text) == ("taxes", "of the sea", None)
    assert (one.status, three.status, one.reply_key) == (Status.OK, Status.UNSUPPORTED, None)


def test_neuronpedia_rows_and_rows_of_other_saes_and_explainers_are_told_apart(tmp_path):
    rows = [{"modelId": "m", "layer": "6-res", "index": "1", "description": "taxes"}]
    assert fixed_rows(write(tmp_path / "n.json", rows), 1)[0].text == "taxes"
    rows = [{"sae": "planted", **ROWS[0]}, {"sae": "other", "latent": 99, "text": "sea"}]
    assert fixed_rows(write(tmp_path / "s.json", rows), 1)[0].text == "taxes"
    rows = [{"explainer": "a", **ROWS[0]}, {"explainer": "b", "latent": 1, "text": "sea"}, {"explainer": "b", "latent": 2, "text": None}]
    one, two = fixed_rows(write(tmp_path / "e.json", rows), 1, 2, explainer="b")
    assert (one.text, two.status) == ("sea", Status.UNSUPPORTED)


@pytest.mark.parametrize(
    ("rows", "said_of_it"),
    [
        ([{"latent": 10, "text": "x"}], "10 is no latent of SAE 'planted', which has 0 to 9"),
        ([{"latent": -1, "text": "x"}], "'?-1'? is no latent"),
        ([{"latent": "six", "text": "x"}], "'six' is no latent"),
        ([{"text": "x"}], "None is no latent"),
        ([ROWS[0], {"latent": 1, "text": "sea"}], "latent 1 has two texts"),
        ([{"latent": 1, "words": "x"}], "no explanation of SAE 'planted'"),
        ([{"latent": 1, "text": "x", "sae": "other"}], "no explanation of SAE 'planted'"),
        (["taxes"], "no list of rows"),
        ({"1": "taxes"}, "no list of rows"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_and_says_why(tmp_path, rows, said_of_it):
    with pytest.raises(ParamsError, match=said_of_it):
        fixed_rows(write(tmp_path / "a.json", rows), 1)


@pytest.mark.parametrize(
    ("name", "content"), [("a.json", "{"), ("a.jsonl", "{}\n{"), ("a.parquet", "x"), ("a.txt", "x"), ("a.json", "\x00")]
)
def test_a_damaged_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(ParamsError, match=name):
        fixed_rows(tmp_path / name, 1)


def test_a_missing_or_changed_file_is_told_with_its_digest(tmp_path):
    with pytest.raises(ParamsError, match="cannot be read"):
        explained(fixed, lambda _: "", path=str(tmp_path / "none.csv"))
    path = write(tmp_path / "a.csv", ROWS)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for stated in (None, "0" * 64):
        with pytest.raises(ParamsError, match=digest):
            explained(fixed, lambda _: "", path=str(path), sha256=stated)
