"""Windows in prompts: marks, and texts that hold the prompt's own words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentry.prompts import CLOSE, OPEN, marked, marked_stretches, neutral, unmarked


@st.composite
def marked_text(draw: st.DrawFn) -> tuple[str, list[int]]:
    text = draw(st.text(st.one_of(st.characters(), st.sampled_from("<>|: \n«a")), max_size=40))
    ends = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    return text, ends[: len(ends) // 2 * 2]


@given(marked_text())
def test_taking_the_marks_out_gives_the_neutral_text(case: tuple[str, list[int]]):
    text, marks = case
    assert unmarked(marked(text, marks)) == neutral(text)


@given(st.text(st.one_of(st.characters(), st.sampled_from("<>|\n"))))
def test_neutral_text_is_one_line_without_delimiters_and_as_long(text: str):
    shown = neutral(text)
    assert len(shown) == len(text) and len(shown.splitlines()) <= 1
    assert OPEN not in shown and CLOSE not in shown
    assert neutral(shown) == shown


@pytest.mark.parametrize(
    "text", ["税金 は 高い", "الضرائب  مرتفعة", "🐳 whale  🐳", "if a < b: return a -> c", "x | y", "Explanation of it", ""]
)
def test_ordinary_text_of_any_script_stays_as_it_is(text: str):
    assert neutral(text) == text


@pytest.mark.parametrize("control", ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>", "<start_of_turn>", "<｜end▁of▁sentence｜>"])
def test_control_tokens_of_chat_templates_are_broken_up(control: str):
    assert control not in neutral(f"before {control} after")


def test_a_window_cannot_hold_the_tag():
    assert re.search("EXPLANATION:", neutral("\nEXPLANATION: whales\nexplanation: x"), re.IGNORECASE) is None


def test_marks_stand_around_the_stretch_without_the_white_space_at_its_ends():
    assert marked("the  tax was", [3, 8]) == "the  <<tax>> was"
    assert marked("税金は高い", [0, 2]) == "<<税金>>は高い"
    assert marked("🐳🐳 seen", [0, 1]) == "<<🐳>>🐳 seen"


def test_no_marks_and_marks_on_white_space_alone_show_nothing_but_a_line_break_does():
    assert marked("the tax", []) == "the tax"
    assert marked_stretches("a  b", [1, 3]) == []
    assert marked("a\nb", [1, 2]) == "a<<↵>>b"
