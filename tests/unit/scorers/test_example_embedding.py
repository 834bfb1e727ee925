"""Example embedding with an embedder that counts words."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fakes import scorer_inputs
from latentry.records import Split, Status
from latentry.scorers import example_embedding
from planted_windows import item, window

WORDS = ("tax", "whale")


class WordEmbedder:
    """Unit vectors of how often two words stand in a document."""

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        assert len(texts) == len(set(texts))
        rows = np.array([[text.split().count(word) for word in WORDS] + [0.5] for text in texts], np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def split(latent: int, word: str) -> list:
    """Windows that explainers saw: five in which the latent fires, and silent ones full of another word."""
    fires = [window(latent, number, word, split=Split.EXPLAIN) for number in range(50, 55)]
    return [*fires, window(latent, 90, None, split=Split.EXPLAIN, text="whale whale whale")]


def scored(one, seen):
    inputs = scorer_inputs(embedder=lambda _: WordEmbedder(), explain_split=lambda: seen)
    scorer = example_embedding.build(example_embedding.Config(kind="example_embedding"), inputs)
    judgments = scorer.judge([one])
    return judgments, scorer.score(one, judgments, np.random.default_rng(0))


SEEN = {1: split(1, "tax"), 2: split(2, "whale")}


def test_own_windows_tell_apart_and_another_latents_do_not():
    judgments, own = scored(item(""), SEEN)
    _, null = scored(replace(item("", null=True), partner=2), SEEN)
    assert own.values["auroc"].value == 1.0
    assert null.values["auroc"].value == 0.0  # nearer to the windows without the word, by the shared axis
    mean = np.array([1, 0, 0.5])  # every window of the explain split holds the word once
    assert judgments[0].confidence == round(float(mean @ mean / np.linalg.norm(mean) ** 2), 6)


def test_a_latent_without_windows_that_were_seen_is_undersampled():
    judgments, score = scored(item(""), {2: split(2, "whale")})
    assert {(one.status, one.confidence) for one in judgments} == {(Status.UNDERSAMPLED, None)}
    assert score.status is Status.UNDERSAMPLED


def test_equal_texts_are_embedded_once_and_tie():
    same = [window(1, number, "tax", text="the tax") for number in range(3)] + [
        window(1, number, None, text="the sea") for number in range(3)
    ]
    judgments, score = scored(replace(item(""), examples=tuple(same)), SEEN)
    assert len({one.confidence for one in judgments}) == 2 and score.values["auroc"].value == 1.0
