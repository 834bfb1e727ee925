"""Trains a JSAE pair: two of sae-lens's TopK SAEs on both sides of an MLP, whose Jacobian over the active latents is part of the loss.

A pair is trained once and kept under `<root>/.cache/pairs`, by the digest of all that it follows from, in the authors' format; each
half's folder gets a copy. Same inputs, recipe and seed on one machine: same bytes, however often it was killed, or lost from the cache.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import filelock
import numpy as np
import torch
from jaxtyping import Float, Int
from sae_lens.config import SAETrainerConfig
from sae_lens.saes.sae import TrainCoefficientConfig, TrainStepInput, TrainStepOutput
from sae_lens.saes.topk_sae import TopKTrainingSAE, TopKTrainingSAEConfig
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from latentry.atomic import remove_leftovers, write_atomic
from latentry.errors import UnsupportedError
from latentry.mlp_jacobian import Mlp, jacobian_loss, unit_rows
from latentry.randomness import rng_for
from latentry.saes.base import PairInputs
from latentry.saes.batches import Batches
from latentry.saes.checkpoint import Checkpoint, code_digest
from latentry.saes.recipe import Jsae
from latentry.saes.trainer import Trainer, l0_of, losses_of
from latentry.saes.training import (
    CHECKPOINT_FILES,
    CURVE_COLUMNS,
    CURVE_FILE,
    batches_of,
    curve_every,
    moments_of,
    scales_of,
    settings_of,
    steps_of,
    torch_seeded,
    write_curve,
)
from latentry.store import cache_folder, digest_of

CONFIG_FILE, WEIGHTS_FILE = "cfg.json", "sae_weights.safetensors"

_HALVES = {"input": "", "output": "_out"}
"""Each half's ending in the names of tensors."""


def half_of_pair(
    recipe: Jsae,
    *,
    half: str,
    width: int,
    pair: PairInputs,
    contexts: Int[np.ndarray, " context"],
    seed: int,
    folder: Path,
    metadata: Mapping[str, Any],
    checkpoint_tokens: int,
    device: str = "cpu",
) -> int:
    """Write the pair's files and the half's own loss curve to a folder, and say on how many tokens it was trained (repeats counted).

    Whoever comes first trains the pair; a second process waits for it, and says so.

    Raises:
        CorpusError: the contexts hold fewer tokens than one batch.
        NumericsError: an activation is NaN or infinite, or the loss became so.
        UnsupportedError: the MLP writes vectors of another length than it reads.
    """
    n_steps = steps_of(recipe, pair.activations, contexts)
    knobs = {name: value for name, value in recipe.model_dump(mode="json").items() if name != "partner"}
    described = {**metadata, "hf_mlp_name": pair.module}
    key = digest_of([knobs, width, seed, contexts.tolist(), described, pair.digest, code_digest()])
    kept = cache_folder("pairs") / key[:32]
    with _locked(kept):
        if not kept.is_dir():
            making = kept.with_name(f"{kept.name}.making")
            making.mkdir(exist_ok=True)
            remove_leftovers(making)
            training = _Training(recipe=recipe, width=width, pair=pair, contexts=contexts, n_steps=n_steps, device=device)
            training.run(seed, making, described, checkpoint_tokens)
            making.replace(kept)
    for name, of_pair in ((CURVE_FILE, _curve_file(half)), (CONFIG_FILE, CONFIG_FILE), (WEIGHTS_FILE, WEIGHTS_FILE)):
        write_atomic(folder / name, lambda path, source=kept / of_pair: shutil.copyfile(source, path))
    return n_steps * recipe.batch


def _locked(kept: Path) -> filelock.BaseFileLock:
    lock = filelock.FileLock(kept.with_name(f"{kept.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        sys.stderr.write(f"another process trains the pair {kept.name}; waiting for it\n")
        lock.acquire()
    lock.release()
    return lock


def _curve_file(half: str) -> str:
    return f"loss-{half}.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Training:
    """One training of a pair."""

    recipe: Jsae
    width: int
    pair: PairInputs
    contexts: Int[np.ndarray, " context"]
    n_steps: int
    device: str

    def run(self, seed: int, folder: Path, described: Mapping[str, Any], checkpoint_tokens: int) -> None:
        """From the last checkpoint in the folder, or from the start; leaves there the pair's files and no other."""
        checkpoints = [Checkpoint(path=folder / name, every=checkpoint_tokens) for name in CHECKPOINT_FILES]
        if not (folder / WEIGHTS_FILE).exists():
            rng = rng_for(seed, f"jsae training {self.recipe.seed}")
            with torch_seeded(int(rng.integers(2**63)), self.device):
                saes = self._new_pair()
                curve = self._fit(saes, batches_of(self.recipe, self.pair.activations, self.contexts, rng), checkpoints)
            _save(saes, self.recipe.k, curve, folder, described)
        for checkpoint in checkpoints:
            checkpoint.remove()

    def _new_pair(self) -> "JsaePair":
        d_in, d_out = self.pair.activations.d_in, self.pair.activations.d_written
        if d_in != d_out:
            raise UnsupportedError(
                f"{self.pair.module}: reads vectors of length {d_in} and writes vectors of {d_out}; both halves of a pair have one d_in:"
                " name an MLP that writes as many as it reads"
            )
        settings = TopKTrainingSAEConfig(
            d_in=d_in,
            d_sae=self.width,
            device=self.device,
            normalize_activations="expected_average_only_in",
            decoder_init_norm=self.recipe.decoder_norm,
            k=self.recipe.k,
            aux_loss_coefficient=self.recipe.aux_coefficient,
        )
        return JsaePair(settings, self.pair.mlp.to(device=self.device, dtype=torch.float32), self.recipe, self.n_steps)

    def _fit(self, saes: "JsaePair", batches: Batches, checkpoints: Sequence[Checkpoint]) -> Sequence[Sequence[float]]:
        moments, training = checkpoints
        settings = settings_of(self.recipe, self.n_steps, self.device)
        trainer = PairTrainer(settings, saes, batches, checkpoint=training, curve_every=curve_every(self.n_steps))
        found = training.load()
        if found:
            trainer.resume(*found)
        else:
            mean, norms = moments_of(batches.activations, batches.contexts, moments)
            means = mean.chunk(2)
            saes.scale(scales_of(means, norms), means if self.recipe.centre else None)
            trainer.activation_scaler.scaling_factor = 1.0  # each half has its own
        trainer.fit()
        return trainer.curve


class Half(TopKTrainingSAE):
    """sae-lens's TopK SAE, which remembers what it chose last, and rebuilds from that alone: its decoder never meets silent latents."""

    latents: Int[Tensor, "token k"]
    values: Float[Tensor, "token k"]
    rows: Float[Tensor, "latent d_in"]
    """Of the decoder, at norm 1."""
    encoder: Float[Tensor, "latent d_in"]
    """Its rows in the unit of those."""

    def encode_with_hidden_pre(self, x: Float[Tensor, "token d_in"]) -> tuple[Tensor, Tensor]:
        """As sae-lens's: the k largest, in the unit in which decoder rows have norm 1."""
        norms = self.W_dec.norm(dim=-1)
        self.rows, self.encoder = self.W_dec / norms.unsqueeze(-1), (self.W_enc * norms).T
        hidden_pre = torch.addmm(self.b_enc * norms, self.process_sae_in(x), self.encoder.T)
        values, self.latents = hidden_pre.topk(self.cfg.k, dim=-1, sorted=False)
        self.values = values.relu()
        return torch.zeros_like(hidden_pre).scatter_(-1, self.latents, self.values.detach()), hidden_pre

    def decode(self, feature_acts: Float[Tensor, "token latent"]) -> Float[Tensor, "token d_in"]:  # noqa: ARG002
        """The reconstruction from what was encoded last."""
        return embedding_bag(self.latents, self.rows, per_sample_weights=self.values, mode="sum") + self.b_dec


class JsaePair(nn.Module):
    """Both halves, as sae-lens's trainer takes one SAE. A row is what the MLP reads and, after it, what it writes; each is scaled here."""

    input_scale: Tensor
    output_scale: Tensor

    def __init__(self, settings: TopKTrainingSAEConfig, mlp: Mlp, recipe: Jsae, n_steps: int) -> None:
        super().__init__()
        self.halves = nn.ModuleDict({half: Half(replace(settings)) for half in _HALVES})
        for half in _HALVES:
            self.register_buffer(f"{half}_scale", torch.ones((), device=settings.device))
        self.cfg = SimpleNamespace(d_in=settings.d_in, d_sae=2 * settings.d_sae, normalize_activations="none", metadata=SimpleNamespace())
        self._mlp, self._recipe, self._n_steps = mlp, recipe, n_steps

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.input_scale.device

    @torch.no_grad()
    def scale(self, scales: Sequence[float], means: Sequence[Float[Tensor, " d_in"]] | None) -> None:
        """Bring each half's rows to a mean norm of sqrt(d_in), and begin its decoder bias at their mean, where that is given."""
        for number, (half, scale) in enumerate(zip(_HALVES, scales, strict=True)):
            getattr(self, f"{half}_scale").fill_(scale)
            if means is not None:
                self._half(half).b_dec.copy_(means[number] * scale)

    def get_coefficients(self) -> dict[str, TrainCoefficientConfig]:
        """What grows over the training."""
        warm_up = round(self._recipe.jacobian_warm_up * self._n_steps)
        return {"jacobian": TrainCoefficientConfig(value=self._recipe.jacobian_coefficient, warm_up_steps=warm_up)}

    def training_forward_pass(self, step_input: TrainStepInput) -> TrainStepOutput:
        """MSE of the input half + c MSE of the output half + lambda mean |J|, with the losses by which dead latents are revived."""
        rows = step_input.sae_in.chunk(2, dim=-1)
        found = [self._half_step(step_input, half, number, rows[number]) for number, half in enumerate(_HALVES)]
        sparsity = self.jacobian_term(rows[0])
        weighted = step_input.coefficients["jacobian"] * sparsity
        losses = {
            "mse_loss": found[0].losses["mse_loss"] + self._recipe.output_coefficient * found[1].losses["mse_loss"],
            "jacobian": sparsity,
            "weighted_jacobian": weighted,
        }
        for half, output in zip(_HALVES, found, strict=True):
            losses |= {f"{half}_{name}": value for name, value in output.losses.items()}
            losses |= {f"{half}_loss": output.loss}
        return TrainStepOutput(
            sae_in=step_input.sae_in,
            sae_out=torch.cat([output.sae_out for output in found], dim=-1),
            feature_acts=torch.cat([output.feature_acts.detach() for output in found], dim=-1),
            hidden_pre=found[0].hidden_pre,
            loss=found[0].loss + self._recipe.output_coefficient * found[1].loss + weighted,
            losses=losses,
        )

    def _half_step(self, step_input: TrainStepInput, half: str, number: int, rows: Tensor) -> TrainStepOutput:
        dead = step_input.dead_neuron_mask
        mine = None if dead is None else dead.chunk(2)[number]
        scaled = rows * getattr(self, f"{half}_scale")
        return self._half(half).training_forward_pass(replace(step_input, sae_in=scaled, dead_neuron_mask=mine))

    def jacobian_term(self, read: Float[Tensor, "token d_in"]) -> Float[Tensor, ""]:
        """Mean |J| over the pairs that the last step's latents make, at what the MLP read; in the scaled activations' units, and with
        decoder rows of norm 1."""
        inputs, outputs = self._half("input"), self._half("output")
        active = (inputs.values > 0, outputs.values > 0)
        raw = jacobian_loss(self._mlp, read, inputs.latents, outputs.latents, *active, inputs.rows, outputs.encoder)
        return raw * (self.output_scale / self.input_scale)

    def _half(self, half: str) -> Half:
        return self.halves[half]  # type: ignore[return-value]

    @torch.no_grad()
    def fold_activation_norm_scaling_factor(self, scaling_factor: float) -> None:
        """Each half's own scale into its weights."""
        for half in _HALVES:
            self._half(half).fold_activation_norm_scaling_factor(scaling_factor * getattr(self, f"{half}_scale").item())


class PairTrainer(Trainer):
    """The trainer of a pair, whose loss curve has the parts of both halves."""

    def __init__(self, cfg: SAETrainerConfig, saes: JsaePair, batches: Batches, *, checkpoint: Checkpoint, curve_every: int) -> None:
        super().__init__(cfg, saes, batches, checkpoint=checkpoint, curve_every=curve_every)  # type: ignore[arg-type]

    def curve_point(self, output: TrainStepOutput) -> list[float]:
        """For each half: its loss with the Jacobian's part, squared error, all else, and L0; then the mean |J|."""
        losses_of(output, self.n_training_steps + 1)
        parts, weighted = output.losses, output.losses["weighted_jacobian"].item()
        found: list[float] = []
        for half, latents in zip(_HALVES, output.feature_acts.chunk(2, dim=-1), strict=True):
            loss, mse = parts[f"{half}_loss"].item() + weighted, parts[f"{half}_mse_loss"].item()
            found += [loss, mse, loss - mse, l0_of(latents)]
        return [*found, parts["jacobian"].item()]


def _save(saes: JsaePair, k: int, curve: Sequence[Sequence[float]], folder: Path, described: Mapping[str, Any]) -> None:
    """In the authors' format, decoder rows of norm 1. The weights come last: where they stand, the training is over."""
    weights: dict[str, Tensor] = {}
    for number, (half, ending) in enumerate(_HALVES.items()):
        sae: Any = saes.halves[half]
        state = {name: tensor.detach().cpu() for name, tensor in sae.state_dict().items()}
        state["W_dec"], encoder = unit_rows(state["W_dec"], state["W_enc"].T)
        norms = sae.W_dec.detach().cpu().norm(dim=-1)
        state |= {"W_enc": encoder.T, "b_enc": state["b_enc"] * norms}
        weights |= {f"_{name}{ending}": state[name].contiguous() for name in ("W_enc", "b_enc", "W_dec", "b_dec")}
        own = [[*point[:2], *point[2 + 4 * number : 6 + 4 * number], point[-1]] for point in curve]
        write_curve(folder / _curve_file(half), (*CURVE_COLUMNS, "jacobian"), own)
    text = json.dumps({**_configuration(saes, k), **described}, indent=1, sort_keys=True) + "\n"
    write_atomic(folder / CONFIG_FILE, lambda path: path.write_text(text, encoding="utf-8"))
    write_atomic(folder / WEIGHTS_FILE, lambda path: save_file(weights, path))


def _configuration(saes: JsaePair, k: int) -> dict[str, Any]:
    return {
        "architecture": "standard",
        "activation_fn_str": "topk",
        "activation_fn_kwargs": {"k": k},
        "d_in": saes.cfg.d_in,
        "d_sae": saes.cfg.d_sae // 2,
        "dtype": "float32",
        "apply_b_dec_to_input": True,
        "normalize_activations": "none",
        "finetuning_scaling_factor": False,
    }
