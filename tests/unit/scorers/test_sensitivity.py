"""Sensitivity with a scripted writer, and what fires on texts in a subject whose activations are known."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from fakes import Answer, ask_by, failed, scorer_inputs
from latentry.records import Judgment, Reply, Request, Status
from latentry.saes.base import Sae
from latentry.scorers.base import Item
from latentry.scorers.firing import Reading, TextFirings
from latentry.scorers.sensitivity import Config, build, prompt
from latentry.subjects.causal_lm import Subject
from latentry.subjects.hooks import Hookpoint
from planted_subject import Counting
from planted_windows import held_out

TAX, WHALE, DENSE = 1, 2, 3
READING = Reading(beginning=(), special=frozenset(), vocabulary="", median_norm=10.0, max_norm_multiple=10.0)


def fired(texts: Sequence[str], n_tokens: int) -> list[frozenset[int]]:
    """One latent fires on "tax", one on "whale", one on anything; read are words."""
    rules = {TAX: "tax", WHALE: "whale"}
    read = [text.split()[:n_tokens] for text in texts]
    return [frozenset({latent for latent, word in rules.items() if word in words} | {DENSE}) for words in read]


def writer(request: Request) -> Answer:
    """Writes the described word into a sentence of its own, in three of four texts."""
    described = request.messages[-1].content.removeprefix("Description: ")
    return f"in text {request.sample} they saw the {described if request.sample % 4 else 'sky'} and went on"


def item(text: str, latent: int = TAX, partner: int | None = None) -> Item:
    return Item(latent=latent, explainer="told", null=partner is not None, text=text, examples=held_out(latent, "tax", 2), partner=partner)


def scores(*items: Item, rule=writer, **settings) -> list[tuple[list[Judgment], object]]:
    scorer = build(Config(kind="sensitivity", client="writer", **settings), scorer_inputs(ask=lambda _: ask_by(rule), fired=fired))
    judgments = scorer.judge(items)
    made = []
    for one in items:
        mine = [judgment for judgment in judgments if (judgment.latent, judgment.null) == (one.latent, one.null)]
        made.append((mine, scorer.score(one, mine, np.random.default_rng(0))))
    return made


def test_a_latent_fires_on_texts_of_its_own_explanation_and_a_dense_one_on_any():
    own, null, dense, dense_null = scores(
        item("tax"), item("whale", partner=WHALE), item("whale", latent=DENSE), item("tax", latent=DENSE, partner=TAX)
    )
    assert own[1].values["fired_share"].value == 0.7  # texts 0, 4 and 8 are of the sky
    assert null[1].values["fired_share"].value == 0.0
    assert dense[1].values["fired_share"].value == dense_null[1].values["fired_share"].value == 1.0


def test_the_share_has_wilsons_interval():
    ((_, score),) = scores(item("tax"))
    interval = binomtest(7, 10).proportion_ci(method="wilson")
    assert (score.values["fired_share"].low, score.values["fired_share"].high) == pytest.approx((interval.low, interval.high))


def test_a_null_is_judged_on_the_very_texts_of_its_partner_so_that_nothing_more_is_written():
    asked: list[Request] = []
    own, null = scores(item("whale", latent=WHALE), item("whale", partner=WHALE), rule=lambda one: asked.append(one) or writer(one))
    assert len(asked) == len(set(asked)) == 10
    assert {one.temperature for one in asked} == {1.0} and {one.sample for one in asked} == set(range(10))
    assert [judgment.text for judgment in own[0]] == [judgment.text for judgment in null[0]]
    assert [judgment.value for judgment in own[0]] == [1.0 if number % 4 else 0.0 for number in range(10)]


def test_only_so_many_tokens_of_a_text_are_read():
    ((_, score),) = scores(item("tax"), rule=lambda _: "a b c d tax", n_tokens=4)
    assert score.values["fired_share"].value == 0.0


@pytest.mark.parametrize(
    ("answer", "status"),
    [(failed(Status.REFUSED), Status.REFUSED), (" \n", Status.PARSE_ERROR), (failed(Status.CLIENT_ERROR), Status.CLIENT_ERROR)],
)
def test_a_text_that_was_not_written_is_a_status_and_in_no_share(answer: Answer, status: Status):
    ((judgments, score),) = scores(item("tax"), rule=lambda one: writer(one) if one.sample else answer)
    assert judgments[0].status is status and judgments[0].value is None and judgments[0].text is None
    assert (score.n_activating, score.n_failed) == (9, 1)
    ((_, score),) = scores(item("tax"), rule=lambda _: answer)
    assert score.status is status and not score.values


def test_a_text_cut_at_its_limit_is_read():
    cut = Reply(status=Status.TRUNCATED, text="the tax was", detail="cut", key="k")
    ((judgments, score),) = scores(item("tax"), rule=lambda _: cut)
    assert {judgment.status for judgment in judgments} == {Status.OK} and score.values["fired_share"].value == 1.0


@pytest.mark.parametrize("text", ["x" * 10_000, "税金 🐳", "two\n\nlines"])
def test_any_explanation_is_asked_about_on_one_line(text: str):
    last = prompt(text)[-1].content
    assert last.startswith("Description: ") and "\n" not in last


class Numbers:
    """A tokenizer of numbers: a token each."""

    all_special_ids = (60,)

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        return {"input_ids": [int(word) for word in text.split()]}


def firings(**reading) -> TextFirings:
    """Token t becomes t * (1, 2, 3, 4), of norm 5.5 t; latent t fires at the token t, and latent 0 at nothing."""
    point = Hookpoint(name="here", module="layers.0", side="output")
    unit = torch.arange(1.0, 5) / 30

    def encode(x: torch.Tensor, block: slice) -> torch.Tensor:
        token = (x @ unit).round()
        latents = torch.arange(block.start, block.stop)
        return ((token[:, None] == latents) & (latents > 0)).float()

    sae = Sae(
        name="numbers",
        hookpoint="here",
        writes="here",
        loss="standard",
        d_in=4,
        encode_block=encode,
        decoder=torch.zeros(100, 4),
        decoder_bias=torch.zeros(4),
        provenance={},
    )
    subject = Subject(Counting(lambda x: x, lambda x: x), [point], torch.device("cpu"))
    return TextFirings(subject, sae, Numbers(), dataclasses.replace(READING, **reading))


def test_texts_of_any_length_fire_what_each_fires_alone():
    texts = ["5 7 9", "3", "", "8 8 8 8 8 8", *[str(number) for number in range(1, 41)]]
    together = firings().fired(texts, 32)
    assert together == [firings().fired([text], 32)[0] for text in texts]
    assert together[:4] == [{5, 7, 9}, {3}, set(), {8}]


def test_special_tokens_and_attention_sinks_do_not_count_and_no_filling_does():
    # token 19 has norm 104, above ten times the median
    assert firings(median_norm=10.0).fired(["5 19 60 18", "4"], 32) == [{5, 18}, {4}]
    assert firings(special=frozenset({5})).fired(["5 7 60"], 32) == [{7}]


def test_texts_are_cut_and_begin_as_the_corpus_did():
    assert firings().fired(["5 7 9 11"], 2) == [{5, 7}]
    assert firings(beginning=(2,)).fired(["5 7 9 11", ""], 2) == [{2, 5, 7}, {2}]
    assert firings(beginning=(60,)).fired(["5 7 9 11"], 2) == [{5, 7}]
