"""The embedding scorer, from items to scores, against a bare `SentenceTransformer.encode` of the distinct texts.

Both in this process, with the same model (data/models/minilm, or $LATENTRY_MODELS/minilm), batch and threads, in turn; each
loads its weights. Ours also digests them, looks every text up, keeps every vector on disk, and scores with intervals.
"""

import json
import lzma
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer
from synthetic import ROOT, line

from latentry.embeddings import Embedder
from latentry.records import Example, Explanation, Kind, Split, Status
from latentry.scorers import embedding
from latentry.scorers.base import Item, ScorerInputs, items_for
from latentry.scorers.score import score_rows

QUICK = bool(os.environ.get("QUICK"))
LATENTS, EACH = (20, 20) if QUICK else (100, 20)
"""Latents, and windows of each kind per latent."""
N_WINDOWS = LATENTS * EACH
"""Distinct windows, of which latents share some."""
BATCH = 64
ROUNDS = 3


def windows() -> list[str]:
    """Stretches of the example's corpus as long as its windows."""
    path = ROOT / "corpus" / "sotu-and-moby-dick.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        words = [word for row in file for word in json.loads(row)["text"].split()[:400]]
    stretches = dict.fromkeys(" ".join(words[first : first + 25]) for first in range(0, len(words) - 25, 25))
    return list(stretches)[:N_WINDOWS]


def items(texts: list[str]) -> tuple[list[Explanation], list[Item]]:
    """Every latent under an explanation and under another's, each with its own draw of windows."""
    held_out: dict[int, list[Example]] = {}
    for latent in range(LATENTS):
        drawn = np.random.default_rng(latent).choice(len(texts), 2 * EACH, replace=False)
        held_out[latent] = [example(latent, place, texts[number]) for place, number in enumerate(drawn)]
    explanations = [explanation(latent, texts[latent].split()[:3]) for latent in range(LATENTS)]
    return explanations, items_for(explanations, held_out, ranked=range(LATENTS), seed=0)


def example(latent: int, place: int, text: str) -> Example:
    """One held-out window; the first half are activating."""
    fires = place < EACH
    return Example(
        latent=latent,
        example_id=f"{latent}/{place}",
        split=Split.HELD_OUT,
        kind=Kind.ACTIVATING if fires else Kind.CONTRAST,
        source="windows" if fires else "random",
        contrast="" if fires else "random",
        rank=place % EACH,
        decile=1 + place % 10 if fires else 0,
        document=place,
        context=0,
        start=0,
        tokens=(0,),
        activations=(float(fires),),
        text=text,
        spans=(0, len(text)),
        marks=(),
    )


def explanation(latent: int, words: list[str]) -> Explanation:
    """A short text of its own."""
    text = f"words such as {', '.join(words)} ({latent})"
    return Explanation(latent=latent, explainer="any", text=text, status=Status.OK, detail="", prompt_digest="", reply=None, reply_key=None)


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
        scorer = embedding.build(embedding.Config(kind="embedding"), inputs(embedder))
        judgments = scorer.judge(judged)
        scoring = time.perf_counter()
        score_rows(scorer, explanations, judged, judgments, name="embedding", contrast_source="random", seed=0)
        end = time.perf_counter()
    return end - start, end - scoring


def inputs(embedder: Embedder) -> ScorerInputs:
    """What the scorer is built from: an embedder, and nothing else that it would ask for."""

    def nothing(*_: str):
        raise LookupError("the embedding scorer asks for an embedder alone")

    return ScorerInputs(seed=0, ask=nothing, embedder=lambda _: embedder, explain_split=nothing, subject=nothing, sae=nothing)


def main() -> None:
    """Bare and ours in turn; the ratio is the median over the rounds, each of one round's two runs."""
    folder = Path(os.environ.get("LATENTRY_MODELS") or ROOT / "data" / "models") / "minilm"
    if not folder.exists():
        raise SystemExit(f"{folder} is not here; run `dvc repro models`, or set LATENTRY_MODELS to where the example's models lie")
    texts = windows()
    explanations, judged = items(texts)
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
