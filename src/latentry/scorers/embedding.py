"""Embedding: how near a window's embedding is to the explanation's; no judge is asked (Paulo et al. 2025).

The explanation is embedded as a query, the window as a document, with the model's own prompts for these.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from latentry.embeddings import DOCUMENT, QUERY
from latentry.metrics import LatentScore
from latentry.records import Judgment, Kind
from latentry.registry import ScorerConfig
from latentry.scorers.asking import Case, judgment
from latentry.scorers.base import Item, ScorerInputs, used_examples
from latentry.scorers.embedded import CUT, DECIMALS, cut_texts, with_notes
from latentry.scorers.told_apart import told_apart

if TYPE_CHECKING:
    from latentry.embeddings import Embedder


class Config(ScorerConfig):
    """What is embedded with which model."""

    model: str = "minilm"
    """A sentence-transformers model, by its name under `models`."""
    contrast: str = "random"
    """Entry of `examples.contrasts` that the activating windows are told from; never one chosen by this same model."""


def build(config: Config, inputs: ScorerInputs) -> "Embedding":
    """The scorer."""
    return Embedding(config, inputs.embedder(config.model))


class Embedding:
    """Grades every window by its cosine to the explanation."""

    def __init__(self, config: Config, embedder: "Embedder") -> None:
        self.contrast = config.contrast
        self._max_examples, self._embedder = config.max_examples, embedder

    def judge(self, items: Sequence[Item]) -> list[Judgment]:
        """One judgment per item and window used; confidence is the cosine, and there is no yes or no."""
        examples = [used_examples(item, self.contrast, self._max_examples) for item in items]
        queries = _numbered(item.text for item in items)
        documents = _numbered(example.text for of_item in examples for example in of_item)
        query_rows = self._embedder.queries(list(queries))
        document_rows = self._embedder.documents(list(documents))
        cut_queries = cut_texts(self._embedder, QUERY, queries)
        cut_documents = cut_texts(self._embedder, DOCUMENT, documents)
        judgments = []
        for item, of_item in zip(items, examples, strict=True):
            query = query_rows[queries[item.text]]
            for example in of_item:
                cosine = round(float(np.dot(query, document_rows[documents[example.text]])), DECIMALS)
                case = Case(example_id=example.example_id, is_activating=example.kind is Kind.ACTIVATING, shown=example.text)
                cut = [
                    name
                    for name, is_cut in (("explanation", item.text in cut_queries), ("window", example.text in cut_documents))
                    if is_cut
                ]
                judgments.append(judgment(item, case, None, confidence=cosine, detail=f"the {' and the '.join(cut)} {CUT}" if cut else ""))
        return judgments

    def score(self, item: Item, judgments: Sequence[Judgment], rng: np.random.Generator) -> LatentScore:
        """How well the answers tell activating windows from contrasts."""
        return with_notes(told_apart(item, judgments, rng, contrast=self.contrast), judgments)


def _numbered(texts: Iterable[str]) -> dict[str, int]:
    """The distinct texts, each with its row."""
    return {text: row for row, text in enumerate(dict.fromkeys(texts))}
