"""How well a SAE rebuilds activations that it was not trained on: L0, FVU, dead latents, densities, cross-entropy recovered.

It measures and never judges; the gate does. Positions left out (special tokens, attention sinks) are in no count,
and keep their clean value when the subject is patched.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentry.errors import ContractError, CorpusError, NumericsError
from latentry.randomness import rng_for
from latentry.runtime import memory_for
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

    def activations(self, tokens: Int[np.ndarray, "context position"]) -> Mapping[str, Float[Tensor, "context position d_in"]]:
        """Activations at every hookpoint, by its name."""
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
        """Latents by firing frequency, in bins between powers of ten, the first with all that is rarer; `n_dead` apart."""
        alive = np.log10(self.firing_counts[self.firing_counts > 0] / self.n_tokens)
        counts, _ = np.histogram(np.maximum(alive, _DENSITY_EDGES[0]), bins=np.array(_DENSITY_EDGES, dtype=float))
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
def reconstruction(
    sae: Sae, activations: Activations, contexts: Int[np.ndarray, " context"], *, block: int, batch_tokens: int
) -> Reconstruction:
    """Measure a SAE on the kept positions of some contexts, in one pass: so many latents at a time, of so many tokens.

    Of a transcoder, error and variance are those of what it rebuilds, which the activations hold besides what it reads.

    Raises:
        ContractError: the SAE reads activations of another length.
        CorpusError: those contexts hold no position that is kept, or only equal activations.
        NumericsError: an activation or a reconstruction is NaN or infinite.
        MemoryShortError: one block of latents of one batch does not fit.
    """
    check_d_in(sae, activations.d_in, activations.d_written)
    sums = _Sums(sae)
    for start in range(0, len(contexts), _READ_CONTEXTS):
        some = contexts[start : start + _READ_CONTEXTS]
        with memory_for("run.batch_tokens", "run.block_latents"):
            for rows in activations.rows(some).split(batch_tokens):
                sums.add(rows, block)
        if not np.isfinite(sums.squares + sums.squared_error):
            culprit = "reconstructions" if np.isfinite(sums.squares) else "activations"
            raise NumericsError(
                f"SAE {sae.name!r} at hookpoint {sae.hookpoint!r}: NaN or infinity among the {culprit} of contexts {some.min()} to"
                f" {some.max()}; check the dtype of the {'SAE' if culprit == 'reconstructions' else 'subject and of `activations`'}"
            )
    return sums.result(len(contexts))


def check_d_in(sae: Sae, d_in: int, d_written: int = 0) -> None:
    """The SAE reads activations of that length and, where it is a transcoder, rebuilds some of that other length.

    Raises:
        ContractError: it does not; says what each has, and what to correct.
    """
    if sae.d_in != d_in:
        raise ContractError(
            f"SAE {sae.name!r} reads activations of length d_in = {sae.d_in}, hookpoint {sae.hookpoint!r} gives {d_in};"
            f" name the hookpoint that it was trained at, or correct `folder`, under saes.{sae.name} in params.yaml"
        )
    given = d_written if sae.writes != sae.hookpoint else d_in
    if sae.d_out != given:
        raise ContractError(
            f"SAE {sae.name!r} rebuilds activations of length d_out = {sae.d_out}, hookpoint {sae.writes!r} gives {given};"
            f" name what it was trained to rebuild, or correct `folder`, under saes.{sae.name} in params.yaml"
        )


class _Sums:
    """What is added up over the tokens; float64, and about one early mean: the variance is small beside the squared norm."""

    def __init__(self, sae: Sae) -> None:
        self._sae = sae
        self._n = 0
        self.squared_error, self.squares = 0.0, 0.0
        self._total = torch.zeros(sae.d_out, dtype=torch.float64)
        self._offset: Tensor | None = None
        self._firing_counts = torch.zeros(sae.width, dtype=torch.int64)

    def add(self, rows: Float[Tensor, "token d_in_and_written"], block: int) -> None:
        if len(rows) == 0:
            return
        x, rebuilt = rows[:, : self._sae.d_in], rows[:, -self._sae.d_out :]
        firings = self._sae.firings(x, block)
        exact = rebuilt.to(device="cpu", dtype=torch.float64)
        self._offset = exact.mean(dim=0) if self._offset is None else self._offset
        self.squared_error += (exact - self._sae.rebuild(firings, x).cpu().double()).square_().sum().item()
        centred = exact - self._offset
        self._total += centred.sum(dim=0)
        self.squares += centred.square_().sum().item()
        self._firing_counts += firings.latent.bincount(minlength=self._sae.width).cpu()
        self._n += len(rows)

    def result(self, n_contexts: int) -> Reconstruction:
        n, firing_counts = self._n, self._firing_counts.numpy()
        variance = self.squares - (self._total.square().sum().item() / n if n else 0.0)
        if n == 0 or variance <= 0:
            raise CorpusError(
                f"evaluation: {n} tokens without any variance on {n_contexts} contexts; FVU needs different activations, take more"
            )
        return Reconstruction(l0=int(firing_counts.sum()) / n, fvu=self.squared_error / variance, n_tokens=n, firing_counts=firing_counts)


@torch.inference_mode()
def cross_entropy(
    sae: Sae,
    subject: Subject,
    tokens: Int[np.ndarray, "context position"],
    special: Bool[np.ndarray, "context position"],
    kept: Bool[np.ndarray, "context position"],
    *,
    block: int,
    batch_tokens: int,
    batch_contexts: int,
) -> CrossEntropy:
    """The subject's loss on tokens that are not special, with the hookpoint that the SAE writes clean, zero, and rebuilt by it.

    Raises:
        CorpusError: every token is special.
        NumericsError: a loss is NaN or infinite.
        MemoryShortError: one forward pass, or one block of latents of one batch, does not fit.
    """

    def rebuilt(x: Float[Tensor, "token d_in"]) -> Float[Tensor, "token d_out"]:
        return torch.cat([sae.rebuild(sae.firings(rows, block), rows) for rows in x.split(batch_tokens)])

    def zeros(x: Float[Tensor, "token d_in"]) -> Float[Tensor, "token d_out"]:
        return x.new_zeros(len(x), sae.d_out)

    sums, counted = np.zeros(3), ~special[:, 1:]
    with memory_for("run.batch_contexts", "run.batch_tokens", "run.block_latents"):
        for start in range(0, len(tokens), batch_contexts):
            batch = slice(start, start + batch_contexts)
            read = None if sae.writes == sae.hookpoint else subject.activations(tokens[batch])[sae.hookpoint]
            for which, fill in enumerate((None, zeros, rebuilt)):
                replace = None if fill is None else (sae.writes, _patch(fill, torch.from_numpy(kept[batch]), read))
                losses = subject.token_losses(tokens[batch], replace=replace).cpu().double()
                sums[which] += losses[torch.from_numpy(counted[batch])].sum().item()
    if not counted.any():
        raise CorpusError(f"evaluation: all tokens of the {len(tokens)} contexts for cross-entropy are special; take other text")
    clean, zero, with_sae = (sums / counted.sum()).tolist()
    if not np.isfinite(sums).all():
        raise NumericsError(
            f"SAE {sae.name!r}: cross-entropy is {clean:g} clean, {zero:g} with the hookpoint zero, {with_sae:g} with the SAE in place;"
            " set `subject.dtype` to bfloat16 or float32"
        )
    return CrossEntropy(clean=clean, zero=zero, sae=with_sae)


def _patch(
    fill: Callable[[Tensor], Tensor], kept: Bool[Tensor, "context position"], read: Float[Tensor, "context position d_in"] | None
) -> Callable[[Tensor], Tensor]:
    """What fills the kept positions is made from what was read, or, where the SAE writes what it reads, from what stands there."""

    def replaced(x: Float[Tensor, "context position d_out"]) -> Float[Tensor, "context position d_out"]:
        mask = kept.to(x.device)
        patched = x.clone()
        patched[mask] = fill((x if read is None else read)[mask]).to(x)
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
        "d_out": sae.d_out,
        "signed": sae.signed,
        "hookpoint": sae.hookpoint,
        "writes": sae.writes,
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
