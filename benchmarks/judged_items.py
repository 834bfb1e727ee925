"""Items of stretches of the example's text, for the benchmarks of scorers: who fires where is made up."""

import json
import lzma
import os
import re
import sys
from pathlib import Path

import numpy as np
from synthetic import ROOT

from latentry.records import Example, Explanation, Kind, Split, Status
from latentry.scorers.base import Item, items_for

sys.path[:0] = [str(ROOT / "tests")]
from fakes import scorer_inputs  # noqa: E402 (the path is set above)

__all__ = ["model_folder", "planted_items", "scorer_inputs"]


def model_folder(name: str) -> Path:
    """A model of the example: in $LATENTRY_MODELS, else in data/models."""
    folder = Path(os.environ.get("LATENTRY_MODELS") or ROOT / "data" / "models") / name
    if not folder.exists():
        raise SystemExit(f"{folder} is not here; run `dvc repro models`, or set LATENTRY_MODELS to where the example's models lie")
    return folder


def windows(n: int) -> list[str]:
    """Stretches of the example's corpus as long as its windows."""
    path = ROOT / "corpus" / "sotu-and-moby-dick.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
        words = [word for row in file for word in json.loads(row)["text"].split()[:400]]
    stretches = dict.fromkeys(" ".join(words[first : first + 25]) for first in range(0, len(words) - 25, 25))
    return list(stretches)[:n]


def planted_items(n_latents: int, each: int) -> tuple[list[Explanation], list[Item]]:
    """Every latent under an explanation and under another's, with `each` windows of each kind, some of them shared with others."""
    texts = windows(n_latents * each)
    held_out: dict[int, list[Example]] = {}
    for latent in range(n_latents):
        drawn = np.random.default_rng(latent).choice(len(texts), 2 * each, replace=False)
        held_out[latent] = [example(latent, place, texts[number], fires=place < each) for place, number in enumerate(drawn)]
    explanations = [explanation(latent, texts[latent].split()[:3]) for latent in range(n_latents)]
    return explanations, items_for(explanations, held_out, ranked=range(n_latents), seed=0)


def example(latent: int, place: int, text: str, *, fires: bool) -> Example:
    """One held-out window, with words as tokens; the latent fires on the first, or nowhere."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    return Example(
        latent=latent,
        example_id=f"{latent}/{place}",
        split=Split.HELD_OUT,
        kind=Kind.ACTIVATING if fires else Kind.CONTRAST,
        source="windows" if fires else "random",
        contrast="" if fires else "random",
        rank=place,
        decile=1 + place % 10 if fires else 0,
        document=place,
        context=0,
        start=0,
        tokens=(0,) * len(spans),
        activations=(float(fires), *(0.0 for _ in spans[1:])),
        text=text,
        spans=tuple(end for span in spans for end in span),
        marks=spans[0] if fires else (),
    )


def explanation(latent: int, words: list[str]) -> Explanation:
    """A short text of its own."""
    text = f"words such as {', '.join(words)} ({latent})"
    return Explanation(latent=latent, explainer="any", text=text, status=Status.OK, detail="", prompt_digest="", reply=None, reply_key=None)
