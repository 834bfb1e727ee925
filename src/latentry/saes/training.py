"""Trains a SAE or a transcoder on activations with sae-lens, and writes it in the SAELens layout with its loss curve.

Same activations, recipe and seed on one machine: same bytes, however often it was killed. The process's own random state is left
as it was.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from sae_lens import LoggingConfig, TrainingSAE
from sae_lens.config import SAETrainerConfig
from sae_lens.constants import SAE_CFG_FILENAME, SAE_WEIGHTS_FILENAME
from sae_lens.registry import get_sae_training_class
from sae_lens.saes.sae import SAEMetadata
from safetensors.torch import save_file
from torch import Tensor
from tqdm import tqdm

from latentry.atomic import write_atomic
from latentry.errors import CorpusError, NumericsError
from latentry.randomness import rng_for
from latentry.saes.base import Activations
from latentry.saes.batches import READ_CONTEXTS, Batches
from latentry.saes.checkpoint import Checkpoint
from latentry.saes.recipe import Recipe
from latentry.saes.trainer import Trainer
from latentry.saes.transcoding import Transcoding, new_transcoder

CURVE_FILE = "loss.csv"
CURVE_COLUMNS = ("step", "tokens", "loss", "mse", "sparsity", "l0")
CHECKPOINT_FILES = ("moments.safetensors", "checkpoint.safetensors")
"""Of the passes over the activations: their mean and norm, and the training. They are gone when it is over."""

_CURVE_POINTS = 200
"""At most, the last step's among them."""


def train(
    recipe: Recipe,
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
    model_name, hook_name, hf_hook_name, context_size, prepend_bos. Of a transcoder, the activations hold what it rebuilds besides.

    Raises:
        CorpusError: the contexts hold fewer tokens than one batch.
        NumericsError: an activation is NaN or infinite, or the loss became so.
    """
    n_steps = steps_of(recipe, activations, contexts)
    checkpoints = [Checkpoint(path=folder / name, every=checkpoint_tokens) for name in CHECKPOINT_FILES]
    if not (folder / SAE_WEIGHTS_FILENAME).exists():
        rng = rng_for(seed, f"sae training {recipe.seed}")
        with torch_seeded(int(rng.integers(2**63)), device):
            sae = _new_sae(recipe, loss, width, activations, n_steps, metadata, device)
            curve = _fit(sae, recipe, n_steps, batches_of(recipe, activations, contexts, rng), checkpoints, device)
        _save(sae, loss, curve, folder)
    for checkpoint in checkpoints:
        checkpoint.remove()
    return n_steps * recipe.batch


def steps_of(recipe: Recipe, activations: Activations, contexts: Int[np.ndarray, " context"]) -> int:
    """How many steps a training on those contexts has.

    Raises:
        CorpusError: they hold fewer tokens than one batch.
    """
    n_tokens = int(activations.kept[contexts].sum())
    if n_tokens < recipe.batch:
        raise CorpusError(f"training: {n_tokens} tokens to train on, one batch has {recipe.batch}; lower train.batch or take more tokens")
    return max(1, math.floor(recipe.epochs * n_tokens / recipe.batch))


def batches_of(recipe: Recipe, activations: Activations, contexts: Int[np.ndarray, " context"], rng: np.random.Generator) -> Batches:
    """Those contexts as the recipe mixes them."""
    n_tokens = int(activations.kept[contexts].sum())
    buffer = max(recipe.batch, min(recipe.shuffle_tokens, n_tokens))
    return Batches(activations, contexts, rng, batch=recipe.batch, buffer=buffer)


@contextmanager
def torch_seeded(seed: int, device: str) -> Iterator[None]:
    """sae-lens draws from torch's global generators: seed them inside, and put them back after."""
    devices = [] if device == "cpu" else [torch.device(device)]
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


def _new_sae(
    recipe: Recipe, loss: str, width: int, activations: Activations, n_steps: int, metadata: Mapping[str, Any], device: str
) -> TrainingSAE[Any]:
    settings: dict[str, Any] = {
        "d_in": activations.d_in,
        "d_sae": width,
        "device": device,
        "normalize_activations": "expected_average_only_in",
        "decoder_init_norm": recipe.decoder_norm,
        "metadata": SAEMetadata(**metadata),
        **recipe.settings(n_steps),
    }
    if activations.d_written:
        return new_transcoder(loss, d_out=activations.d_written, **settings)
    if "matryoshka_widths" in settings:
        settings["matryoshka_widths"] += [width]
    sae_class, config_class = get_sae_training_class(loss)
    return sae_class(config_class(**settings))


def _fit(
    sae: TrainingSAE[Any], recipe: Recipe, n_steps: int, batches: Batches, checkpoints: Sequence[Checkpoint], device: str
) -> Sequence[Sequence[float]]:
    """From the last checkpoint, or from the start; returns the loss curve."""
    moments, training = checkpoints
    settings = settings_of(recipe, n_steps, device)
    trainer = Trainer(settings, sae, batches, checkpoint=training, curve_every=curve_every(n_steps))
    found = training.load()
    if found:
        trainer.resume(*found)
    else:
        _scale(trainer, recipe, *moments_of(batches.activations, batches.contexts, moments))
    trainer.fit()
    return trainer.curve


def curve_every(n_steps: int) -> int:
    """Steps between two points of the loss curve."""
    return math.ceil(n_steps / (_CURVE_POINTS - 1))


def settings_of(recipe: Recipe, n_steps: int, device: str) -> SAETrainerConfig:
    """What sae-lens's trainer is told."""
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


def _scale(trainer: Trainer, recipe: Recipe, mean: Float[Tensor, " column"], mean_norms: Float[Tensor, " part"]) -> None:
    """Bring what is read to a mean norm of sqrt(d_in), and what is rebuilt to its own; centre both."""
    sae = trainer.sae
    means = mean.split([sae.cfg.d_in, len(mean) - sae.cfg.d_in][: len(mean_norms)])
    scales = scales_of(means, mean_norms)
    trainer.activation_scaler.scaling_factor = scales[0]
    if isinstance(sae, Transcoding):
        sae.written_scale.fill_(scales[1] / scales[0])
    if recipe.centre:
        sae.b_dec.data.copy_(means[-1] * scales[-1])
    if recipe.centre and isinstance(sae, Transcoding):
        sae.read_mean.copy_(means[0] * scales[0])


def scales_of(means: Sequence[Float[Tensor, " column"]], mean_norms: Float[Tensor, " part"]) -> list[float]:
    """By what each part of the rows is to be multiplied to have a mean norm of the root of its length."""
    return [math.sqrt(len(part)) / norm for part, norm in zip(means, mean_norms.tolist(), strict=True)]


def moments_of(
    activations: Activations, contexts: Int[np.ndarray, " context"], checkpoint: Checkpoint
) -> tuple[Float[Tensor, " column"], Float[Tensor, " part"]]:
    """The mean row, and the mean norm of what is read and, where there is such a part, of what is rebuilt."""
    lengths = [length for length in (activations.d_in, activations.d_written) if length]
    nothing = {"total": torch.zeros(sum(lengths), dtype=torch.float64), "norms": torch.zeros(len(lengths), dtype=torch.float64)}
    sums, so_far = checkpoint.load() or (nothing, {"n": 0, "next": 0})
    total, norms, n, n_kept = sums["total"], sums["norms"], so_far["n"], so_far["n"]
    starts = range(so_far["next"], len(contexts), READ_CONTEXTS)
    for start in tqdm(starts, desc="mean activation", unit="context", unit_scale=READ_CONTEXTS):
        rows = activations.rows(contexts[start : start + READ_CONTEXTS]).double().cpu()
        total += rows.sum(dim=0)
        norms += torch.stack([part.norm(dim=-1).sum() for part in rows.split(lengths, dim=-1)])
        n += len(rows)
        if not bool(norms.isfinite().all()):
            raise NumericsError(
                "training: NaN or infinity among the activations; check the subject's dtype, or set `activations.non_finite`"
            )
        if n - n_kept >= checkpoint.every:
            checkpoint.save({"total": total, "norms": norms}, {"n": n, "next": start + READ_CONTEXTS})
            n_kept = n
    return (total / n).float(), norms / n


def _save(sae: TrainingSAE[Any], loss: str, curve: Sequence[Sequence[float]], folder: Path) -> None:
    """sae-lens's own files, with the loss, which the architecture does not tell, and without what it averages over the whole
    training or writes in a changing order.

    The weights come last: where they stand, the training is over.
    """
    sae.to("cpu")
    described = sae.cfg.get_inference_sae_cfg_dict() | {"device": "cpu"}
    for misleading in ("l0", "num_dead_features"):
        described["metadata"].pop(misleading, None)
    described["metadata"]["training_architecture"] = loss
    described["metadata"]["training_architecture_details"].pop("device", None)
    text = json.dumps(described, indent=1, sort_keys=True) + "\n"
    weights = sae.state_dict()
    sae.process_state_dict_for_saving_inference(weights)
    write_curve(folder / CURVE_FILE, CURVE_COLUMNS, curve)
    write_atomic(folder / SAE_CFG_FILENAME, lambda path: path.write_text(text, encoding="utf-8"))
    write_atomic(folder / SAE_WEIGHTS_FILENAME, lambda path: save_file(weights, path))


def write_curve(to: Path, columns: Sequence[str], curve: Sequence[Sequence[float]]) -> None:
    """A loss curve as a CSV file whose first two columns are step and tokens."""

    def write(path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([step, tokens, *(f"{value:.6g}" for value in values)] for step, tokens, *values in curve)

    write_atomic(to, write)
