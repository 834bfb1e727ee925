"""Example embedding: how near a window is to those that explainers saw; no explanation is needed (Paulo et al. 2025).

Its null is the nearness to another latent's windows. All windows are embedded as documents, with the model's own prompt.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from latentry.embeddings import DOCUMENT
from latentry.metrics import LatentScore
from latentry.records import Example, Judgment, Kind, Status
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

    @property
    def reads_explanations(self) -> bool:
        """It does not."""
        return False


def build(config: Config, inputs: ScorerInputs) -> "ExampleEmbedding":
    """The scorer."""
    return ExampleEmbedding(config, inputs.embedder(config.model), inputs.explain_split)


class ExampleEmbedding:
    """Grades every window by its cosine to the mean of the activating windows of the explain split."""

    def __init__(self, config: Config, embedder: "Embedder", explain_split: Callable[[], Mapping[int, Sequence[Example]]]) -> None:
        self.contrast = config.contrast
        self._max_examples, self._embedder, self._explain_split = config.max_examples, embedder, explain_split

    def judge(self, items: Sequence[Item]) -> list[Judgment]:
        """One judgment per item and window used; confidence is the cosine, and there is no yes or no."""
        if not items:
            return []
        seen = self._explain_split()
        shown = {latent: [one.text for one in seen.get(latent, ()) if one.kind is Kind.ACTIVATING] for latent in map(_whose, items)}
        used = [used_examples(item, self.contrast, self._max_examples) for item in items]
        texts = dict.fromkeys([*(text for of in shown.values() for text in of), *(example.text for of in used for example in of)])
        rows = dict(zip(texts, self._embedder.documents(list(texts)), strict=True))
        cut = cut_texts(self._embedder, DOCUMENT, texts)
        means = {latent: np.mean([rows[text] for text in of], axis=0) for latent, of in shown.items() if of}
        return [
            _judgment(item, example, rows[example.text], means.get(_whose(item)), is_cut=example.text in cut)
            for item, of in zip(items, used, strict=True)
            for example in of
        ]

    def score(self, item: Item, judgments: Sequence[Judgment], rng: np.random.Generator) -> LatentScore:
        """How well the cosines tell activating windows from contrasts."""
        return with_notes(told_apart(item, judgments, rng, contrast=self.contrast), judgments)


def _whose(item: Item) -> int:
    """The latent whose explain split stands in an explanation's place."""
    return item.latent if item.partner is None else item.partner


def _judgment(
    item: Item, example: Example, row: Float[np.ndarray, " d_embedding"], mean: Float[np.ndarray, " d_embedding"] | None, *, is_cut: bool
) -> Judgment:
    case = Case(example_id=example.example_id, is_activating=example.kind is Kind.ACTIVATING, shown=example.text)
    if mean is None:
        said = f"latent {_whose(item)} has no activating window in the explain split"
        return judgment(item, case, None, status=Status.UNDERSAMPLED, detail=said)
    length = float(np.linalg.norm(mean))
    # Windows that cancel out have no direction, and nothing is nearer to it than another.
    cosine = round(float(np.dot(row, mean)) / length, DECIMALS) if length else 0.0
    return judgment(item, case, None, confidence=cosine, detail=f"the window {CUT}" if is_cut else "")
