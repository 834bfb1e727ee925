"""The prompts as a judge or an explainer model reads them, whole: a change of one is seen in review.

A changed prompt is a changed method: write the new file by hand from what the failing test shows.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from latentry.explainers import contrastive, default, output_centric, steered
from latentry.explainers.base import Promoted
from latentry.records import Message, Purpose, Request, Split
from latentry.scorers import detection, fuzzing, intervention, intruder, sensitivity, simulation, surprisal
from latentry.scorers.asking import Case
from latentry.scorers.passages import Passage
from planted_windows import item, window

GOLDEN = Path(__file__).parents[1] / "golden"

CASES = (
    Case(example_id="a", is_activating=True, shown="the old <<tax>> was seen"),
    Case(example_id="b", is_activating=False, shown="by many <<men>> of the tax house"),
)
PLAIN = tuple(
    Case(example_id=case.example_id, is_activating=case.is_activating, shown=case.shown.replace("<<", "").replace(">>", ""))
    for case in CASES
)
KIND: dict[str, Any] = {"kind": "any", "client": "model"}
FIRES = [window(1, number, "tax", split=Split.EXPLAIN) for number in range(3)]
SILENT = [window(1, number, None, split=Split.EXPLAIN, text=f"by many men <<{number}>>") for number in range(2)]
PROMOTED = Promoted(more=(" tax", "Tax", " duty", "\n"), less=(" the",))

PASSAGES = [
    Passage(example_id=text, purpose=Purpose.EXPLAIN, prompt=text, clean=" by", changed=" tax", risen=risen)
    for text, risen in (("the old house was seen by many <<men>>\nin their", (" tax", "Tax", "\n")), ("by", (" duty",)), ("in", ()))
]


def given(request: Request) -> list[Message]:
    """A prompt with the text that follows it and is graded; of slots, where each one is."""
    text = request.continuation or "".join(f"{slot}[?]" for slot in request.slots)
    return [*request.messages, Message(role="graded", content=text)]


PROMPTS = {
    "detection_single": detection.single_prompt(item("words about taxes"), PLAIN[0]),
    "detection_list": detection.list_prompt(item("words about taxes"), PLAIN),
    "fuzzing_single": fuzzing.single_prompt(item("words about taxes"), CASES[1]),
    "fuzzing_list": fuzzing.list_prompt(item("words about taxes"), CASES),
    "simulation": simulation.prompt("words about taxes", simulation.shown_tokens(FIRES[0]), 9),
    "simulation_given_lines": given(simulation.slots_request("words about taxes", FIRES[0], 9)),
    "surprisal": given(surprisal.request("words about taxes", FIRES[0])),
    "intruder": intruder.prompt([example.text for example in (*FIRES, FIRES[0], SILENT[0])]),
    "intervention": given(intervention.request("the old house was <<seen>> by", "words about taxes")),
    "sensitivity": sensitivity.prompt("words about taxes"),
    "explainer_default": default.prompt(FIRES, default.Config(**KIND)),
    "explainer_default_all": default.prompt(
        FIRES, default.Config(**KIND, levels=True, reasoning_tokens=200, worked=1, max_words=20, language="German")
    ),
    "explainer_contrastive": contrastive.prompt(FIRES, SILENT, contrastive.Config(**KIND)),
    "explainer_output_centric": output_centric.prompt(PROMOTED, (), output_centric.Config(**KIND)),
    "explainer_steered": steered.prompt(PASSAGES, steered.Config(**KIND)),
    "explainer_output_centric_windows": output_centric.prompt(PROMOTED, FIRES, output_centric.Config(**KIND, windows=True)),
}


def whole(messages: Sequence[Message]) -> str:
    """A prompt as one text."""
    return "".join(f"[{message.role}]\n{message.content}\n" for message in messages)


@pytest.mark.parametrize("name", PROMPTS)
def test_prompt_is_what_the_golden_file_says(name: str):
    assert whole(PROMPTS[name]) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_every_golden_prompt_is_compared():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(PROMPTS)
