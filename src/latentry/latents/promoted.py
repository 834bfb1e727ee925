"""What a latent's decoder row does to the subject's output: the tokens that it pushes up and down."""

import numpy as np

from latentry.saes.base import Sae
from latentry.subjects.causal_lm import Subject

BLOCK = 512
"""Latents in one product with the unembedding."""


def promoted_tokens(subject: Subject, sae: Sae, n: int) -> dict[str, np.ndarray] | None:
    """Token ids [latent, n] of the n largest (`promoted`) and smallest (`suppressed`) logits, strongest first.

    None when the SAE's decoder does not write to the residual stream, where the unembedding reads.
    """
    if not subject.is_residual(sae.hookpoint):
        return None
    ends: dict[str, list[np.ndarray]] = {"promoted": [], "suppressed": []}
    for first in range(0, sae.width, BLOCK):
        logits = subject.promoted(sae.decoder[first : first + BLOCK])
        ends["promoted"].append(logits.topk(n, dim=1).indices.cpu().numpy())
        ends["suppressed"].append(logits.topk(n, dim=1, largest=False).indices.cpu().numpy())
    return {end: np.concatenate(blocks) for end, blocks in ends.items()}
