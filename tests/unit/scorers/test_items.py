"""Which explanation is judged on which latent's examples, the null's among them."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from latentry.records import Explanation, Split, Status
from latentry.scorers.base import derangement, items_for
from planted_windows import held_out, window


def explanation(latent: int, text: str | None, explainer: str = "told") -> Explanation:
    status = Status.OK if text is not None else Status.PARSE_ERROR
    return Explanation(
        latent=latent, explainer=explainer, text=text, status=status, detail="", prompt_digest="", reply=None, reply_key=None
    )


@given(st.dictionaries(st.integers(0, 99), st.sampled_from("abcdefghij"), max_size=30), st.integers(0, 5))
def test_no_latent_is_paired_with_itself_an_equal_text_or_the_partner_of_another(texts: dict[int, str], seed: int):
    partner = derangement(texts, seed=seed)
    assert all(texts[latent] != texts[other] for latent, other in partner.items())
    assert len(set(partner.values())) == len(partner)


@given(st.integers(2, 40), st.integers(0, 5))
def test_every_latent_of_distinct_texts_has_a_partner(n: int, seed: int):
    assert len(derangement({latent: f"text {latent}" for latent in range(n)}, seed=seed)) == n


@given(st.integers(1, 12), st.integers(0, 5))
def test_two_texts_equally_often_are_all_crossed(n: int, seed: int):
    assert len(derangement({latent: "ab"[latent % 2] for latent in range(2 * n)}, seed=seed)) == 2 * n


def test_one_latent_or_equal_texts_have_no_null():
    assert derangement({}, seed=0) == {}
    assert derangement({3: "a"}, seed=0) == {}
    assert derangement({1: "Taxes ", 2: "taxes", 3: "taxes"}, seed=0) == {}


def test_latents_that_supplied_contrasts_are_no_partners():
    texts = {latent: f"text {latent}" for latent in range(20)}
    excluded = {latent: [(latent + step) % 20 for step in range(1, 8)] for latent in texts}
    partner = derangement(texts, seed=0, excluded=excluded)
    assert len(partner) == 20
    assert all(other not in excluded[latent] for latent, other in partner.items())


@given(st.lists(st.sets(st.integers(0, 11)), min_size=2, max_size=12), st.integers(0, 3))
def test_as_many_have_a_partner_as_can_have_one(barred: list[set[int]], seed: int):
    texts = {latent: f"text {latent % 7}" for latent in range(len(barred))}
    excluded = dict(enumerate(barred))
    may = [[o in texts and o not in excluded[i] and texts[o] != texts[i] for o in texts] for i in texts]
    largest = (maximum_bipartite_matching(csr_matrix(np.array(may, int)), perm_type="column") >= 0).sum()
    partner = derangement(texts, seed=seed, excluded=excluded)
    assert len(partner) == len(set(partner.values())) == largest
    assert all(may[latent][other] for latent, other in partner.items())
    assert derangement(dict(reversed(texts.items())), seed=seed, excluded=excluded) == partner


def test_many_latents_of_one_text_are_told_fast_that_few_have_partners():
    assert len(derangement({latent: "a" if latent else "b" for latent in range(2000)}, seed=0)) == 2


def test_order_of_the_latents_changes_no_partner_and_the_seed_does():
    texts = {latent: f"text {latent}" for latent in range(30)}
    assert derangement(dict(reversed(texts.items())), seed=0) == derangement(texts, seed=0)
    assert derangement(texts, seed=1) != derangement(texts, seed=0)


def test_items_are_the_readable_explanations_and_nulls_of_the_first_latents_by_rank():
    explanations = [explanation(1, "taxes"), explanation(2, None), explanation(3, "whales"), explanation(4, "ships")]
    examples = {latent: held_out(latent, "tax") for latent in (1, 2, 3, 4)}
    items = items_for(explanations, examples, ranked=[4, 2, 1, 3], seed=0, null_latents=2)
    assert [(item.latent, item.null) for item in items] == [(4, False), (1, False), (3, False), (4, True), (1, True)]
    assert all(item.examples == tuple(sorted(examples[item.latent], key=lambda e: (e.kind, e.contrast, e.rank))) for item in items)
    texts = {1: "taxes", 3: "whales", 4: "ships"}
    assert all(item.text == texts[item.partner] != texts[item.latent] for item in items if item.null)


def test_the_null_stays_within_one_explainer():
    explanations = [explanation(latent, f"{name} {latent}", name) for latent in (1, 2, 3) for name in ("a", "b")]
    items = items_for(explanations, {latent: held_out(latent, "tax") for latent in (1, 2, 3)}, ranked=[1, 2, 3], seed=0)
    assert len(items) == 12
    assert all(item.text.startswith(item.explainer) for item in items)


def test_an_example_of_the_explain_split_is_refused():
    seen = dataclasses.replace(window(1, 0, "tax"), split=Split.EXPLAIN)
    with pytest.raises(ValueError, match="explain split"):
        items_for([explanation(1, "taxes")], {1: (seen,)}, ranked=[1], seed=0)
