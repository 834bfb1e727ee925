"""Small corpora and stores of activations held in memory, with latents whose rule is known."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from latentry.contracts import EXAMPLES
from latentry.registry import ContrastConfig
from latentry.sampling.choose import Chosen, Corpus, choose_examples
from latentry.sampling.random import Config

Piece = tuple[int, int, int]
WINDOW = 8


@dataclass(frozen=True)
class PlantedTokens:
    """What sampling reads of the tokens of a run."""

    tokens: np.ndarray
    document: np.ndarray
    text_start: np.ndarray
    text_end: np.ndarray
    special: np.ndarray
    texts: list[str]

    @property
    def kept(self) -> np.ndarray:
        return (~self.special).astype(np.uint8)


def words_of(text: str) -> list[Piece]:
    """Every word is a token; its id follows from its letters."""
    return [(sum(map(ord, match.group())) % 50_000 + 1, *match.span()) for match in re.finditer(r"\S+", text)]


def tokens_of(texts: Sequence[str], context: int, tokenise: Callable[[str], list[Piece]] = words_of) -> PlantedTokens:
    """Documents one after another with a special token (id 0) after each; rows of `context`, the last one filled with id 0."""
    rows = []
    for document, text in enumerate(texts):
        rows += [(*piece, document, 0) for piece in tokenise(text)] + [(0, 0, 0, -1, 1)]
    rows += [(0, 0, 0, -1, 1)] * (-len(rows) % context)
    token, start, end, document, special = (np.array(column).reshape(-1, context) for column in zip(*rows, strict=True))
    return PlantedTokens(
        token.astype(np.uint32),
        document.astype(np.int32),
        start.astype(np.uint32),
        end.astype(np.uint32),
        special.astype(bool),
        list(texts),
    )


class PlantedStore:
    """Activations of latents, by latent: a dense array of one number a position."""

    def __init__(self, dense: Mapping[int, np.ndarray], width: int) -> None:
        self.width = width
        self._rows = {latent: (np.flatnonzero(values), values[np.flatnonzero(values)]) for latent, values in dense.items()}

    def read(self, latent: int) -> tuple[np.ndarray, np.ndarray]:
        position, activation = self._rows.get(latent, (np.zeros(0), np.zeros(0)))
        return position.astype(np.uint64), activation.astype(np.float32)

    def statistics(self) -> pa.Table:
        rows = [self.read(latent) for latent in range(self.width)]
        return pa.table(
            {
                "latent": pa.array(range(self.width), pa.uint32()),
                "firing_count": pa.array([position.size for position, _ in rows], pa.uint64()),
                "firing_frequency": pa.array([position.size / 1000 for position, _ in rows], pa.float64()),
                "peak": pa.array([activation.max(initial=0) for _, activation in rows], pa.float32()),
            }
        )


@dataclass(frozen=True)
class Explain:
    n: int = 20
    how: str = "deciles"
    n_contrast: int = 10


@dataclass(frozen=True)
class HeldOut:
    n_activating: int = 20
    n_contrast: int = 10


@dataclass(frozen=True)
class Asked:
    """Stands for `examples` of params.yaml."""

    window: int = WINDOW
    windows: str = "fixed"
    n_latents: int | None = None
    latents: Any = "all"
    strata: int | None = None
    min_examples: int = 40
    split_by: str = "document"
    explain: Explain = Explain()
    held_out: HeldOut = HeldOut()
    contrasts: Mapping[str, ContrastConfig] = field(default_factory=lambda: {"random": Config(kind="random")})

    def but(self, **changes: Any) -> "Asked":
        return replace(self, **changes)


WORDS = ["whale", "union", "sea", "storm", "nation", "hope", "sail", "law", "peace", "harbour", "  deep", "\nnew", "日本", "🙂", "שלום"]


def random_texts(n_documents: int, n_words: int, seed: int = 0) -> list[str]:
    """Documents of words drawn at random, in several scripts."""
    rng = np.random.default_rng(seed)
    return [" ".join(WORDS[i] for i in rng.integers(len(WORDS), size=n_words)) for _ in range(n_documents)]


def firing(token_set: PlantedTokens, probability: float, seed: int, documents: Sequence[int] | None = None) -> np.ndarray:
    """A latent that fires at random at tokens that are not special, in some documents only where these are named."""
    rng = np.random.default_rng(seed)
    fires = (rng.random(token_set.tokens.shape) < probability) & ~token_set.special
    if documents is not None:
        fires &= np.isin(token_set.document, documents)
    return np.where(fires, rng.random(fires.shape) + 0.01, 0).astype(np.float32).reshape(-1)


def corpus_of(token_set: PlantedTokens, store: PlantedStore, **changes: Any) -> Corpus:
    """What examples are chosen from; without a decoder and an embedding model, unless they are given."""
    whole: dict[str, Any] = {
        "token_set": token_set,
        "kept": token_set.kept,
        "store": store,
        "statistics": store.statistics(),
        "decoder": _nothing,
        "embedded": _nothing,
    }
    return Corpus(**(whole | changes))


def _nothing(*_: object) -> Any:
    raise AssertionError("no source may ask for this")


def chosen_from(seed: int, asked: Asked, corpus: Corpus, processes: int = 1) -> tuple[Chosen, pa.Table]:
    """What was chosen, and the table of examples."""
    parts = [EXAMPLES.tables["examples.parquet"].empty_table()]
    found = choose_examples(seed, asked, corpus, parts.append, processes)
    return found, pa.concat_tables(parts).combine_chunks()
