"""Training of transcoders, which sae-lens stores and does not train: its own losses and trainer, with what is rebuilt beside what is read.

A batch holds both, one after the other in each row: first the d_in columns that are encoded, then the d_out to be rebuilt.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from sae_lens import (
    BatchTopKTrainingSAE,
    BatchTopKTrainingSAEConfig,
    JumpReLUTrainingSAE,
    JumpReLUTrainingSAEConfig,
    StandardTrainingSAE,
    StandardTrainingSAEConfig,
    TrainingSAE,
    TrainingSAEConfig,
)
from sae_lens.registry import get_sae_class
from sae_lens.saes.sae import SAEConfig, TrainStepInput, TrainStepOutput
from torch import Tensor, nn


@dataclass
class TranscoderConfig(TrainingSAEConfig):
    """What a transcoder's configuration has besides its loss's."""

    d_out: int = 0
    skip: bool = False
    """Whether a matrix takes the activation read to the reconstruction past the latents."""
    stored: ClassVar[str]
    """Begins the name by which sae-lens stores it."""

    def get_inference_config_class(self) -> type[SAEConfig]:
        """sae-lens's own, by name."""
        return get_sae_class(f"{self.stored}{'skip_' if self.skip else ''}transcoder")[1]


class Transcoding(TrainingSAE[Any]):
    """What every transcoder does in its own way; stands between sae-lens's class of the loss and their common base."""

    b_enc: nn.Parameter
    read_mean: Tensor
    """Taken from what is read: a SAE takes its decoder's bias from it, which a transcoder cannot."""
    written_scale: Tensor
    """What is rebuilt has another mean norm than what is read: the factor by which it is scaled besides."""

    def initialize_weights(self) -> None:
        """Decoder and encoder rows of the norm asked for; they have nothing to do with each other. The skip matrix starts at 0."""
        super().initialize_weights()
        like, d_out = {"dtype": self.dtype, "device": self.device}, self.cfg.d_out
        self.register_buffer("read_mean", torch.zeros(self.cfg.d_in, **like))
        self.register_buffer("written_scale", torch.ones((), **like))
        rows = torch.randn(self.cfg.d_sae, d_out, **like)
        self.W_dec = nn.Parameter(rows / rows.norm(dim=-1, keepdim=True) * self.cfg.decoder_init_norm)
        self.b_dec = nn.Parameter(torch.zeros(d_out, **like))
        if self.cfg.skip:
            self.W_skip = nn.Parameter(torch.zeros(d_out, self.cfg.d_in, **like))

    def process_sae_in(self, sae_in: Tensor) -> Tensor:
        """As it is: the decoder's bias is of another place."""
        return sae_in.to(self.dtype)

    def training_forward_pass(self, step_input: TrainStepInput) -> TrainStepOutput:
        """As sae-lens's, between the two parts of each row."""
        x, written = step_input.sae_in.split([self.cfg.d_in, self.cfg.d_out], dim=-1)
        x, written = x - self.read_mean, written * self.written_scale
        latents, hidden_pre = self.encode_with_hidden_pre(x)
        rebuilt = self.decode(latents)
        if self.cfg.skip:
            rebuilt = rebuilt + x @ self.W_skip.T
        losses: dict[str, Tensor] = {"mse_loss": self.mse_loss_fn(rebuilt, written).sum(dim=-1).mean()}
        of_written = replace(step_input, sae_in=written)
        besides = self.calculate_aux_loss(step_input=of_written, feature_acts=latents, hidden_pre=hidden_pre, sae_out=rebuilt)
        losses |= besides if isinstance(besides, dict) else {"other": besides}
        total = torch.stack(list(losses.values())).sum()
        return TrainStepOutput(sae_in=written, sae_out=rebuilt, feature_acts=latents, hidden_pre=hidden_pre, loss=total, losses=losses)

    @torch.no_grad()
    def fold_activation_norm_scaling_factor(self, scaling_factor: float) -> None:
        """The mean and both scales into the weights: what goes out takes both scales, what comes in only the first."""
        between = self.written_scale.item()
        self.b_enc.data -= self.read_mean @ self.W_enc
        if self.cfg.skip:
            self.b_dec.data -= self.W_skip @ self.read_mean
        self.read_mean.zero_()
        super().fold_activation_norm_scaling_factor(scaling_factor * between)
        self.W_enc.data /= between
        if self.cfg.skip:
            self.W_skip.data /= between
        self.written_scale.fill_(1)

    def process_state_dict_for_saving_inference(self, state_dict: dict[str, Any]) -> None:
        """Without what only training knows."""
        super().process_state_dict_for_saving_inference(state_dict)
        del state_dict["read_mean"], state_dict["written_scale"]


@dataclass
class _StandardConfig(TranscoderConfig, StandardTrainingSAEConfig):
    stored = ""


@dataclass
class _JumpReLUConfig(TranscoderConfig, JumpReLUTrainingSAEConfig):
    stored = "jumprelu_"


@dataclass
class _BatchTopKConfig(TranscoderConfig, BatchTopKTrainingSAEConfig):
    stored = "jumprelu_"


class _Standard(StandardTrainingSAE, Transcoding):
    pass


class _JumpReLU(JumpReLUTrainingSAE, Transcoding):
    pass


class _BatchTopK(BatchTopKTrainingSAE, Transcoding):
    @torch.no_grad()
    def fold_activation_norm_scaling_factor(self, scaling_factor: float) -> None:
        """The threshold is in units of a decoder row's norm, so it takes both scales too; sae-lens gives it the first."""
        between = self.written_scale.item()
        super().fold_activation_norm_scaling_factor(scaling_factor)
        self.topk_threshold /= between


TRANSCODERS: dict[str, tuple[type[TrainingSAE[Any]], type[TranscoderConfig]]] = {
    "": (_Standard, _StandardConfig),
    "jumprelu_": (_JumpReLU, _JumpReLUConfig),
    "batchtopk_": (_BatchTopK, _BatchTopKConfig),
}
"""By what stands before `transcoder` or `skip_transcoder` in the loss's name."""


def new_transcoder(loss: str, *, d_out: int, **settings: Any) -> TrainingSAE[Any]:
    """One to be trained; `settings` are those of any SAE."""
    skip = loss.endswith("skip_transcoder")
    sae_class, config_class = TRANSCODERS[loss.removesuffix("transcoder").removesuffix("skip_")]
    return sae_class(config_class(d_out=d_out, skip=skip, apply_b_dec_to_input=False, **settings))
