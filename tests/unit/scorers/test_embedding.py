"""The embedding scorer with an embedder that counts words."""

from collections.abc import Sequence

import numpy as np

from fakes import scorer_inputs
from latentry.records import Status
from latentry.scorers import embedding
from planted_windows import item

WORDS = ("tax", "whale", "house")


class WordEmbedder:
    """Unit vectors of how often a few words stand in a text."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        self.asked.append(list(texts))
        rows = np.array([[text.split().count(word) for word in WORDS] + [0.5] for text in texts], np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    documents = queries


def judged(items):
    embedder = WordEmbedder()
    scorer = embedding.build(embedding.Config(kind="embedding"), scorer_inputs(embedder=lambda _: embedder))
    return scorer.judge(items), embedder


def test_true_explanation_puts_every_activating_window_above_every_contrast():
    judgments, _ = judged([item("tax")])
    fires = [judgment.confidence for judgment in judgments if judgment.is_activating]
    silent = [judgment.confidence for judgment in judgments if not judgment.is_activating]
    assert len(fires) == len(silent) == 12 and min(fires) > max(silent)
    assert {(judgment.says_activating, judgment.status) for judgment in judgments} == {(None, Status.OK)}


def test_confidence_is_the_cosine():
    judgments, _ = judged([item("tax")])
    query = np.array([1, 0, 0, 0.5])
    document = np.array([1, 0, item("tax").examples[0].text.split().count("house"), 0.5])
    assert judgments[0].confidence == round(float(query @ document / np.linalg.norm(query) / np.linalg.norm(document)), 6)


def test_each_distinct_text_is_embedded_once_for_all_items():
    _, embedder = judged([item("tax"), item("tax", latent=2), item("whale", latent=3), item("whale", null=True)])
    queries, documents = embedder.asked
    assert sorted(queries) == ["tax", "whale"]
    assert len(documents) == len(set(documents)) == 24


class Cutting(WordEmbedder):
    """Reads five hundred characters."""

    def cut(self, role: str, texts: Sequence[str]) -> frozenset[str]:  # noqa: ARG002
        return frozenset(text for text in texts if len(text) > 500)


def test_an_explanation_longer_than_the_model_reads_is_scored_and_the_score_says_so():
    scorer = embedding.build(embedding.Config(kind="embedding"), scorer_inputs(embedder=lambda _: Cutting()))
    items = [item("tax " * 2500), item("", latent=2)]
    judgments = scorer.judge(items)
    long, empty = (scorer.score(one, [made for made in judgments if made.latent == one.latent], np.random.default_rng(0)) for one in items)
    assert long.detail == "24 judgments: the explanation is longer than the model reads, the rest was cut off"
    assert (long.status, empty.status, empty.detail) == (Status.OK, Status.OK, "")
