"""What is taken of others' rows: one text a latent, and every row that is left out counted under its reason."""

import random

import pytest

from latentry.errors import ExchangeError
from latentry.exchange import imported
from latentry.exchange.imported import sift
from latentry.exchange.reading import Unreadable
from latentry.exchange.source import Entry, Score

WIDTH = 10


def row(latent, text="a text", place="f:1", date="", labels=None, **more):
    return Entry(place=place, latent=latent, text=text, about={"date": date} if date else {}, labels=labels or {}, **more)


def score(value, metric="accuracy", scorer="fuzz"):
    return Score(scorer=scorer, metric=metric, score=value, definition="")


def texts(taken):
    return {latent: text.text for latent, text in taken.texts.items()}


@pytest.mark.parametrize("found", [3, "3", " 3 ", "3.0", 3.0, "003"])
def test_a_latent_is_its_number_however_it_is_written(found):
    assert texts(sift([row(found)], WIDTH, {})) == {3: "a text"}


@pytest.mark.parametrize("found", [10, "10", -1, "-1", 10**30, "9" * 399, 1e30])
def test_numbers_outside_the_width_are_counted_as_such(found):
    taken = sift([row(1), row(found, place="f:7")], WIDTH, {})
    assert taken.left.counts == {imported.OUTSIDE: 1}
    assert taken.left.first[imported.OUTSIDE][0].startswith("f:7")


@pytest.mark.parametrize("found", [None, "six", 1.5, True, "1e3", [], {}, float("nan"), float("inf"), "٣", "9" * 5000])
def test_what_is_no_whole_number_is_told_and_no_latent(found):
    taken = sift([row(1), row(found)], WIDTH, {})
    assert (list(taken.texts), taken.left.counts) == ([1], {imported.UNREADABLE: 1})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, imported.EMPTY),
        (" \n", imported.EMPTY),
        (float("nan"), imported.EMPTY),
        (42, imported.UNREADABLE),
        ("\ud800", imported.UNREADABLE),
    ],
)
def test_what_is_no_text_is_left_out_for_its_reason(text, why):
    assert sift([row(1), row(2, text)], WIDTH, {}).left.counts == {why: 1}


def test_texts_of_more_than_a_bounded_length_are_told():
    assert sift([row(1), row(2, "x" * 10_001)], WIDTH, {}).left.counts == {imported.UNREADABLE: 1}
    assert not sift([row(1), row(2, "x" * 10_000)], WIDTH, {}).left.counts


def test_of_two_texts_the_latest_is_taken_and_without_dates_the_first():
    taken = sift(
        [row(1, "old", date="2024-01-02"), row(1, "new", date="2024-03-01"), row(2, "one"), row(2, "two"), row(3, "a  b"), row(3, "a b")],
        WIDTH,
        {},
    )
    assert texts(taken) == {1: "new", 2: "one", 3: "a  b"}
    assert taken.left.counts == {imported.OTHER: 2, imported.SAME: 1}


def test_scores_follow_the_text_that_is_taken():
    rows = [
        row(1, "old", date="2024", scores=(score(0.1),)),
        row(1, "new", date="2025", scores=(score(0.2), score(0.3, "f1"))),
        row(1, "old", date="2024", scores=(score(0.4),)),
        row(1, "new", scores=(score(0.5, scorer="detection"), score(0.6))),
        row(2, has_text=False, scores=(score(0.7),)),
    ]
    taken = sift(rows, WIDTH, {})
    assert {key: one.score for key, one in taken.scores[1].items()} == {
        ("fuzz", "accuracy", False): 0.2,
        ("fuzz", "f1", False): 0.3,
        ("detection", "accuracy", False): 0.5,
    }
    assert (list(taken.scores), taken.left_scores.counts) == ([1], {imported.OF_OTHER: 3, imported.TWICE: 1})


@pytest.mark.parametrize("found", [float("nan"), "nan", float("inf"), "-inf", None, True, "good", [], 10**400])
def test_a_score_that_is_no_finite_number_is_none(found):
    taken = sift([row(1, scores=(score(found),))], WIDTH, {})
    assert (taken.n_scores_taken(), taken.left_scores.counts) == (0, {imported.NO_NUMBER: 1})


def test_every_row_and_score_is_taken_or_counted():
    rng = random.Random(0)
    rows = [
        row(rng.choice([*range(12), "x"]), rng.choice(["a", "b", "", None]), date=rng.choice(["", "1", "2"]), has_text=rng.random() < 0.8)
        for _ in range(300)
    ]
    rows = [Entry(**{name: getattr(one, name) for name in one.__slots__} | {"scores": (score(rng.choice([0.5, None])),)}) for one in rows]
    rows += [Unreadable(place="f:1", why="broken"), Unreadable(place="f:2", why="broken", holds_scores=True)]
    taken = sift(rng.sample(rows, len(rows)), WIDTH, {})
    assert (
        taken.n_rows
        == len(taken.texts) + taken.left.counts.total()
        == sum(getattr(one, "has_text", not getattr(one, "holds_scores", 0)) for one in rows)
    )
    assert taken.n_scores == taken.n_scores_taken() + taken.left_scores.counts.total() == 301
    assert set(taken.scores) <= set(taken.texts)


def test_latents_without_a_text_are_those_of_the_width():
    assert sift([row(1)], 4, {}).without_text() == [0, 2, 3]
    assert sift([row(4_000_000_000)], None, {}).without_text() == []


def test_rows_of_several_kinds_must_be_chosen_from():
    rows = [row(place, labels={"layer": layer, "model": "m"}) for place, layer in enumerate(["6", "7", "7"])]
    with pytest.raises(ExchangeError, match=r"layer has 2 values: '7' \(2 rows\), '6' \(1 rows\); choose one, such as --where layer='7'"):
        sift(rows, WIDTH, {})
    taken = sift(rows, WIDTH, {"layer": "7"})
    assert (list(taken.texts), taken.left.counts) == ([1, 2], {imported.NOT_CHOSEN: 1})


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"layer": "8"}, r"--where layer=8: no row has that; layer is '6' \(1 rows\)"),
        ({"sae": "x"}, "--where sae=x: rows have no 'sae'; one of 'layer'"),
    ],
)
def test_a_choice_that_there_is_not_is_told_with_those_there_are(where, said):
    with pytest.raises(ExchangeError, match=said):
        sift([row(1, labels={"layer": "6"})], WIDTH, where)


def test_a_source_without_any_text_of_the_sae_is_refused_with_its_reasons():
    with pytest.raises(ExchangeError, match=r"of 2 rows none is an explanation of this SAE \(1 outside .*f:1.*; 1 without a text"):
        sift([row(10), row(1, "")], WIDTH, {})


def test_scores_without_any_text_are_refused_with_what_is_wanted():
    with pytest.raises(ExchangeError, match=r"2 scores and no explanation: .* column `text`"):
        sift([row(n, None, has_text=False, scores=(score(0.5),)) for n in (1, 2)], WIDTH, {})


@pytest.mark.parametrize(
    ("metric", "value", "is_taken"),
    [
        ("auroc", 1.0, True),
        ("auroc", 87.0, False),
        ("F1", -0.1, False),
        ("balanced_accuracy", 1.01, False),
        ("pearson", -0.5, True),
        ("correlation", -1.5, False),
        ("nats", -30.0, True),
        ("their own", 87.0, True),
    ],
)
def test_a_score_outside_the_range_of_its_metric_is_left_out_and_listed(metric, value, is_taken):
    taken = sift([row(1, scores=(score(value, metric),))], WIDTH, {})
    assert taken.n_scores_taken() == is_taken
    assert taken.left_scores.counts == ({} if is_taken else {imported.OUT_OF_RANGE: 1})
