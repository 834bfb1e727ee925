"""The score of an item from answers that tell activating examples from contrasts: what was designed, for `metrics` to use."""

from collections.abc import Sequence

import numpy as np

from latentry.metrics import Design, LatentScore, latent_score
from latentry.records import Judgment
from latentry.scorers.base import Item, activating, contrasts

UNIFORM = "random"
"""The one contrast source that draws uniformly among all silent windows."""


def told_apart(
    item: Item, judgments: Sequence[Judgment], rng: np.random.Generator, *, contrast: str, by_prompt: bool = False, adaptive: bool = False
) -> LatentScore:
    """How well the answers tell the item's activating examples from its contrasts of one entry, by every metric they give.

    With `by_prompt` several examples stood in one prompt, so that a bootstrap draws whole prompts; with `adaptive` the
    answers decided how many were asked for.
    """
    n_activating, n_contrast = item.class_ratio
    sources = {example.source for example in contrasts(item, contrast)}
    design = Design(
        ratio=n_contrast / n_activating,
        window_fraction=item.window_fraction if sources == {UNIFORM} else None,
        deciles={example.example_id: example.decile for example in activating(item)},
        by_prompt=by_prompt,
        adaptive=adaptive,
    )
    return latent_score(judgments, rng, design)
