"""How well a SAE rebuilds activations that it was not trained on: L0, FVU, dead latents, densities, cross-entropy recovered.

It measures and never judges; the gate does. Positions left out (special tokens, attention sinks) are in no count,
and keep their clean value when the subject is patched.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentry.errors import CorpusError, NumericsError
from latentry.randomness import rng_for
from latentry.saes.base import Activations, Sae

EVALUATION_FILE = "evaluation.json"

_READ_CONTEXTS = 16
_DENSITY_EDGES = tuple(range(-6, 1))
"""Powers of ten between the bins of the density histogram."""


class Subject(Protocol):
    """The model interpreted, as far as cross-entropy needs it."""

    def token_losses(
        self, tokens: Int[np.ndarray, "context position"], replace: tuple[str, Callable[[Tensor], Tensor]] | None = None
    ) -> Float[Tensor, "context position_less_1"]:
        """Loss in nats of every token but the first of each context, the hookpoint's activations replaced by a function of them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconstruction:
    """What one pass over activations tells of a SAE."""

    l0: float
    """Latents that fire at a token, on average."""
    fvu: float
    """Squared error over the variance about the mean of all these tokens: 1 for predicting the mean, 0 for a perfect SAE."""
    n_tokens: int
    firing_counts: Int[np.ndarray, " width"]

    @property
    def dead_fraction(self) -> float:
        """Share of latents that fire at none of these tokens."""
        return float(np.mean(self.firing_counts == 0))

    @property
    def density_histogram(self) -> dict[str, Any]:
        """Latents by firing frequency, in bins between powers of ten; `n_dead` apart."""
        alive = self.firing_counts[self.firing_counts > 0] / self.n_tokens
        counts, _ = np.histogram(np.log10(alive), bins=np.array(_DENSITY_EDGES, dtype=float))
        return {"log10_edges": list(_DENSITY_EDGES), "n_latents": counts.tolist(), "n_dead": int(np.sum(self.firing_counts == 0))}


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEntropy:
    """Mean loss of the subject in nats per token: as it is, with the activation zero, with the reconstruction in its place."""

    clean: float
    zero: float
    sae: float

    @property
    def recovered(self) -> float | None:
        """Share of what zeroing costs that the reconstruction spares; None where zeroing costs nothing."""
        cost = self.zero - self.clean
        return None if abs(cost) < 1e-9 else (self.zero - self.sae) / cost


def held_out_contexts(n_contexts: int, fraction: float, seed: int) -> Bool[np.ndarray, " context"]:
    """Which contexts are kept from training, for evaluation: at least one, and never all."""
    if n_contexts < 2:
        raise CorpusError(
            f"evaluation: {n_contexts} contexts are stored, at least 2 are needed (one to train, one to evaluate); take more tokens"
        )
    n = min(n_contexts - 1, max(1, round(fraction * n_contexts)))
    held_out = np.zeros(n_contexts, dtype=bool)
    held_out[rng_for(seed, "sae held-out contexts").permutation(n_contexts)[:n]] = True
    return held_out


@torch.inference_mode()
def reconstruction(sae: Sae, activations: Activations, contexts: Int[np.ndarray, " context"]) -> Reconstruction:
    """Measure a SAE on the kept positions of some contexts, in one pass and bounded memory.

    Raises:
        CorpusError: those contexts hold no position that is kept, or only equal activations.
        NumericsError: an activation or a reconstruction is NaN or infinite.
    """
    n, squared_error, squares, n_firings = 0, 0.0, 0.0, 0
    total = torch.zeros(activations.d_in, dtype=torch.float64)
    firing_counts = torch.zeros(sae.width, dtype=torch.int64)
    offset: Tensor | None = None
    for start in range(0, len(contexts), _READ_CONTEXTS):
        x = activations.rows(contexts[start : start + _READ_CONTEXTS])
        if len(x) == 0:
            continue
        latents = sae.encode(x)
        # float64, and about one early mean: the variance is small beside the squared norm
        exact = x.to(device="cpu", dtype=torch.float64)
        offset = exact.mean(dim=0) if offset is None else offset
        squared_error += (exact - sae.decode(latents).cpu().double()).square().sum().item()
        centred = exact - offset
        total += centred.sum(dim=0)
        squares += centred.square().sum().item()
        fires = (latents != 0).sum(dim=0).cpu()
        firing_counts += fires
        n_firings += int(fires.sum())
        n += len(x)
    variance = squares - (total.square().sum().item() / n if n else 0.0)
    if n == 0 or variance == 0:
        raise CorpusError(
            f"evaluation: {n} tokens without any variance on {len(contexts)} contexts; FVU needs different activations, take more"
        )
    if not np.isfinite(squared_error + squares):
        raise NumericsError(f"SAE {sae.name!r}: NaN or infinity among the activations or their reconstructions; check the dtype of both")
    return Reconstruction(l0=n_firings / n, fvu=squared_error / variance, n_tokens=n, firing_counts=firing_counts.numpy())


@torch.inference_mode()
def cross_entropy(
    sae: Sae,
    subject: Subject,
    tokens: Int[np.ndarray, "context position"],
    special: Bool[np.ndarray, "context position"],
    kept: Bool[np.ndarray, "context position"],
) -> CrossEntropy:
    """The subject's loss on tokens that are not special, with the hookpoint clean, zero, and rebuilt by the SAE.

    Raises:
        CorpusError: every token is special.
    """
    sums, n = np.zeros(3), 0
    for start in range(0, len(tokens), _READ_CONTEXTS):
        rows = slice(start, start + _READ_CONTEXTS)
        counted = torch.from_numpy(~special[rows][:, 1:].astype(bool))
        fillings = (None, torch.zeros_like, lambda x: sae.decode(sae.encode(x)))
        for which, fill in enumerate(fillings):
            replace = None if fill is None else (sae.hookpoint, _patch(fill, torch.from_numpy(kept[rows].astype(bool))))
            losses = subject.token_losses(tokens[rows], replace=replace).cpu().double()
            sums[which] += losses[counted].sum().item()
        n += int(counted.sum())
    if n == 0:
        raise CorpusError(f"evaluation: all tokens of the {len(tokens)} contexts for cross-entropy are special; take other text")
    clean, zero, rebuilt = (sums / n).tolist()
    return CrossEntropy(clean=clean, zero=zero, sae=rebuilt)


def _patch(fill: Callable[[Tensor], Tensor], kept: Bool[Tensor, "context position"]) -> Callable[[Tensor], Tensor]:
    def replaced(x: Float[Tensor, "context position d_in"]) -> Float[Tensor, "context position d_in"]:
        mask = kept.to(x.device)
        patched = x.clone()
        patched[mask] = fill(x[mask]).to(x)
        return patched

    return replaced


def evaluation_record(
    sae: Sae, measured: Reconstruction, ce: CrossEntropy | None, *, subject: str, n_training_tokens: int | None
) -> dict[str, Any]:
    """What `evaluation.json` holds. Cross-entropies are null where none was asked for, training tokens where others trained it."""
    return {
        "name": sae.name,
        "loss": sae.loss,
        "width": sae.width,
        "d_in": sae.d_in,
        "hookpoint": sae.hookpoint,
        "subject": subject,
        "baseline": sae.baseline,
        "l0": measured.l0,
        "fvu": measured.fvu,
        "ce_clean": None if ce is None else ce.clean,
        "ce_zero": None if ce is None else ce.zero,
        "ce_sae": None if ce is None else ce.sae,
        "ce_recovered": None if ce is None else ce.recovered,
        "dead_fraction": measured.dead_fraction,
        "n_tokens": measured.n_tokens,
        "n_training_tokens": n_training_tokens,
        "density_histogram": measured.density_histogram,
    }
