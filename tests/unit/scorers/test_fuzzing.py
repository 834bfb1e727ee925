"""Fuzzing on planted latents: where the marks of its contrasts stand, and whether a judge that follows them separates."""

import dataclasses
import re

from hypothesis import given
from hypothesis import strategies as st

from fakes import Answer, ask_by, scorer_inputs
from latentry.records import Request
from latentry.scorers import fuzzing
from latentry.scorers.base import Item
from latentry.scorers.fuzzing import fuzzed_cases, marked_runs, silent_marks
from planted_windows import asked, held_out, item, window


def follows(request: Request) -> Answer:
    """A judge that looks for the explanation's last word among the marked ones."""
    explanation, texts = asked(request.messages)
    answers = [explanation.split()[-1] in re.findall(r"<<(.*?)>>", text) for text in texts]
    if not request.alternatives:
        return str([int(answer) for answer in answers])
    return {"Yes": -0.1, "No": -2.4} if answers[0] else {"Yes": -2.4, "No": -0.1}


def scorer(rule, **settings):
    return fuzzing.build(fuzzing.Config(kind="fuzzing", client="judge", **settings), scorer_inputs(ask=lambda _: ask_by(rule)))


def test_true_explanation_separates_and_a_false_one_does_not():
    for way in ("single", "list"):
        true = scorer(follows, ask=way).judge([item("the word tax")])
        assert all(judgment.says_activating == judgment.is_activating for judgment in true)
        assert not any(judgment.says_activating for judgment in scorer(follows, ask=way).judge([item("the word whale")]))


def test_wrong_position_marks_silent_tokens_of_windows_that_are_not_positives():
    cases = fuzzed_cases(item("tax"), "wrong-position", 5, 0)
    wrong = [case for case in cases if not case.is_activating]
    assert len(cases) == 10 and len(wrong) == 5
    assert all(case.example_id.endswith("~wrong") and "tax" in case.shown and "<<tax>>" not in case.shown for case in wrong)
    assert all(case.shown.count("<<") == 1 for case in cases)
    texts = [case.shown.replace("<<", "").replace(">>", "") for case in cases]
    assert len(set(texts)) == len(texts)


def test_without_a_limit_half_of_the_windows_are_positives():
    cases = fuzzed_cases(item("tax", n=11), "wrong-position", None, 0)
    assert [case.is_activating for case in cases].count(True) == 6
    assert [case.is_activating for case in cases].count(False) == 5


def test_a_positives_text_never_comes_back_as_a_contrast():
    twin = dataclasses.replace(window(1, 0, "tax"), example_id="twin", rank=50)
    shown = item("tax", n=3)
    cases = fuzzed_cases(dataclasses.replace(shown, examples=(*held_out(1, "tax", 3)[:3], twin)), "wrong-position", 2, 0)
    assert all(not case.example_id.startswith("twin") for case in cases)


def test_a_window_without_room_is_left_out():
    full = tuple(window(1, number, "tax", text="tax tax tax") for number in range(6))
    cases = fuzzed_cases(Item(latent=1, explainer="t", null=False, text="tax", examples=full), "wrong-position", 3, 0)
    assert [case.is_activating for case in cases] == [True] * 3


def test_a_named_contrast_is_marked_after_the_positives():
    cases = fuzzed_cases(item("tax"), "random", 4, 0)
    wrong = [case for case in cases if not case.is_activating]
    assert len(wrong) == 4 and all(case.shown.count("<<") == 1 and "tax" not in case.shown for case in wrong)
    assert not any(case.example_id.endswith("~wrong") for case in wrong)


def test_other_latents_and_their_order_change_no_mark():
    alone = fuzzed_cases(item("tax"), "wrong-position", 5, 0)
    shuffled = dataclasses.replace(item("tax"), examples=tuple(reversed(item("tax").examples)))
    assert fuzzed_cases(shuffled, "wrong-position", 5, 0) == alone
    assert fuzzed_cases(item("tax"), "wrong-position", 5, 1) != alone


def test_marks_take_the_nearest_silent_place_and_of_two_the_earlier():
    example = window(1, 0, "tax", text="a b tax c d")
    (start, end) = silent_marks(example, [(2, 1)])
    assert example.text[start:end] == "b"
    assert silent_marks(example, [(4, 1)]) == (10, 11)
    assert silent_marks(example, [(1, 3)]) == ()


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.lists(st.booleans(), min_size=1, max_size=12))
def test_copied_marks_keep_lengths_and_distances_and_touch_no_active_token(target: list[bool], donor: list[bool]):
    example = window(1, 0, "tax", text=" ".join("tax" if fires else f"w{place}" for place, fires in enumerate(target)))
    runs = marked_runs(window(1, 1, "tax", text=" ".join("tax" if fires else "w" for fires in donor)))
    marks = silent_marks(example, runs)
    n = len(target)
    room = [s for s in range(-n, n + 1) if all(f + s >= 0 and f + s + k <= n and not any(target[f + s : f + s + k]) for f, k in runs)]
    assert bool(marks) == bool(room and runs)
    if marks:
        spans = list(zip(example.spans[::2], example.spans[1::2], strict=True))
        copied = [
            [place for place, (a, b) in enumerate(spans) if a < end and b > start]
            for start, end in zip(marks[::2], marks[1::2], strict=True)
        ]
        assert [len(places) for places in copied] == [length for _, length in runs]
        shifts = {places[0] - first for places, (first, _) in zip(copied, runs, strict=True)}
        assert len(shifts) == 1 and abs(shifts.pop()) == min(map(abs, room))
        assert not any(target[place] for places in copied for place in places)


def test_a_byte_of_an_active_emoji_is_not_silent():
    example = dataclasses.replace(
        window(1, 0, "tax", text="a 🐳 b"),
        tokens=(1, 2, 3, 4),
        activations=(0.0, 1.0, 0.0, 0.0),
        spans=(0, 1, 2, 3, 2, 3, 4, 5),
        kind="activating",
    )
    assert silent_marks(example, [(2, 1)]) == (4, 5)
