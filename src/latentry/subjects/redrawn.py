"""The subject whose matrices are noise, for the baseline `random_subject` (Heap et al., 2025): it has the subject's shape and learned nothing.

Same folder, dtype and seed: same weights, whatever the device. Vectors (norms, biases) stay as they are.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from latentry.randomness import rng_for
from latentry.store import content_digest, digest_of
from latentry.subjects.hooks import Redrawn


@torch.no_grad()
def redraw(model: nn.Module, how: Redrawn) -> None:
    """Put Gaussian noise of its own mean and standard deviation into each matrix of a model, in place.

    Each matrix has its own random numbers, by its name. Embeddings (learned positions among them) and unembedding stay, unless `all`;
    what is tied stays tied. An array of more axes is a row of matrices, such as the experts of a layer.
    """
    kept = set() if how.all else {id(weight) for weight in _embeddings(model)}
    for name, weight in model.named_parameters():
        if weight.dim() >= 2 and id(weight) not in kept:
            rng = rng_for(how.seed, f"redrawn subject {name}")
            for matrix in weight.view(-1, *weight.shape[-2:]):
                matrix.copy_(_noise_like(matrix, rng))


def subject_digest(folder: Path, how: Redrawn | None) -> str:
    """Digest of a subject's weights: of the files of its folder, and of how they were redrawn.

    Raises:
        ContractError: the folder is not complete.
    """
    digest = content_digest(folder)
    return digest if how is None else digest_of([digest, "redrawn", how.seed, how.all])


def _embeddings(model: nn.Module) -> list[Tensor]:
    unembedding = getattr(model, "get_output_embeddings", lambda: None)()
    modules = [module for module in model.modules() if isinstance(module, nn.Embedding) or module is unembedding]
    return [weight for module in modules for weight in module.parameters()]


def _noise_like(matrix: Tensor, rng: np.random.Generator) -> Tensor:
    deviation, mean = torch.std_mean(matrix.float(), correction=0)
    noise = torch.from_numpy(rng.standard_normal(tuple(matrix.shape), dtype=np.float32))
    return noise.mul_(deviation).add_(mean)
