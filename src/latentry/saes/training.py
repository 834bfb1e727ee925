"""Trains a SAE on activations with sae-lens, and writes it in the SAELens layout with its loss curve.

Same activations, recipe and seed on one machine: same bytes, however often it was killed. The process's own random state is left
as it was.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from sae_lens import (
    JumpReLUTrainingSAEConfig,
    LoggingConfig,
    StandardTrainingSAEConfig,
    TopKTrainingSAEConfig,
    TrainingSAE,
)
from sae_lens.config import SAETrainerConfig
from sae_lens.constants import SAE_CFG_FILENAME, SAE_WEIGHTS_FILENAME
from sae_lens.saes.sae import SAEMetadata
from safetensors.torch import save_file
from torch import Tensor

from latentry.atomic import write_atomic
from latentry.errors import CorpusError, NumericsError
from latentry.randomness import rng_for
from latentry.saes.base import Activations
from latentry.saes.batches import READ_CONTEXTS, Batches
from latentry.saes.checkpoint import Checkpoint
from latentry.saes.recipe import TrainConfig
from latentry.saes.trainer import Trainer

CURVE_FILE = "loss.csv"
CURVE_COLUMNS = ("step", "tokens", "loss", "mse", "sparsity", "l0")
CHECKPOINT_FILES = ("moments.safetensors", "checkpoint.safetensors")
"""Of the passes over the activations: their mean and norm, and the training. They are gone when it is over."""

_CURVE_POINTS = 200


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
    checkpoint_tokens: int,
    device: str = "cpu",
) -> int:
    """Train one SAE on those contexts, write it to the folder, and say on how many tokens (repeats counted).

    Called again after a kill it goes on, at most `checkpoint_tokens` tokens before where it was. `metadata` goes to cfg.json as it is:
    model_name, hook_name, hf_hook_name, context_size, prepend_bos.

    Raises:
        CorpusError: the contexts hold fewer tokens than one batch.
        NumericsError: an activation is NaN or infinite, or the loss became so.
    """
    n_tokens = int(activations.kept[contexts].sum())
    if n_tokens < recipe.batch:
        raise CorpusError(f"training: {n_tokens} tokens to train on, one batch has {recipe.batch}; lower train.batch or take more tokens")
    n_steps = max(1, math.floor(recipe.epochs * n_tokens / recipe.batch))
    checkpoints = [Checkpoint(path=folder / name, every=checkpoint_tokens) for name in CHECKPOINT_FILES]
    if not (folder / SAE_WEIGHTS_FILENAME).exists():
        rng = rng_for(seed, f"sae training {recipe.seed}")
        with _torch_seeded(int(rng.integers(2**63)), device):
            sae = _new_sae(recipe, loss, width, activations.d_in, n_steps, metadata, device)
            buffer = max(recipe.batch, min(recipe.shuffle_tokens, n_tokens))
            batches = Batches(activations, contexts, rng, batch=recipe.batch, buffer=buffer)
            curve = _fit(sae, recipe, n_steps, batches, checkpoints, device)
        _save(sae, curve, folder)
    for checkpoint in checkpoints:
        checkpoint.remove()
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
) -> TrainingSAE[Any]:
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
    sae: TrainingSAE[Any], recipe: TrainConfig, n_steps: int, batches: Batches, checkpoints: Sequence[Checkpoint], device: str
) -> Sequence[Sequence[float]]:
    """From the last checkpoint, or from the start; returns the loss curve."""
    moments, training = checkpoints
    settings = _settings(recipe, n_steps, device)
    trainer = Trainer(settings, sae, batches, checkpoint=training, curve_every=max(1, n_steps // _CURVE_POINTS))
    found = training.load()
    if found:
        trainer.resume(*found)
    else:
        _scale(trainer, recipe, *_moments(batches.activations, batches.contexts, moments))
    trainer.fit()
    return trainer.curve


def _settings(recipe: TrainConfig, n_steps: int, device: str) -> SAETrainerConfig:
    return SAETrainerConfig(
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


def _scale(trainer: Trainer, recipe: TrainConfig, mean: Float[Tensor, " d_in"], mean_norm: float) -> None:
    """Bring the activations to a mean norm of sqrt(d_in), and start the decoder bias at their mean."""
    scale = math.sqrt(len(mean)) / mean_norm
    trainer.activation_scaler.scaling_factor = scale
    if recipe.centre:
        trainer.sae.b_dec.data.copy_(mean * scale)


def _moments(
    activations: Activations, contexts: Int[np.ndarray, " context"], checkpoint: Checkpoint
) -> tuple[Float[Tensor, " d_in"], float]:
    """The mean activation, and the mean norm of an activation."""
    sums, so_far = checkpoint.load() or ({"total": torch.zeros(activations.d_in, dtype=torch.float64)}, {"norms": 0.0, "n": 0, "next": 0})
    total, norms, n, n_kept = sums["total"], so_far["norms"], so_far["n"], so_far["n"]
    for start in range(so_far["next"], len(contexts), READ_CONTEXTS):
        rows = activations.rows(contexts[start : start + READ_CONTEXTS]).double().cpu()
        total += rows.sum(dim=0)
        norms += rows.norm(dim=-1).sum().item()
        n += len(rows)
        if not math.isfinite(norms):
            raise NumericsError(
                "training: NaN or infinity among the activations; check the subject's dtype, or set `activations.non_finite`"
            )
        if n - n_kept >= checkpoint.every:
            checkpoint.save({"total": total}, {"norms": norms, "n": n, "next": start + READ_CONTEXTS})
            n_kept = n
    return (total / n).float(), norms / n


def _save(sae: TrainingSAE[Any], curve: Sequence[Sequence[float]], folder: Path) -> None:
    """sae-lens's own files, without what it averages over the whole training or writes in a changing order.

    The weights come last: where they stand, the training is over.
    """
    sae.to("cpu")
    described = sae.cfg.get_inference_sae_cfg_dict() | {"device": "cpu"}
    for misleading in ("l0", "num_dead_features"):
        described["metadata"].pop(misleading, None)
    described["metadata"]["training_architecture_details"].pop("device", None)
    text = json.dumps(described, indent=1, sort_keys=True) + "\n"
    weights = sae.state_dict()
    sae.process_state_dict_for_saving_inference(weights)
    write_atomic(folder / CURVE_FILE, lambda path: _write_curve(path, curve))
    write_atomic(folder / SAE_CFG_FILENAME, lambda path: path.write_text(text, encoding="utf-8"))
    write_atomic(folder / SAE_WEIGHTS_FILENAME, lambda path: save_file(weights, path))


def _write_curve(path: Path, curve: Sequence[Sequence[float]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(CURVE_COLUMNS)
        writer.writerows([step, tokens, *(f"{value:.6g}" for value in values)] for step, tokens, *values in curve)
