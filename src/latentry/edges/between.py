"""Two SAEs and the MLP between what they read: the weights that the Jacobian is made of, checked to belong together.

The Jacobian is that of SAEs whose decoder rows have norm 1. A SAE that cannot be so read is named and refused.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from latentry.errors import ContractError, HookpointError, UnsupportedError
from latentry.mlp_jacobian import Mlp, unit_rows
from latentry.saes.base import Sae

MAX_MLP_FVU = 0.01
"""Of what the MLP writes as its weights give it, against what was stored: rounding to bfloat16 leaves 1e-4, another layer 1 and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """All that a Jacobian is made of but the tokens; float32."""

    input: Sae
    output: Sae
    mlp: Mlp
    directions: Float[Tensor, "width_in d_in"]
    """Decoder rows of the input SAE, of norm 1."""
    reads: Float[Tensor, "width_out d_out"]
    """Encoder rows of the output SAE, in the unit in which its decoder rows have norm 1."""

    @property
    def d_in(self) -> int:
        """How long what the MLP reads is."""
        return self.mlp.up.shape[1]


def between(read: Sae, written: Sae, mlp: Mlp) -> Between:
    """Two SAEs around one MLP.

    Raises:
        UnsupportedError: a SAE is a transcoder, normalises its rows, or has an encoder that is not linear before its activation.
        ContractError: a SAE's activations are not as long as what the MLP reads or writes.
    """
    for sae in (read, written):
        _check_readable(sae)
    _check_length(read, "reads", mlp.up.shape[1])
    _check_length(written, "writes", mlp.down.shape[0])
    device = read.decoder.device
    directions, _ = unit_rows(read.decoder.float(), read.decoder.float())
    _, reads = unit_rows(written.decoder.float(), _encoder_of(written).float())
    return Between(
        input=read, output=written, mlp=mlp.to(device=device, dtype=torch.float32), directions=directions, reads=reads.to(device)
    )


def _check_readable(sae: Sae) -> None:
    if sae.writes != sae.hookpoint:
        raise UnsupportedError(
            f"SAE {sae.name!r}: is a transcoder from {sae.hookpoint!r} to {sae.writes!r}; name a SAE that rebuilds what it reads"
        )
    if sae.restore is not None:
        raise UnsupportedError(
            f"SAE {sae.name!r}: normalises each row before encoding, which its Jacobian would have to hold too; name a SAE that does not"
        )


def _encoder_of(sae: Sae) -> Float[Tensor, "width d_in"]:
    if sae.encoder is None:
        raise UnsupportedError(
            f"SAE {sae.name!r} ({sae.provenance.get('architecture', sae.loss)}): its encoder is not linear before its activation function,"
            " as a gate's is not, so its latents have no one slope; name a TopK, ReLU or JumpReLU SAE as `output` under `jacobians`"
        )
    return sae.encoder


def _check_length(sae: Sae, does: str, length: int) -> None:
    if sae.d_in != length:
        raise ContractError(
            f"SAE {sae.name!r} reads activations of length d_in = {sae.d_in}, the MLP {does} {length};"
            " name a SAE that was trained there under `jacobians` in params.yaml"
        )


def mlp_fvu(mlp: Mlp, x: Float[Tensor, "token d_in"], written: Float[Tensor, "token d_out"]) -> float:
    """How much of what stands at the output's hookpoint the MLP does not make of what stands at the input's: 0 where it makes it all.

    A constant between the two counts for nothing.
    """
    missed = (written - mlp(x)).double()
    varied = written.double()
    return float(((missed - missed.mean(dim=0)).square().sum() / (varied - varied.mean(dim=0)).square().sum()).item())


def check_mlp(fvu: float, name: str, read: str, written: str) -> None:
    """See that the MLP whose weights are read lies between the two hookpoints.

    Raises:
        HookpointError: what it makes of the one is not what stands at the other.
    """
    if not fvu <= MAX_MLP_FVU:
        raise HookpointError(
            f"jacobians.{name}: what the MLP makes of hookpoint {read!r} differs from what stands at {written!r} by {fvu:.3g} of its"
            f" variance; at most {MAX_MLP_FVU} where the one is its input and the other its output: name the input and the output of one"
            " MLP, or, where a norm follows it, the MLP's own output"
        )


def pair_of(read: Sae, written: Sae) -> str | None:
    """Whether two JSAE halves come of one training; None where not both are halves."""
    if not read.loss == written.loss == "jsae":
        return None
    return "one training" if read.provenance.get("digest") == written.provenance.get("digest") else "two trainings"
