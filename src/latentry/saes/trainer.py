"""sae-lens's trainer, which also keeps the loss curve and says now and then how far it is, so that a killed training goes on."""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from sae_lens import TrainingSAE
from sae_lens.config import SAETrainerConfig
from sae_lens.saes.sae import TrainStepOutput
from sae_lens.training.sae_trainer import SAETrainer
from torch import Tensor

from latentry.errors import NumericsError
from latentry.saes.batches import Batches
from latentry.saes.checkpoint import Checkpoint

_COUNTED = ("act_freq_scores", "n_forward_passes_since_fired")
"""What sae-lens counts of each latent."""


class Trainer(SAETrainer[TrainingSAE[Any], Any]):
    """Goes on from its checkpoint, where there is one, as if it had never stopped: a step draws no random numbers, and all else is kept."""

    def __init__(self, cfg: SAETrainerConfig, sae: TrainingSAE[Any], batches: Batches, *, checkpoint: Checkpoint, curve_every: int) -> None:
        super().__init__(cfg=cfg, sae=sae, data_provider=batches)
        self._batches, self._checkpoint, self._curve_every = batches, checkpoint, curve_every
        self._n_kept = 0
        self.curve: list[list[float]] = []

    def _update_pbar(self, step_output: TrainStepOutput, pbar: Any, update_interval: int = 1) -> None:  # noqa: ARG002
        """sae-lens's bar, at every step and in tokens, as the other stages' are."""
        pbar.unit, pbar.unit_scale = "tok", True
        pbar.update(self.cfg.train_batch_size_samples)

    def step(self, batch: Tensor) -> TrainStepOutput:
        """One step; raises NumericsError where the loss is seen to be NaN or infinite."""
        output = super().step(batch)
        ended = self.n_training_samples >= self.cfg.total_training_samples
        if self.n_training_steps % self._curve_every == 0 or ended:
            self.curve.append([self.n_training_steps + 1, self.n_training_samples, *self.curve_point(output)])
        if self.n_training_samples - self._n_kept >= self._checkpoint.every and not ended:
            self._checkpoint.save(*self._state())
            self._n_kept = self.n_training_samples
        return output

    def curve_point(self, output: TrainStepOutput) -> list[float]:
        """Loss, squared error, all else of the loss, and L0 of one step."""
        return [*losses_of(output, self.n_training_steps + 1), l0_of(output.feature_acts)]

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """After a step, which sae-lens counts only when it has returned."""
        tensors, batches = self._batches.state()
        adam = self.optimizer.state_dict()
        tensors |= {f"sae.{name}": tensor for name, tensor in self.sae.state_dict().items()}
        tensors |= {f"adam.{number}.{name}": tensor for number, kept in adam["state"].items() for name, tensor in kept.items()}
        tensors |= {name: getattr(self, name) for name in _COUNTED}
        numbers = {
            "batches": batches,
            "adam": adam["param_groups"],
            "lr_scheduler": self.lr_scheduler.state_dict(),
            "coefficients": {name: scheduler.state_dict() for name, scheduler in self.coefficient_schedulers.items()},
            "scaling_factor": self.activation_scaler.scaling_factor,
            "n_training_steps": self.n_training_steps + 1,
            "n_training_samples": self.n_training_samples,
            "n_frac_active_samples": self.n_frac_active_samples,
            "curve": self.curve,
        }
        return tensors, numbers

    def resume(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Take up a state that a trainer of the same settings left."""
        self._batches.resume(tensors, numbers["batches"])
        self.sae.load_state_dict({name.removeprefix("sae."): tensor for name, tensor in tensors.items() if name.startswith("sae.")})
        self.optimizer.load_state_dict({"state": _adam_state(tensors), "param_groups": numbers["adam"]})
        self.lr_scheduler.load_state_dict(numbers["lr_scheduler"])
        for name, scheduler in self.coefficient_schedulers.items():
            scheduler.load_state_dict(numbers["coefficients"][name])
        for name in _COUNTED:
            setattr(self, name, tensors[name].to(self.cfg.device))
        self.activation_scaler.scaling_factor = numbers["scaling_factor"]
        self.n_training_steps, self.n_training_samples = numbers["n_training_steps"], numbers["n_training_samples"]
        self.n_frac_active_samples, self.curve = numbers["n_frac_active_samples"], numbers["curve"]
        self._n_kept = self.n_training_samples


def _adam_state(tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    kept: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        if name.startswith("adam."):
            _, number, part = name.split(".")
            kept[int(number)][part] = tensor
    return dict(kept)


def losses_of(output: TrainStepOutput, step: int) -> list[float]:
    """Loss, squared error, and all else of the loss.

    Raises:
        NumericsError: the loss is NaN or infinite.
    """
    loss, mse = output.loss.item(), output.losses["mse_loss"].item()
    if not math.isfinite(loss):
        raise NumericsError(f"training: the loss is {loss} at step {step}; lower train.lr or the sparsity coefficient")
    return [loss, mse, loss - mse]


def l0_of(latents: Float[Tensor, "token latent"]) -> float:
    """Latents that fire at a token, on average."""
    return (latents != 0).sum(dim=-1).float().mean().item()
