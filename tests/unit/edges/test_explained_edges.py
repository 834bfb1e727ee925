"""Explained edges on planted explanations: the inputs that say where a latent fires score 1, another's score chance."""

import re

import numpy as np
import pyarrow as pa
import pytest

from latentry.contracts import EDGES, JACOBIAN
from latentry.edges.explained import ExplainedLatent, explained_latents, explained_rows, texts_of
from latentry.edges.score import AskedLatent, EdgeScoring, summaries
from latentry.records import Explanation, Status
from latentry.rows import table_of
from planted_windows import FILLERS, held_out

WORDS = ("tax", "whale", "river", "law")


class Bag:
    """Texts as unit vectors of the words in them: a stand-in for an embedding model."""

    def __init__(self) -> None:
        self._places = {word: place for place, word in enumerate((*WORDS, *FILLERS, "sea"))}

    def queries(self, texts):
        rows = np.zeros((len(texts), len(self._places)), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"[a-z]+", text):
                row[self._places[word]] += 1
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)

    documents = queries


def edges(*rows: tuple[int, int, float, int]) -> pa.Table:
    """Of (out, in, mean, count)."""
    columns = ({"out": out, "in": read, "mean": mean, "mean_abs": abs(mean), "count": count} for out, read, mean, count in rows)
    return table_of(list(columns), JACOBIAN.tables["edges.parquet"])


def planted(n: int = 4) -> list[ExplainedLatent]:
    """Output latent i fires on word i, and is driven by input latent 10 + i, explained by that word; input 20 says nothing of it."""
    table = edges(*(row for i in range(n) for row in ((i, 10 + i, 0.9, 50), (i, 20, -0.1, 50))))
    texts = {20: "the old house", **{10 + i: WORDS[i] for i in range(n)}}
    return list(explained_latents(table, range(n), texts, 10))


def asked(found, *, own=None, status=Status.OK, **of_latent) -> list[AskedLatent]:
    made = []
    for i, one in enumerate(found):
        settings = {"status": status, "detail": "", "inclusion_probability": None, "own": own, "examples": held_out(i, WORDS[i])}
        made.append(AskedLatent(latent=i, edges=one, **(settings | of_latent.get(f"latent_{i}", {}))))
    return made


def scoring(**changes) -> EdgeScoring:
    settings = {"seed": 0, "purpose": "planted", "contrast": "random", "max_examples": None, "null_latents": None, "embedder": Bag()}
    return EdgeScoring(**{**settings, **changes})


def test_explanations_of_the_inputs_that_drive_a_latent_predict_it_and_those_of_another_do_not():
    rows = scoring().rows(asked(planted(), own="sea"), {})
    own, nulls = [row for row in rows if not row["null"]], [row for row in rows if row["null"]]
    assert [row["auroc"] for row in own] == [1.0] * 4
    assert all(row["partner"] != row["latent"] and abs(row["auroc"] - 0.5) < 0.2 for row in nulls)
    assert [row["own_auroc"] for row in own] == [0.5] * 4  # "sea" is in no window
    found = summaries(rows, 0, "planted")
    assert found["score"]["mean"] == 1.0
    assert found["lift"]["low"] > 0.2
    assert found["own_lead"]["mean"] == pytest.approx(-0.5)
    assert found["statuses"] == {"ok": 4}


def test_a_score_is_the_auroc_of_the_weighted_cosines_by_hand():
    (latent,) = explained_latents(edges((0, 10, 0.9, 5), (0, 11, -0.3, 5)), [0], {10: "tax", 11: "house"}, 10)
    (row,) = (row for row in scoring().rows(asked([latent]), {}) if not row["null"])
    windows, bag = held_out(0, "tax"), Bag()
    tax, house = bag.queries(["tax", "house"])
    grades = [0.75 * np.dot(tax, v) + 0.25 * np.dot(house, v) for v in bag.documents([window.text for window in windows])]
    pairs = [(a > b) + 0.5 * (a == b) for a in grades[:12] for b in grades[12:]]
    assert row["auroc"] == pytest.approx(np.mean(pairs))
    assert (row["n_activating"], row["n_contrast"]) == (12, 12)


def test_inputs_stand_by_strength_and_weigh_by_mean_size_with_their_signs():
    table = edges((3, 1, 0.5, 10), (3, 2, -0.4, 100), (3, 4, 9.0, 1), (3, 5, 8.0, 8), (7, 1, 1.0, 1))
    (found,) = explained_latents(table, [3], {1: "one", 2: "two", 4: "four", 6: "six"}, 2)
    assert [(one.latent, one.text, one.mean, one.count) for one in found.inputs] == [(2, "two", -0.4, 100), (4, "four", 9.0, 1)]
    assert [one.weight for one in found.inputs] == pytest.approx([0.4 / 9.4, 9.0 / 9.4])
    assert (found.n_inputs, found.n_explained) == (4, 3)
    assert found.strength_explained == pytest.approx((40 + 9) / (5 + 40 + 9 + 64))
    rows = list(explained_rows("told", {3: "its own"}, [found]))
    assert [(row["rank"], row["input_text"], row["text"]) for row in rows] == [(0, "two", "its own"), (1, "four", "its own")]
    table_of(rows, EDGES.tables["explained.parquet"])


def test_every_latent_asked_for_has_a_row_and_a_status_that_says_why_there_is_no_score():
    found = [*planted(3), ExplainedLatent(latent=3, n_inputs=5, n_explained=0, strength_explained=0.0, inputs=())]
    dead = {"status": Status.DEAD, "detail": "no firing", "examples": ()}
    rows = scoring().rows(asked(found, latent_0=dead, latent_1={"examples": held_out(1, "whale")[:12]}), {})
    told = {row["latent"]: (row["status"], row["detail"]) for row in rows if not row["null"]}
    assert told[0] == ("dead", "no firing")
    assert told[1] == ("single_class", "12 activating and 0 contrast windows; both are needed")
    assert told[2] == ("ok", "")
    assert told[3] == ("no_inputs", "none of the 5 latents that act on it has an explanation")
    assert all("auroc" not in row for row in rows if row["status"] != "ok")
    found_by_status = summaries(rows, 0, "planted")["statuses"]
    assert found_by_status == {"dead": 1, "no_inputs": 1, "ok": 1, "single_class": 1}
    table_of([{"explainer": "told", **row} for row in rows], EDGES.tables["scores.parquet"])


def test_other_latents_and_their_order_change_no_score():
    all_rows = {row["latent"]: row for row in scoring().rows(asked(planted()), {}) if not row["null"]}
    for one in reversed(asked(planted())):
        (row,) = (row for row in scoring().rows([one], {}) if not row["null"])
        assert row == all_rows[one.latent]


def test_a_latent_without_edges_and_one_whose_edges_are_all_zero_are_no_error():
    none, zero = explained_latents(edges((1, 10, 0.0, 4), (1, 11, 0.0, 4)), [0, 1], {10: "tax", 11: "law"}, 10)
    assert (none.inputs, none.n_inputs, none.strength_explained) == ((), 0, None)
    assert [one.weight for one in zero.inputs] == [0.5, 0.5]


def test_only_explanations_that_are_texts_count():
    def one(latent, status, text):
        return Explanation(
            latent=latent, explainer="told", text=text, status=status, detail="", prompt_digest="", reply=None, reply_key=None
        )

    assert texts_of([one(1, Status.OK, "tax"), one(2, Status.REFUSED, None)]) == {"told": {1: "tax"}}
