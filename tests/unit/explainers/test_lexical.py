"""The lexical explainer on planted words, in several scripts."""

import dataclasses
import math

import pytest

from fakes import ask_by
from latentry.explainers import lexical
from latentry.explainers.base import LatentExamples, SaeFacts
from latentry.explainers.lexical import z_scores
from latentry.records import Example, Explanation, Split, Status
from planted_windows import window

EXPLAIN = Split.EXPLAIN


SAE = SaeFacts(name="planted", width=10, promoted=dict)


def explained(fires: list[Example], silent: list[Example], status: Status = Status.OK, **settings) -> Explanation:
    explainer = lexical.build(lexical.Config(kind="lexical", **settings), "lexical", 0, lambda _: ask_by(lambda _: ""), SAE)
    (row,) = explainer.explain([LatentExamples(latent=1, status=status, detail="", examples=tuple(fires + silent))])
    return row


def windows(texts: list[str], word: str | None) -> list[Example]:
    return [window(1, number, word, split=EXPLAIN, text=text) for number, text in enumerate(texts)]


def silent(n: int = 10) -> list[Example]:
    return [window(1, 100 + number, None, split=EXPLAIN) for number in range(n)]


def test_planted_word_is_the_explanation():
    assert explained([window(1, number, "tax", split=EXPLAIN) for number in range(10)], silent()).text == 'words: "tax"'


def test_a_phrase_takes_the_place_of_its_words():
    texts = [f"the united states {word} here" for word in ("are", "were", "shall", "will", "may", "must")]
    assert explained(windows(texts, "states"), silent()).text == 'words: "the united states"'


def test_marked_words_come_before_words_that_only_stand_near():
    texts = [f"captain {word} tax" for word in ("the", "old", "seen", "men", "house", "long")]
    assert explained(windows(texts, "tax"), silent(), max_words=1).text.startswith('words: "tax"')


def test_contrasts_take_out_what_is_common_everywhere():
    fires = windows([f"the tax {number}" for number in range(8)], "tax")
    common = windows([f"the house {number}" for number in range(8)], None)
    assert '"the"' not in explained(fires, common).text


@pytest.mark.parametrize(
    ("texts", "word", "text"),
    [
        (["高い 税金 の", "低い 税金 が", "新 税金 を"], "税金", '"税金"'),
        (["هذه ضريبة جديدة", "تلك ضريبة قديمة", "أي ضريبة"], "ضريبة", '"ضريبة"'),
        (["a 🐳 b", "c 🐳 d", "e 🐳 f"], "🐳", '"🐳" (spouting whale)'),
        (["so , he", "but , it", "and , as"], ",", '"," (comma)'),
    ],
)
def test_any_script_and_signs_by_name(texts: list[str], word: str, text: str):
    row = explained(windows(texts, word), silent())
    assert row.text is not None
    assert text in row.text


def test_numbers_that_differ_are_named_by_their_length():
    fires = [window(1, number, str(1890 + number), split=EXPLAIN) for number in range(8)]
    assert explained(fires, silent()).text == "words: 4-digit number"


def test_line_breaks_are_a_term():
    fires = windows([f"one tax\n{word}" for word in "abcdef"], "tax")
    fires = [dataclasses.replace(example, marks=(7, 8)) for example in fires]
    assert "line break" in explained(fires, silent(), max_words=1).text


def test_same_examples_in_another_order_give_the_same_row():
    fires = [window(1, number, "tax", split=EXPLAIN) for number in range(10)]
    assert explained(fires[::-1], silent()[::-1]) == explained(fires, silent())


def test_prompt_digest_follows_the_inputs():
    fires = [window(1, number, "tax", split=EXPLAIN) for number in range(10)]
    digests = {
        explained(fires, silent()).prompt_digest,
        explained(fires, silent(9)).prompt_digest,
        explained(fires, silent(), n_terms=3).prompt_digest,
    }
    assert len(digests) == 3


@pytest.mark.parametrize("status", [Status.DEAD, Status.UNDERSAMPLED])
def test_latent_that_is_not_ok_keeps_its_status(status: Status):
    row = explained([], [], status)
    assert (row.status, row.text) == (status, None)


def test_no_words_at_all_is_a_status():
    blank = [window(1, 0, " ", split=EXPLAIN, text="tax")]
    assert explained(blank, silent()).status is Status.UNDERSAMPLED


def test_z_score_by_hand():
    scores = z_scores({"a": 3.0, "b": 1.0}, {"a": 1.0, "b": 3.0})
    prior = 500 * 4 / 8
    odds = math.log((3 + prior) / (4 + 500 - 3 - prior)) - math.log((1 + prior) / (4 + 500 - 1 - prior))
    assert scores["a"] == pytest.approx(odds / math.sqrt(1 / (3 + prior) + 1 / (1 + prior)))
    assert scores["b"] == pytest.approx(-scores["a"])
