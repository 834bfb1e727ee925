"""The Jacobian over the latents that are active: of some tokens, as flat pairs. Nothing is [width, width]."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentry.edges.between import Between
from latentry.edges.pairs import ActivePairs
from latentry.errors import NumericsError
from latentry.mlp_jacobian import jacobian
from latentry.saes.base import Firings


@torch.inference_mode()
def active_pairs(between: Between, rows: Tensor, block: int) -> ActivePairs:
    """The pairs at each of some rows, which hold what the MLP reads and after it what it writes; the SAEs encode in such blocks.

    Raises:
        NumericsError: a number is NaN or infinite.
    """
    x, written = rows[:, : between.d_in], rows[:, between.d_in :]
    inputs, in_mask = latents_by_row(between.input.firings(x, block), len(rows))
    outputs, out_mask = latents_by_row(between.output.firings(written, block), len(rows))
    device = between.directions.device
    found = jacobian(between.mlp, x.to(device=device, dtype=torch.float32), inputs, outputs, between.directions, between.reads)
    if not bool(found.isfinite().all()):
        raise NumericsError(
            f"the Jacobian between SAEs {between.input.name!r} and {between.output.name!r} has NaN or infinity; check their weights and"
            " `subject.dtype`"
        )
    token, place_out, place_in = (out_mask[:, :, None] & in_mask[:, None, :]).nonzero(as_tuple=True)
    return ActivePairs(
        token=token.cpu().numpy(),
        out=outputs[token, place_out].cpu().numpy(),
        input=inputs[token, place_in].cpu().numpy(),
        value=found[token, place_out, place_in].cpu().numpy(),
    )


def latents_by_row(firings: Firings, n_rows: int) -> tuple[Int[Tensor, "token place"], Bool[Tensor, "token place"]]:
    """The latents that fire at each row, and which places hold one; the others hold latent 0."""
    counts = firings.token.bincount(minlength=n_rows)
    starts = counts.cumsum(0) - counts
    place = torch.arange(len(firings.token), device=firings.token.device) - starts[firings.token]
    latents = firings.latent.new_zeros((n_rows, int(counts.max()) if n_rows else 0))
    latents[firings.token, place] = firings.latent
    return latents, torch.arange(latents.shape[1], device=latents.device) < counts.unsqueeze(-1)
