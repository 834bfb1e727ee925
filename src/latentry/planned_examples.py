"""Stand-ins for examples that are not drawn yet, so that prompts can be counted: windows of the corpus, as many as params ask for.

They say nothing about any latent. Always true: they have the sizes and the language that the real ones will have.
"""

import itertools
import re
from collections.abc import Iterator, Sequence

from latentry.errors import CorpusError
from latentry.params import Params
from latentry.randomness import rng_for
from latentry.records import Example, Kind, Split
from latentry.registry import variant

WORDS_PER_TOKEN = 0.75
"""Of English in the vocabularies of today's subjects; a window of 32 tokens is about 24 words."""
_CHARACTERS = 200_000
"""Of the corpus that windows are taken from."""


def planned_examples(params: Params, sae: str, n_latents: int) -> dict[int, list[Example]]:
    """Both splits of so many latents of one SAE, numbered from 0, by latent; those of another SAE are other windows.

    Raises:
        CorpusError: the corpus has no window of text.
    """
    words = _words(params)
    width = max(1, round(params.examples.window * WORDS_PER_TOKEN))
    if len(words) < width:
        raise CorpusError("corpus: is shorter than one window; name a longer one")
    return {latent: list(_of_latent(params, sae, latent, words, width)) for latent in range(n_latents)}


def _words(params: Params) -> list[re.Match[str]]:
    parts, n = [], 0
    for document in variant("corpora", params.corpus.kind).build(params.corpus).documents():
        parts.append(document.text[:2000])
        n += len(parts[-1])
        if n > _CHARACTERS:
            break
    return list(re.finditer(r"\S+\s?", "\n".join(parts)))


def _of_latent(params: Params, sae: str, latent: int, words: Sequence[re.Match[str]], width: int) -> Iterator[Example]:
    explain, held_out = params.examples.explain, params.examples.held_out
    contrasts = list(params.examples.contrasts)
    wanted = [
        (Split.EXPLAIN, "", explain.n),
        (Split.EXPLAIN, contrasts[0], explain.n_contrast),
        (Split.HELD_OUT, "", held_out.n_activating),
    ]
    wanted += [(Split.HELD_OUT, contrast, held_out.n_contrast) for contrast in contrasts]
    places = rng_for(params.seed, f"planned examples {sae}", latent).permutation(len(words) - width + 1)
    drawn = itertools.cycle(places.tolist())  # distinct, as long as the corpus has as many windows
    for split, contrast, n in wanted:
        for rank, first in zip(range(n), drawn, strict=False):
            yield _window(latent, split, contrast, rank, words[first : first + width])


def _window(latent: int, split: Split, contrast: str, rank: int, words: Sequence[re.Match[str]]) -> Example:
    """A window with a token a word; its longest one fires, unless it is a contrast."""
    start = words[0].start()
    text = "".join(word[0] for word in words)
    spans = [(word.start() - start, word.start() - start + len(word[0].rstrip())) for word in words]
    longest = max(range(len(words)), key=lambda place: len(words[place][0]))
    fires = [not contrast and place == longest for place in range(len(words))]
    return Example(
        latent=latent,
        example_id=f"{latent}/{split}/{contrast}/{rank}",
        split=split,
        kind=Kind.CONTRAST if contrast else Kind.ACTIVATING,
        source=contrast or "windows",
        contrast=contrast,
        rank=rank,
        decile=0 if contrast else 1 + rank % 10,
        document=rank,
        context=0,
        start=0,
        tokens=tuple(range(len(words))),
        activations=tuple(map(float, fires)),
        text=text,
        spans=tuple(end for span in spans for end in span),
        marks=() if contrast else spans[longest],
    )
