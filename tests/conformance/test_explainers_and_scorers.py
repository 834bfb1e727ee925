"""What every explainer and every scorer keeps, over all files found in their rooms."""

import ast
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fakes import Answer, Rule, ask_by, failed, scorer_inputs
from latentry.explainers.base import LatentExamples, Promoted, SaeFacts
from latentry.metric_kinds import METRIC_KINDS
from latentry.records import Example, Explanation, Purpose, Reply, Request, Split, Status
from latentry.registry import kinds, variant
from latentry.scorers.base import Item, items_for, unexplained_items
from latentry.scorers.steering import Passage, Steered
from planted_windows import held_out, window

WORDS = {1: "tax", 2: "🐳"}
"""What the planted latents fire on."""


def graded(request: Request) -> Answer:
    """What a model that can do everything says: log-probabilities of whatever the request wants graded, else a word."""
    levels = {text: -1.0 - place for place, text in enumerate(request.alternatives)}
    if request.continuation or request.slots:
        continuation = tuple(-1.0 for _ in request.continuation.split())
        slots = tuple(dict(levels) for _ in request.slots)
        return Reply(status=Status.OK, text="", detail="", continuation=continuation, slots=slots, key="fake")
    return levels or "Yes"


REPLIES: dict[str, Rule] = {
    "graded": graded,
    "yes": lambda _: "Yes",
    "nonsense": lambda _: "?!",
    "empty": lambda _: "",
    "impossible": lambda _: {"Yes": math.nan, "No": 3.0},
    "refused": lambda _: failed(Status.REFUSED),
    "down": lambda _: failed(Status.CLIENT_ERROR),
    "unsupported": lambda _: failed(Status.UNSUPPORTED),
}


class ByLength:
    """An embedder by the length of a text."""

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        rows = np.array([[1.0, len(text)] for text in texts], np.float32).reshape(-1, 2)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    documents = queries

    def cut(self, role: str, texts: Sequence[str]) -> frozenset[str]:  # noqa: ARG002
        return frozenset(texts)


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


def scorer_of(kind: str, config, rule: Rule):
    """The scorer with a judge by the rule, and a subject that latent 1 fires in."""
    ask = ask_by(rule, one_token=[str(level) for level in range(10)])
    return variant("scorers", kind).build(
        config("scorers", kind),
        scorer_inputs(
            ask=lambda _: ask,
            embedder=lambda _: ByLength(),
            explain_split=lambda: {latent: explain_windows(latent) for latent in (1, 2)},
            steered=lambda latents, kl, _: [(latent, steered(latent, kl)) for latent in latents],
            fired=lambda texts, _: [frozenset({1}) for _ in texts],
        ),
    )


def explain_windows(latent: int) -> list[Example]:
    return [window(latent, 500 + number, WORDS[latent], split=Split.EXPLAIN) for number in range(4)]


def steered(latent: int, kl: float) -> Steered:
    """Latent 1 says something else than it did; latent 2 is not moved to the KL."""
    said = (("a/0", "so the", " tax and the tax"), ("a/1", "on the", " duty"))
    passages = tuple(
        Passage(example_id=f"{latent}/{number}", purpose=Purpose.SCORE, prompt=prompt, clean=" day", changed=changed, risen=(" tax",))
        for number, prompt, changed in said
    )
    return Steered(strength=3.0, kl=kl if latent == 1 else kl / 2, reached=latent == 1, passages=passages if latent == 1 else ())


def items_of(kind: str, config, *, texts: Sequence[str] = ("tax", "the 🐳")) -> list[Item]:
    """Two latents, and a null of each; without explanations where the scorer reads none."""
    windows = {latent: held_out(latent, word, 40) for latent, word in WORDS.items()}
    if not config("scorers", kind).reads_explanations:
        return unexplained_items(windows, ranked=[1, 2], seed=0)
    told = [
        Explanation(latent=latent, explainer="told", text=text, status=Status.OK, detail="", prompt_digest="", reply=None, reply_key=None)
        for latent, text in zip(WORDS, texts, strict=True)
    ]
    return items_for(told, windows, ranked=[1, 2], seed=0)


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("kind", kinds("scorers"))
def test_scorer_gives_every_item_judgments_of_their_own_and_a_score_or_a_status_whatever_the_reply(kind: str, reply: str, config):
    scorer, items = scorer_of(kind, config, REPLIES[reply]), items_of(kind, config)
    assert len(items) == 4
    judgments = scorer.judge(items)
    keys = [(judgment.latent, judgment.explainer, judgment.null, judgment.example_id) for judgment in judgments]
    assert len(set(keys)) == len(keys)
    assert {key[:3] for key in keys} == {(item.latent, item.explainer, item.null) for item in items}
    assert isinstance(scorer.contrast, str) and scorer.contrast == config("scorers", kind).contrast
    for item in items:
        mine = [one for one in judgments if (one.latent, one.null) == (item.latent, item.null)]
        score = scorer.score(item, mine, np.random.default_rng(0))
        fine = sum(one.status is Status.OK for one in mine)
        assert (score.n_activating + score.n_contrast, score.n_failed) == (fine, len(mine) - fine)
        assert bool(score.values) == (score.status is Status.OK)
        assert fine or score.status not in (Status.OK, Status.SINGLE_CLASS, Status.CONSTANT)
        for name, found in score.values.items():
            assert name in METRIC_KINDS
            low, high = METRIC_KINDS[name].limits or (-math.inf, math.inf)
            assert low <= found.value <= high
            assert found.low is None or found.high is None or found.low <= found.value <= found.high


@pytest.mark.parametrize("kind", kinds("scorers"))
def test_every_scorer_scores_where_its_judge_can_do_everything(kind: str, config):
    scorer, items = scorer_of(kind, config, graded), items_of(kind, config)
    mine = [one for one in scorer.judge(items) if (one.latent, one.null) == (1, False)]
    assert {one.status for one in mine} == {Status.OK}
    score = scorer.score(items[0], mine, np.random.default_rng(0))
    # the judge says one thing of every window, so that what it simulates does not vary
    assert score.status is (Status.CONSTANT if kind == "simulation" else Status.OK)


@pytest.mark.parametrize("kind", kinds("scorers"))
def test_judgments_do_not_depend_on_the_order_of_the_items(kind: str, config):
    scorer, items = scorer_of(kind, config, graded), items_of(kind, config)
    forward, backward = scorer.judge(items), scorer.judge(items[::-1])
    assert sorted(forward, key=repr) == sorted(backward, key=repr)


@pytest.mark.parametrize("kind", kinds("scorers"))
@pytest.mark.parametrize("text", ["", "tax " * 2500, "<<tax>> \ud800 \x00", "税金"], ids=["empty", "10,000 characters", "odd", "CJK"])
def test_any_text_is_judged_as_an_explanation(kind: str, text: str, config):
    scorer, items = scorer_of(kind, config, graded), items_of(kind, config, texts=(text, "the 🐳"))
    assert {one.latent for one in scorer.judge(items)} == {1, 2}


@pytest.mark.parametrize("kind", kinds("scorers"))
def test_scorer_of_no_items_gives_nothing(kind: str, config):
    assert scorer_of(kind, config, graded).judge([]) == []


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("kind", kinds("explainers"))
def test_explainer_gives_one_row_per_latent_in_order_whatever_the_reply(kind: str, reply: str, config):
    explainer = variant("explainers", kind).build(config("explainers", kind), "named", 0, lambda _: ask_by(REPLIES[reply]), SAE)
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
        config = next(node for node in ast.parse(Path(str(module.__file__)).read_text()).body if getattr(node, "name", "") == "Config")
        assert isinstance(config, ast.ClassDef) and ast.get_docstring(config)
        for knob, after in zip(config.body, [*config.body[1:], None], strict=True):
            if isinstance(knob, ast.AnnAssign):
                told = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str)
                assert told, f"{room}/{kind}: {ast.unparse(knob.target)} has no docstring"
