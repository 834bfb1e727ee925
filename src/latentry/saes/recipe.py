"""The knobs of training a SAE: those that every loss has, and a block per loss with its own. Training itself is `training.py`'s.

The names are ours; each block says by `settings` what sae-lens is told. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from latentry.registry import nearest

_Count = Annotated[int, Field(ge=1)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Positive = Annotated[float, Field(gt=0)]
_Weight = Annotated[float, Field(ge=0)]


class Recipe(BaseModel):
    """How a SAE is trained by sae-lens, whatever its loss. Activations are scaled to a mean norm of sqrt(d_in) first, so that
    coefficients and thresholds mean the same at every hookpoint; the scale is folded into the weights at the end."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epochs: _Positive
    """Passes over the training tokens; may be a fraction."""
    batch: _Count = 1024
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
    """Norm of each decoder row at the start; the encoder starts as its transpose (of a transcoder: as other rows of that norm)."""
    centre: bool = True
    """Start the decoder bias at the mean activation, else at 0; of what a transcoder reads, take its mean away."""
    dead_after: _Count = 200
    """Steps without firing after which a latent counts as dead (for the auxiliary and the pre-activation loss)."""
    shuffle_tokens: _Count = 65536
    """Tokens in the mixing buffer; contexts are permuted before."""
    seed: Annotated[int, Field(ge=0)] = 0
    """For SAEs of one recipe that differ in chance alone; joined to the run's seed."""

    def settings(self, n_steps: int) -> dict[str, Any]:  # noqa: ARG002
        """The loss's own knobs as sae-lens names them, for a training of so many steps."""
        return {}

    def misfits(self, width: int) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        """Knobs that do not fit each other or the width, with what is allowed."""
        if self.lr_warm_up + self.lr_decay > 1:
            yield "lr_decay", f"lr_warm_up + lr_decay is {self.lr_warm_up + self.lr_decay:g}, allowed is at most 1"


class Standard(Recipe):
    """ReLU, with the L1 norm of the latents as penalty (`standard`)."""

    l1_coefficient: _Weight
    """Weight of the norm of the latents, each times its decoder row's norm."""
    lp_norm: _Positive = 1.0
    """Which norm: 1 is L1; below 1 strong latents are punished less."""
    sparsity_warm_up: _Share = 0.0
    """Share of the steps over which the coefficient grows from 0."""

    def settings(self, n_steps: int) -> dict[str, Any]:
        """As `Recipe`."""
        warm_up = round(self.sparsity_warm_up * n_steps)
        return {"l1_coefficient": self.l1_coefficient, "lp_norm": self.lp_norm, "l1_warm_up_steps": warm_up}


class Gated(Recipe):
    """A gate says which latents fire, a second path of the same encoder how much (`gated`)."""

    l1_coefficient: _Weight
    """Weight of the L1 norm of the gate's path, each latent times its decoder row's norm."""
    sparsity_warm_up: _Share = 0.0
    """Share of the steps over which the coefficient grows from 0."""

    def settings(self, n_steps: int) -> dict[str, Any]:
        """As `Recipe`."""
        return {"l1_coefficient": self.l1_coefficient, "l1_warm_up_steps": round(self.sparsity_warm_up * n_steps)}


class TopK(Recipe):
    """The k largest latents of each token fire (`topk`); of each direction either sign, by size (`abstopk`)."""

    k: _Count
    """Latents that fire at a token, at most."""
    aux_coefficient: _Weight = 1.0
    """Weight of the loss by which dead latents rebuild what is left."""

    def settings(self, n_steps: int) -> dict[str, Any]:  # noqa: ARG002
        """As `Recipe`."""
        return {"k": self.k, "aux_loss_coefficient": self.aux_coefficient}

    def misfits(self, width: int) -> Iterator[tuple[str, str]]:
        """As `Recipe`."""
        yield from super().misfits(width)
        yield from _beyond("k", self.k, width)


class BatchTopK(Recipe):
    """The k largest latents per token, over all tokens of a batch together (`batchtopk`). What it stores is a JumpReLU with the one
    threshold that it learned, so that a token's latents do not depend on its batch."""

    k: _Positive
    """Latents that fire at a token, on average."""
    aux_coefficient: _Weight = 1.0
    """Weight of the loss by which dead latents rebuild what is left."""
    threshold_lr: _Share = 0.01
    """How fast the threshold follows the least activation of a batch. It begins at 0: after fewer than some 5 / threshold_lr steps it
    is too low, and more than k latents fire."""

    def settings(self, n_steps: int) -> dict[str, Any]:  # noqa: ARG002
        """As `Recipe`."""
        return {"k": self.k, "aux_loss_coefficient": self.aux_coefficient, "topk_threshold_lr": self.threshold_lr}

    def misfits(self, width: int) -> Iterator[tuple[str, str]]:
        """As `Recipe`."""
        yield from super().misfits(width)
        yield from _beyond("k", self.k, width)


class Matryoshka(BatchTopK):
    """BatchTopK whose first latents must rebuild the activation by themselves too (`matryoshka_batchtopk`)."""

    widths: Annotated[tuple[_Count, ...], Field(min_length=1)]
    """How many of the first latents make each inner SAE, ascending and below the width."""
    aux_per_level: bool = False
    """Whether dead latents rebuild what their own level left, and not what the whole SAE left; slower."""

    def settings(self, n_steps: int) -> dict[str, Any]:
        """As `Recipe`; the whole width, which is the last level, is for who knows it to add."""
        return super().settings(n_steps) | {"matryoshka_widths": [*self.widths], "use_matryoshka_aux_loss": self.aux_per_level}

    def misfits(self, width: int) -> Iterator[tuple[str, str]]:
        """As `Recipe`."""
        yield from super().misfits(width)
        if any(inner >= outer for inner, outer in zip(self.widths, [*self.widths[1:], width], strict=True)):
            yield "widths", f"is {list(self.widths)}; ascending numbers below the width {width} are allowed"


class JumpReLU(Recipe):
    """Each latent has a threshold of its own, below which it is silent, and which is learned (`jumprelu`)."""

    l0_coefficient: _Weight
    """Weight of the sparsity loss."""
    sparsity_warm_up: _Share = 0.0
    """Share of the steps over which the coefficient grows from 0."""
    sparsity_mode: Literal["step", "tanh", "quadratic"] = "step"
    """L0 itself, a smooth stand-in for it, or the squared distance to `target_l0`."""
    target_l0: _Positive | None = None
    """quadratic: the L0 to come to."""
    tanh_scale: _Positive = 4.0
    """tanh: how steeply it rises with a latent's activation times its decoder row's norm."""
    threshold: _Positive = 0.01
    """Every threshold at the start."""
    bandwidth: _Positive = 0.05
    """Width of the window in which a threshold has a gradient."""
    pre_act_coefficient: _Weight | None = None
    """Weight of the loss that pulls dead latents' pre-activations up; none: there is no such loss."""
    ste_to_input: bool = False
    """Whether the sparsity loss also reaches the encoder, and not the thresholds alone."""

    def settings(self, n_steps: int) -> dict[str, Any]:
        """As `Recipe`."""
        return {
            "l0_coefficient": self.l0_coefficient,
            "l0_warm_up_steps": round(self.sparsity_warm_up * n_steps),
            "jumprelu_sparsity_loss_mode": self.sparsity_mode,
            "target_l0": self.target_l0,
            "jumprelu_tanh_scale": self.tanh_scale,
            "jumprelu_init_threshold": self.threshold,
            "jumprelu_bandwidth": self.bandwidth,
            "pre_act_loss_coefficient": self.pre_act_coefficient,
            "jumprelu_ste_to_input": self.ste_to_input,
        }

    def misfits(self, width: int) -> Iterator[tuple[str, str]]:
        """As `Recipe`."""
        yield from super().misfits(width)
        if (self.sparsity_mode == "quadratic") != (self.target_l0 is not None):
            yield "target_l0", "goes with train.sparsity_mode quadratic, and only with it"
        yield from _beyond("target_l0", self.target_l0 or 1, width)


class Jsae(TopK):
    """Two TopK SAEs on the input and the output of one MLP, whose active latents are to bear on few of each other (`jsae`)."""

    partner: str
    """Name in `subject.hookpoints` of what the other half reads: the MLP's output for the half of its input, and the other way about."""
    jacobian_coefficient: _Weight = 300.0
    """Weight of the mean |J| over the pairs of latents active at a token, J in the scaled activations' units; 0 trains two SAEs apart."""
    jacobian_warm_up: _Share = 0.0
    """Share of the steps over which the coefficient grows from 0."""
    output_coefficient: _Positive = 1.0
    """Weight of the output half's reconstruction beside that of the input half's."""


Loss = Literal[
    "standard",
    "gated",
    "topk",
    "abstopk",
    "batchtopk",
    "matryoshka_batchtopk",
    "jumprelu",
    "transcoder",
    "skip_transcoder",
    "batchtopk_transcoder",
    "batchtopk_skip_transcoder",
    "jumprelu_transcoder",
    "jumprelu_skip_transcoder",
]
"""Training losses, and the labels of SAEs in every comparison. `standard` is L1, and so are `transcoder` and `skip_transcoder`."""

RECIPES: Mapping[str, type[Recipe]] = {
    "standard": Standard,
    "gated": Gated,
    "topk": TopK,
    "abstopk": TopK,
    "batchtopk": BatchTopK,
    "matryoshka_batchtopk": Matryoshka,
    "jumprelu": JumpReLU,
    "transcoder": Standard,
    "skip_transcoder": Standard,
    "batchtopk_transcoder": BatchTopK,
    "batchtopk_skip_transcoder": BatchTopK,
    "jumprelu_transcoder": JumpReLU,
    "jumprelu_skip_transcoder": JumpReLU,
}
"""The knobs of each loss that one SAE can be trained with here."""

_OF_PAIRS: Mapping[str, type[Recipe]] = {"jsae": Jsae}
"""The same of two SAEs that are trained together."""


def recipe_of(loss: str, width: int, knobs: Any) -> Recipe:
    """The recipe that `train` holds in params.yaml.

    Raises:
        ValidationError: every knob that is unknown, missing, wrong, of another loss, or does not fit the width.
    """
    block = {**RECIPES, **_OF_PAIRS}[loss]
    strangers = [knob for knob in knobs if knob not in block.model_fields] if isinstance(knobs, Mapping) else []
    faults = [_fault(knob, _strange(knob, loss, block), knobs[knob]) for knob in strangers]
    try:
        recipe = block.model_validate({knob: knobs[knob] for knob in knobs if knob not in strangers} if strangers else knobs)
        faults += [_fault(knob, said, None) for knob, said in recipe.misfits(width)]
        if not faults:
            return recipe
    except ValidationError as error:
        faults += [InitErrorDetails(type=one["type"], loc=one["loc"], input=one["input"], ctx=one.get("ctx", {})) for one in error.errors()]
    raise ValidationError.from_exception_data("train", faults)


def _strange(knob: str, loss: str, block: type[Recipe]) -> str:
    own = [name for name in block.model_fields if name not in Recipe.model_fields]
    if any(knob in other.model_fields for other in (*RECIPES.values(), *_OF_PAIRS.values())):
        return f"loss {loss!r} has no such knob (its own are {', '.join(own)})"
    return f"unknown key{nearest(knob, block.model_fields)}"


def _fault(knob: str, said: str, value: Any) -> InitErrorDetails:
    return InitErrorDetails(
        type=PydanticCustomError("knob", "{said}", {"said": said}), loc=(knob,), input=value if value is not None else {}
    )


def _beyond(knob: str, value: float, width: int) -> Iterator[tuple[str, str]]:
    if value > width:
        yield knob, f"{value:g} is above the width; allowed are 1 to {width}"
