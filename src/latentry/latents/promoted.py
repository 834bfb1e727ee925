"""What a latent's decoder row does to the subject's output: the tokens that it pushes up and down."""

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import load_file
from torch import Tensor
from tqdm import tqdm

from latentry.saes.base import Sae
from latentry.store import Work
from latentry.subjects.causal_lm import Subject

BLOCK_LOGITS = 2**25
"""Logits of one product with the unembedding, whatever the vocabulary."""
PART_BLOCKS = 16
"""Products that are committed together: what a kill costs."""


def promoted_tokens(making: Work, subject: Subject, sae: Sae, n: int) -> dict[str, Int[np.ndarray, "latent token"]] | None:
    """Token ids of the n largest (`promoted`) and smallest (`suppressed`) logits of each latent, strongest first.

    They are committed in parts, which an earlier run may have left; `drop_parts` deletes them once they stand elsewhere. None
    when the SAE's decoder does not write to the residual stream, where the unembedding reads.
    """
    if not subject.is_residual(sae.writes):
        return None
    block = max(1, BLOCK_LOGITS // subject.vocabulary)
    parts = []
    with tqdm(total=sae.width, unit="latent", unit_scale=True, desc=f"promoted {sae.name}") as bar:
        for number, rows in enumerate(sae.decoder.split(block * PART_BLOCKS)):
            name = f"promoted-{number:05d}.safetensors"
            if not making.has(name):
                ends = [_ends(subject, few, n) for few in rows.split(block)]
                making.write_arrays(name, {end: np.concatenate([found[end] for found in ends]) for end in ("promoted", "suppressed")})
            parts.append(load_file(making.path(name)))
            bar.update(len(rows))
    return {end: np.concatenate([part[end] for part in parts]) for end in ("promoted", "suppressed")}


def drop_parts(making: Work) -> None:
    """Delete the committed parts."""
    for path in making.folder.glob("promoted-*.safetensors"):
        path.unlink()


def _ends(subject: Subject, rows: Float[Tensor, "latent d_out"], n: int) -> dict[str, Int[np.ndarray, "latent token"]]:
    logits = subject.promoted(rows)
    most = min(n, logits.shape[1])
    ends = {"promoted": logits.topk(most, dim=1), "suppressed": logits.topk(most, dim=1, largest=False)}
    return {end: found.indices.int().cpu().numpy() for end, found in ends.items()}
