"""The Jacobian of active latents against autograd and finite differences, and its loss against what autograd makes of it."""

import pytest
import torch
from transformers.activations import ACT2FN

from latentry import mlp_jacobian
from latentry.mlp_jacobian import Mlp, derivative, jacobian, jacobian_loss, mean_absolute, unit_rows

TOKENS, D_IN, D_MLP, D_OUT, WIDTH_IN, WIDTH_OUT, K_IN, K_OUT = 7, 6, 10, 5, 20, 18, 4, 3
ACTIVATIONS = (
    "gelu",
    "gelu_new",
    "gelu_pytorch_tanh",
    "gelu_fast",
    "quick_gelu",
    "relu",
    "relu2",
    "silu",
    "mish",
    "sigmoid",
    "tanh",
    "linear",
)
"""Every activation function of an MLP that transformers names, but for aliases of these and those of other arguments."""


def numbers(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def planted_mlp(activation="silu", *, gated=True):
    gate = {"gate": numbers(D_MLP, D_IN, seed=3), "gate_bias": numbers(D_MLP, seed=4)} if gated else {"gate": None, "gate_bias": None}
    return Mlp(
        up=numbers(D_MLP, D_IN, seed=1),
        up_bias=numbers(D_MLP, seed=2),
        **gate,
        down=numbers(D_OUT, D_MLP, seed=5),
        down_bias=numbers(D_OUT, seed=6),
        activation=ACT2FN[activation],
    )


X = numbers(TOKENS, D_IN, seed=7)
DECODER, ENCODER = numbers(WIDTH_IN, D_IN, seed=8), numbers(WIDTH_OUT, D_OUT, seed=9)
_DRAWN = torch.Generator().manual_seed(10)
INPUTS = torch.stack([torch.randperm(WIDTH_IN, generator=_DRAWN)[:K_IN] for _ in range(TOKENS)])
OUTPUTS = torch.stack([torch.randperm(WIDTH_OUT, generator=_DRAWN)[:K_OUT] for _ in range(TOKENS)])


def encoded(mlp, token, strengths):
    """The output latents' pre-activations, which their activations follow where they fire, when the active input latents are stronger
    by so much: decoded onto the true x, through the MLP, and encoded."""
    x = X[token] + strengths @ DECODER[INPUTS[token]]
    return mlp(x.unsqueeze(0))[0] @ ENCODER[OUTPUTS[token]].T


@pytest.mark.parametrize("gated", [True, False], ids=["gated", "plain"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_it_is_what_autograd_makes_of_decoder_mlp_and_encoder(activation, gated):
    mlp = planted_mlp(activation, gated=gated)
    found = jacobian(mlp, X, INPUTS, OUTPUTS, DECODER, ENCODER)
    still = torch.zeros(K_IN, dtype=torch.float64)
    wanted = [torch.autograd.functional.jacobian(lambda s, token=token: encoded(mlp, token, s), still) for token in range(TOKENS)]
    torch.testing.assert_close(found, torch.stack(wanted), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("gated", [True, False], ids=["gated", "plain"])
def test_it_is_what_finite_differences_show_with_the_active_latents_held(gated):
    mlp, step = planted_mlp(gated=gated), 1e-6
    found = jacobian(mlp, X, INPUTS, OUTPUTS, DECODER, ENCODER)
    for token in range(TOKENS):
        for place, nudge in enumerate(step * torch.eye(K_IN, dtype=torch.float64)):
            wanted = (encoded(mlp, token, nudge) - encoded(mlp, token, -nudge)) / (2 * step)
            torch.testing.assert_close(found[token, :, place], wanted, rtol=1e-5, atol=1e-5)  # of the third derivative, and rounding / step


def test_blocks_and_inference_mode_change_nothing(monkeypatch):
    whole = jacobian(planted_mlp(), X, INPUTS, OUTPUTS, DECODER, ENCODER)
    monkeypatch.setattr(mlp_jacobian, "LATENTS", 9)
    monkeypatch.setattr(mlp_jacobian, "_CACHED", 2 * K_IN * D_MLP)
    with torch.inference_mode():
        in_blocks = jacobian(planted_mlp(), X, INPUTS, OUTPUTS, DECODER, ENCODER)
    torch.testing.assert_close(in_blocks, whole, rtol=1e-12, atol=1e-12)


def test_it_is_the_same_of_saes_whose_latents_are_measured_in_other_units():
    encoders, stretched = numbers(WIDTH_IN, D_IN, seed=11), numbers(WIDTH_IN, seed=12).abs() + 0.1
    rows, reads = unit_rows(DECODER, encoders)
    torch.testing.assert_close(rows.norm(dim=-1), torch.ones(WIDTH_IN, dtype=torch.float64))
    others = unit_rows(DECODER * stretched.unsqueeze(-1), encoders / stretched.unsqueeze(-1))
    torch.testing.assert_close(others, (rows, reads))
    # a latent's activation times its decoder row is what it was: the reconstruction does not change
    x = numbers(D_IN, seed=13)
    torch.testing.assert_close((reads @ x).unsqueeze(-1) * rows, (encoders @ x).unsqueeze(-1) * DECODER)


def test_a_decoder_row_of_zeros_stays():
    rows, reads = unit_rows(torch.zeros(1, 3), torch.ones(1, 3))
    assert (rows == 0).all()
    assert (reads == 1).all()


def some_silent():
    """Token 0 has one active input less, token 1 no active output at all."""
    active_inputs, active_outputs = torch.ones(TOKENS, K_IN, dtype=torch.bool), torch.ones(TOKENS, K_OUT, dtype=torch.bool)
    active_inputs[0, 2] = False
    active_outputs[1] = False
    return active_inputs, active_outputs


def test_the_mean_is_over_the_active_pairs_of_a_token_and_then_over_the_tokens_that_have_one():
    found = jacobian(planted_mlp(), X, INPUTS, OUTPUTS, DECODER, ENCODER).abs()
    means = [found[0][:, [0, 1, 3]].mean(), *(found[token].mean() for token in range(2, TOKENS))]
    measured = mean_absolute(found, *some_silent())
    torch.testing.assert_close(measured, torch.stack(means).mean())
    nothing = torch.zeros(TOKENS, K_IN, dtype=torch.bool)
    assert mean_absolute(found, nothing, torch.ones(TOKENS, K_OUT, dtype=torch.bool)) == 0


@pytest.mark.parametrize("gated", [True, False], ids=["gated", "plain"])
@pytest.mark.parametrize("latents", [4096, 9], ids=["whole", "blocks"])
def test_the_loss_and_its_gradients_are_those_of_autograd(monkeypatch, gated, latents):
    monkeypatch.setattr(mlp_jacobian, "LATENTS", latents)
    monkeypatch.setattr(mlp_jacobian, "_CACHED", latents * D_MLP)
    mlp, active = planted_mlp(gated=gated), some_silent()

    def by_autograd(decoder, encoder):
        up_slopes, gate_slopes = mlp.slopes(X)
        added = up_slopes.unsqueeze(1) * (decoder[INPUTS] @ mlp.up.T)
        if mlp.gate is not None:
            added = added + gate_slopes.unsqueeze(1) * (decoder[INPUTS] @ mlp.gate.T)
        return mean_absolute((encoder[OUTPUTS] @ mlp.down) @ added.mT, *active)

    results = []
    for loss_of in (by_autograd, lambda decoder, encoder: jacobian_loss(mlp, X, INPUTS, OUTPUTS, *active, decoder, encoder)):
        leaves = [DECODER.clone().requires_grad_(), ENCODER.clone().requires_grad_()]
        loss = loss_of(*leaves)
        (3 * loss).backward()
        results.append([loss.detach(), *(leaf.grad for leaf in leaves)])
    torch.testing.assert_close(results[0], results[1], rtol=1e-10, atol=1e-12)
    assert results[0][0] > 0


def test_the_derivative_is_exact_where_it_is_known_by_hand():
    at = torch.tensor([-2.0, -0.5, 0.5, 3.0], dtype=torch.float64)
    sigmoid, density = at.sigmoid(), torch.exp(-at.square() / 2) / (2 * torch.pi) ** 0.5
    below = (1 + torch.erf(at / 2**0.5)) / 2
    torch.testing.assert_close(derivative(ACT2FN["silu"], at), sigmoid * (1 + at * (1 - sigmoid)))
    torch.testing.assert_close(derivative(ACT2FN["gelu"], at), below + at * density)
    torch.testing.assert_close(derivative(ACT2FN["relu"], at), (at > 0).double())
