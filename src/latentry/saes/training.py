"""Trains a SAE on stored activations with sae-lens, and writes it in the SAELens layout with its loss curve.

Same activations, recipe and seed on one machine: same bytes. The process's own random state is left as it was.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentry.errors import CorpusError, NumericsError
from latentry.randomness import rng_for
from latentry.saes.base import Activations
from latentry.saes.recipe import TrainConfig

if TYPE_CHECKING:
    from sae_lens import TrainingSAE
    from sae_lens.saes.sae import TrainStepOutput

CURVE_FILE = "loss.csv"
CURVE_COLUMNS = ("step", "tokens", "loss", "mse", "sparsity", "l0")

_CURVE_POINTS = 200
_READ_CONTEXTS = 64


def train(
    recipe: TrainConfig,
    *,
    loss: str,
    width: int,
    activations: Activations,
    contexts: Int[np.ndarray, " context"],
    seed: int,
    folder: Path,
    metadata: Mapping[str, Any],
    device: str = "cpu",
) -> int:
    """Train one SAE on those contexts, write it to the folder, and say on how many tokens (repeats counted).

    `metadata` goes to cfg.json as it is: model_name, hook_name, hf_hook_name, context_size, prepend_bos.

    Raises:
        CorpusError: the contexts hold fewer tokens than one batch.
        NumericsError: the loss became NaN or infinite.
    """
    n_tokens = int(activations.kept[contexts].sum())
    if n_tokens < recipe.batch:
        raise CorpusError(f"training: {n_tokens} tokens to train on, one batch has {recipe.batch}; lower train.batch or take more tokens")
    n_steps = max(1, math.floor(recipe.epochs * n_tokens / recipe.batch))
    rng = rng_for(seed, f"sae training {recipe.seed}")
    with _torch_seeded(int(rng.integers(2**63)), device):
        sae = _new_sae(recipe, loss, width, activations.d_in, n_steps, metadata, device)
        curve = _fit(sae, recipe, n_steps, activations, contexts, rng, device)
    _save(sae, folder)
    _write_curve(folder / CURVE_FILE, curve)
    return n_steps * recipe.batch


@contextmanager
def _torch_seeded(seed: int, device: str) -> Iterator[None]:
    """sae-lens draws from torch's global generators: seed them inside, and put them back after."""
    devices = [] if device == "cpu" else [torch.device(device)]
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


def _new_sae(
    recipe: TrainConfig, loss: str, width: int, d_in: int, n_steps: int, metadata: Mapping[str, Any], device: str
) -> "TrainingSAE[Any]":
    from sae_lens import TrainingSAE
    from sae_lens.saes.sae import SAEMetadata

    settings = _config(recipe, loss, n_steps)(
        d_in=d_in,
        d_sae=width,
        device=device,
        normalize_activations="expected_average_only_in",
        decoder_init_norm=recipe.decoder_norm,
        metadata=SAEMetadata(**metadata),
    )
    return TrainingSAE.from_dict(settings.to_dict())


def _config(recipe: TrainConfig, loss: str, n_steps: int) -> Any:
    """sae-lens's configuration class of the loss, with the loss's own knobs filled in."""
    from sae_lens import JumpReLUTrainingSAEConfig, StandardTrainingSAEConfig, TopKTrainingSAEConfig

    warm_up = round((recipe.sparsity_warm_up or 0) * n_steps)
    if loss == "topk":
        return partial(TopKTrainingSAEConfig, **_given(k=recipe.k, aux_loss_coefficient=recipe.aux_coefficient))
    if loss == "standard":
        return partial(StandardTrainingSAEConfig, l1_warm_up_steps=warm_up, **_given(l1_coefficient=recipe.l1_coefficient))
    knobs = _given(
        l0_coefficient=recipe.l0_coefficient,
        jumprelu_init_threshold=recipe.threshold,
        jumprelu_bandwidth=recipe.bandwidth,
        jumprelu_sparsity_loss_mode=recipe.sparsity_mode,
        target_l0=recipe.target_l0,
        pre_act_loss_coefficient=recipe.pre_act_coefficient,
        jumprelu_ste_to_input=recipe.ste_to_input,
    )
    return partial(JumpReLUTrainingSAEConfig, l0_warm_up_steps=warm_up, **knobs)


def _given(**knobs: Any) -> dict[str, Any]:
    return {name: value for name, value in knobs.items() if value is not None}


def _fit(
    sae: "TrainingSAE[Any]",
    recipe: TrainConfig,
    n_steps: int,
    activations: Activations,
    contexts: Int[np.ndarray, " context"],
    rng: np.random.Generator,
    device: str,
) -> list[tuple[float, ...]]:
    from sae_lens import LoggingConfig
    from sae_lens.config import SAETrainerConfig
    from sae_lens.training.sae_trainer import SAETrainer

    every = max(1, n_steps // _CURVE_POINTS)
    curve: list[tuple[float, ...]] = []

    class RecordingTrainer(SAETrainer):
        def step(self, batch: Tensor) -> "TrainStepOutput":
            output = super().step(batch)
            if self.n_training_steps % every == 0 or self.n_training_samples >= self.cfg.total_training_samples:
                curve.append(_curve_point(self.n_training_steps + 1, self.n_training_samples, output))
            return output

    settings = SAETrainerConfig(
        total_training_samples=n_steps * recipe.batch,
        train_batch_size_samples=recipe.batch,
        lr=recipe.lr,
        lr_end=recipe.lr,
        adam_beta1=recipe.beta1,
        lr_warm_up_steps=round(recipe.lr_warm_up * n_steps),
        lr_decay_steps=round(recipe.lr_decay * n_steps),
        device=device,
        dead_feature_window=recipe.dead_after,
        feature_sampling_window=n_steps + 1,
        logger=LoggingConfig(log_to_wandb=False),
    )
    trainer = RecordingTrainer(cfg=settings, sae=sae, data_provider=_batches(recipe, activations, contexts, rng))
    mean, mean_norm = _moments(activations, contexts)
    trainer.activation_scaler.scaling_factor = math.sqrt(sae.cfg.d_in) / mean_norm
    if recipe.centre:
        sae.b_dec.data.copy_(mean * trainer.activation_scaler.scaling_factor)
    trainer.fit()
    return curve


def _curve_point(step: int, n_tokens: int, output: "TrainStepOutput") -> tuple[float, ...]:
    loss, mse = output.loss.item(), output.losses["mse_loss"].item()
    if not math.isfinite(loss):
        raise NumericsError(f"training: the loss is {loss} at step {step}; lower train.lr or the sparsity coefficient")
    l0 = (output.feature_acts != 0).sum(dim=-1).float().mean().item()
    return step, n_tokens, loss, mse, loss - mse, l0


def _batches(
    recipe: TrainConfig, activations: Activations, contexts: Int[np.ndarray, " context"], rng: np.random.Generator
) -> Iterator[Float[Tensor, "token d_in"]]:
    """Endless shuffled batches: the contexts in a new order each epoch, their tokens mixed in a bounded buffer."""
    from sae_lens.training.mixing_buffer import mixing_buffer

    def chunks() -> Iterator[Float[Tensor, "token d_in"]]:
        while True:
            order = rng.permutation(contexts)
            for start in range(0, len(order), _READ_CONTEXTS):
                yield activations.rows(order[start : start + _READ_CONTEXTS])

    n_tokens = int(activations.kept[contexts].sum())
    buffer = max(recipe.batch, min(recipe.shuffle_tokens, n_tokens))
    for batch in mixing_buffer(buffer, recipe.batch, chunks()):
        yield batch.float()


def _moments(activations: Activations, contexts: Int[np.ndarray, " context"]) -> tuple[Float[Tensor, " d_in"], float]:
    """The mean activation, and the mean norm of an activation."""
    total, norms, n = torch.zeros(activations.d_in, dtype=torch.float64), 0.0, 0
    for start in range(0, len(contexts), _READ_CONTEXTS):
        rows = activations.rows(contexts[start : start + _READ_CONTEXTS]).double().cpu()
        total += rows.sum(dim=0)
        norms += rows.norm(dim=-1).sum().item()
        n += len(rows)
    return (total / n).float(), norms / n


def _save(sae: "TrainingSAE[Any]", folder: Path) -> None:
    """sae-lens's own files, without what it averages over the whole training or writes in a changing order."""
    folder.mkdir(parents=True, exist_ok=True)
    sae.to("cpu")
    _, path = sae.save_inference_model(folder)
    described = json.loads(path.read_text(encoding="utf-8"))
    described["device"] = "cpu"
    for misleading in ("l0", "num_dead_features"):
        described["metadata"].pop(misleading, None)
    described["metadata"]["training_architecture_details"].pop("device", None)
    path.write_text(json.dumps(described, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _write_curve(path: Path, curve: list[tuple[float, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(CURVE_COLUMNS)
        writer.writerows([step, tokens, *(f"{value:.6g}" for value in values)] for step, tokens, *values in curve)
