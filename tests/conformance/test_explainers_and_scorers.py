"""What every explainer and every scorer keeps, over all files found in their rooms."""

import hashlib
from collections.abc import Sequence

import numpy as np
import pytest

from fakes import ask_by, failed, scorer_inputs
from latentry.explainers.base import LatentExamples, Promoted, SaeFacts
from latentry.records import Split, Status
from latentry.registry import kinds, variant
from planted_windows import item, window

REPLIES = {"good": {"Yes": -0.1, "No": -2.3}, "nonsense": "?!", "empty": "", "refused": failed(Status.REFUSED)}


class ByLength:
    """An embedder by the length of a text."""

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        rows = np.array([[1.0, len(text)] for text in texts], np.float32).reshape(-1, 2)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    documents = queries


SAE = SaeFacts(name="planted", width=10, promoted=lambda: {5: Promoted(more=(" tax", " duty"), less=("the",))})


@pytest.fixture
def config(tmp_path):
    """The smallest settings of a kind."""

    def of(room: str, kind: str):
        fields = variant(room, kind).Config.model_fields
        needed = {"client": "judge"} if "client" in fields else {}
        if kind == "fixed":
            file = tmp_path / "texts.csv"
            file.write_text("latent,text\n5,taxes\n")
            needed = {"path": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        return variant(room, kind).Config(kind=kind, **needed)

    return of


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("kind", kinds("scorers"))
def test_scorer_gives_one_judgment_per_item_and_example_whatever_the_reply(kind: str, reply: str, config):
    scorer = variant("scorers", kind).build(
        config("scorers", kind), scorer_inputs(ask=lambda _: ask_by(lambda _: REPLIES[reply]), embedder=lambda _: ByLength())
    )
    items = [item("tax"), item("the 🐳", latent=2, word="🐳"), item("税金", null=True)]
    judgments = scorer.judge(items)
    keys = [(judgment.latent, judgment.null, judgment.example_id) for judgment in judgments]
    assert len(set(keys)) == len(keys) and {key[:2] for key in keys} == {(1, False), (2, False), (1, True)}
    assert {judgment.is_activating for judgment in judgments} == {True, False}
    assert isinstance(scorer.contrast, str) and scorer.contrast


@pytest.mark.parametrize("kind", kinds("scorers"))
def test_scorer_of_no_items_gives_nothing(kind: str, config):
    scorer = variant("scorers", kind).build(
        config("scorers", kind), scorer_inputs(ask=lambda _: ask_by(lambda _: "x"), embedder=lambda _: ByLength())
    )
    assert scorer.judge([]) == []


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("kind", kinds("explainers"))
def test_explainer_gives_one_row_per_latent_in_order_whatever_the_reply(kind: str, reply: str, config):
    explainer = variant("explainers", kind).build(config("explainers", kind), "named", 0, lambda _: ask_by(lambda _: REPLIES[reply]), SAE)
    shown = tuple(window(5, number, word, split=Split.EXPLAIN) for number, word in enumerate(["tax", None] * 10))
    latents = [
        LatentExamples(latent=7, status=Status.DEAD, detail="no firing", examples=()),
        LatentExamples(latent=5, status=Status.OK, detail="", examples=shown),
        LatentExamples(latent=6, status=Status.OK, detail="", examples=()),
    ]
    rows = explainer.explain(latents)
    assert [(row.latent, row.explainer) for row in rows] == [(7, "named"), (5, "named"), (6, "named")]
    assert (rows[0].status, rows[0].detail, rows[2].status) == (Status.DEAD, "no firing", Status.UNDERSAMPLED)


@pytest.mark.parametrize("room", ["explainers", "scorers"])
def test_every_knob_has_its_docstring(room: str):
    for kind in kinds(room):
        module = variant(room, kind)
        assert (module.__doc__ or "").strip()
        source = open(module.__file__, encoding="utf-8").read()  # noqa: SIM115, PTH123
        body = source.split("\nclass Config(")[1].split("\ndef build")[0].split("    @field_validator")[0]
        n_knobs = len(module.Config.__annotations__)
        assert body.count('"""') == 2 * n_knobs + 2, f"{room}/{kind}: a field without a docstring"
