"""The embedding scorer, from items to scores, against a bare `SentenceTransformer.encode` of the distinct texts.

Both in this process, with the same model (data/models/minilm, or $LATENTRY_MODELS/minilm), batch and threads, in turn; each
loads its weights. Ours also digests them, looks every text up, keeps every vector on disk, and scores with intervals.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path

from judged_items import model_folder, planted_items, scorer_inputs
from sentence_transformers import SentenceTransformer
from synthetic import line

from latentry.embeddings import Embedder
from latentry.records import Explanation
from latentry.scorers import embedding
from latentry.scorers.base import Item
from latentry.scorers.score import score_rows

QUICK = bool(os.environ.get("QUICK"))
LATENTS, EACH = (20, 20) if QUICK else (100, 20)
"""Latents, and windows of each kind per latent."""
BATCH = 64
ROUNDS = 3


def bare(folder: Path, texts: list[str]) -> float:
    """Seconds of loading the model and encoding each distinct text once."""
    start = time.perf_counter()
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    model.encode(texts, batch_size=BATCH, normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False)
    return time.perf_counter() - start


def ours(folder: Path, explanations: list[Explanation], judged: list[Item]) -> tuple[float, float]:
    """Seconds of judging and scoring, from an empty cache; and of the scoring alone."""
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        embedder = Embedder(folder, "cpu", BATCH, Path(cache) / "embeddings.sqlite")
        scorer = embedding.build(embedding.Config(kind="embedding"), scorer_inputs(embedder=lambda _: embedder))
        judgments = scorer.judge(judged)
        scoring = time.perf_counter()
        score_rows(scorer, explanations, judged, judgments, name="embedding", contrast_source="random", seed=0)
        end = time.perf_counter()
    return end - start, end - scoring


def main() -> None:
    """Bare and ours in turn; the ratio is the median over the rounds, each of one round's two runs."""
    folder = model_folder("minilm")
    explanations, judged = planted_items(LATENTS, EACH)
    distinct = list(dict.fromkeys([item.text for item in judged] + [one.text for item in judged for one in item.examples]))
    bare(folder, distinct[:BATCH])
    rounds = [(bare(folder, distinct), *ours(folder, explanations, judged)) for _ in range(ROUNDS)]
    bare_s, ours_s, score_s = (statistics.median(times) for times in zip(*rounds, strict=True))
    ratio = statistics.median(mine / theirs for theirs, mine, _ in rounds)
    n_judgments = sum(len(item.examples) for item in judged)
    shown = {"n": len(distinct), "judgments": n_judgments, "ratio": ratio, "bare_s": bare_s, "ours_s": ours_s, "score_s": score_s}
    print(line("embedding", shown | {"rounds": ROUNDS}))  # noqa: T201


if __name__ == "__main__":
    main()
