"""The knobs of training a SAE, and which of them each loss has. Training itself is `training.py`'s."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

_Share = Annotated[float, Field(ge=0, le=1)]
_Positive = Annotated[float, Field(gt=0)]

TRAINABLE = ("topk", "jumprelu", "standard")
"""Losses that can be trained here."""

NEEDED = {"topk": ("k",), "jumprelu": ("l0_coefficient",), "standard": ("l1_coefficient",)}
"""Knobs without a default, by loss."""

OWN = {
    "topk": ("k", "aux_coefficient"),
    "jumprelu": (
        "l0_coefficient",
        "sparsity_warm_up",
        "threshold",
        "bandwidth",
        "sparsity_mode",
        "target_l0",
        "pre_act_coefficient",
        "ste_to_input",
    ),
    "standard": ("l1_coefficient", "sparsity_warm_up"),
}
"""Knobs that only some losses have."""


class TrainConfig(BaseModel):
    """How a SAE is trained by sae-lens. Activations are scaled to a mean norm of sqrt(d_in) first, so that
    coefficients and thresholds mean the same at every hookpoint; the scale is folded into the weights at the end."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epochs: _Positive
    """Passes over the training tokens; may be a fraction."""
    batch: Annotated[int, Field(ge=1)] = 1024
    """Tokens per step."""
    lr: _Positive = 1e-3
    """Adam's learning rate."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Adam's memory of the gradient; 0 is usual for sparsity penalties."""
    lr_warm_up: _Share = 0.0
    """Share of the steps over which the rate grows from 0."""
    lr_decay: _Share = 0.2
    """Share of the steps, the last ones, over which the rate falls to 0."""
    decoder_norm: _Positive = 0.1
    """Norm of each decoder row at the start; the encoder starts as its transpose."""
    centre: bool = True
    """Start the decoder bias at the mean activation; else at 0."""
    dead_after: Annotated[int, Field(ge=1)] = 200
    """Steps without firing after which a latent counts as dead (for the auxiliary and the pre-activation loss)."""
    shuffle_tokens: Annotated[int, Field(ge=1)] = 65536
    """Tokens in the mixing buffer; contexts are permuted before."""
    seed: Annotated[int, Field(ge=0)] = 0
    """For SAEs of one recipe that differ in chance alone; joined to the run's seed."""

    k: Annotated[int, Field(ge=1)] | None = None
    """topk: latents that fire at a token, at most."""
    aux_coefficient: Annotated[float, Field(ge=0)] | None = None
    """topk: weight of the loss by which dead latents rebuild what is left; default 1."""

    l0_coefficient: Annotated[float, Field(ge=0)] | None = None
    """jumprelu: weight of the sparsity loss."""
    sparsity_warm_up: _Share | None = None
    """jumprelu, standard: share of the steps over which the sparsity coefficient grows from 0; default 0."""
    threshold: _Positive | None = None
    """jumprelu: every threshold at the start; default 0.01."""
    bandwidth: _Positive | None = None
    """jumprelu: width of the window in which a threshold has a gradient; default 0.05."""
    sparsity_mode: Literal["step", "tanh", "quadratic"] | None = None
    """jumprelu: L0 itself, a smooth stand-in for it, or the squared distance to `target_l0`; default step."""
    target_l0: _Positive | None = None
    """jumprelu, quadratic: the L0 to come to."""
    pre_act_coefficient: Annotated[float, Field(ge=0)] | None = None
    """jumprelu: weight of the loss that pulls dead latents' pre-activations up; default none."""
    ste_to_input: bool | None = None
    """jumprelu: whether the sparsity loss also reaches the encoder, and not the thresholds alone; default false."""

    l1_coefficient: Annotated[float, Field(ge=0)] | None = None
    """standard: weight of the L1 norm of the latents, each times its decoder row's norm."""

    def check(self, loss: str, width: int) -> None:
        """Refuse knobs that do not fit the loss or the width.

        Raises:
            ValueError: names the knob, what was found and what is allowed.
        """
        faults = [*self._unfit(loss), *self._beyond(width)]
        if faults:
            raise ValueError("; ".join(faults))

    def _unfit(self, loss: str) -> list[str]:
        if loss not in TRAINABLE:
            return [f"loss {loss!r} cannot be trained here (allowed: {', '.join(TRAINABLE)}); give a `folder` instead of `train`"]
        special = {knob for knobs in OWN.values() for knob in knobs} - set(OWN[loss])
        given = sorted(knob for knob in special if getattr(self, knob) is not None)
        lacking = [knob for knob in NEEDED[loss] if getattr(self, knob) is None]
        faults = [f"train.{knob}: loss {loss!r} has no such knob (its own are {', '.join(OWN[loss])})" for knob in given]
        faults += [f"train.{knob}: missing; loss {loss!r} needs it" for knob in lacking]
        if (self.sparsity_mode == "quadratic") != (self.target_l0 is not None):
            faults.append("train.target_l0: goes with train.sparsity_mode quadratic, and only with it")
        if self.lr_warm_up + self.lr_decay > 1:
            faults.append(f"train.lr_decay: lr_warm_up + lr_decay is {self.lr_warm_up + self.lr_decay:g}, allowed is at most 1")
        return faults

    def _beyond(self, width: int) -> list[str]:
        limits = {"k": self.k, "target_l0": self.target_l0}
        return [
            f"train.{knob}: {value:g} is above the width; allowed are 1 to {width}"
            for knob, value in limits.items()
            if value and value > width
        ]
