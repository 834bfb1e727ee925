"""Pairs trained on both sides of a planted MLP: one training for both halves, the same bytes after kills, fewer strong pairs the more they cost."""

import csv
import shutil

import numpy as np
import pytest
import torch
from sae_lens.saes.sae import TrainStepInput
from sae_lens.saes.topk_sae import TopKTrainingSAE, TopKTrainingSAEConfig
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from latentry.errors import ContractError, UnsupportedError
from latentry.mlp_jacobian import Mlp, jacobian, unit_rows
from latentry.saes import jsae
from latentry.saes.base import PairInputs
from latentry.saes.evaluation import reconstruction
from latentry.saes.jsae_training import Half
from latentry.subjects.mlp import mlp_of
from planted_saes import StoredActivations, planted_activations

D, WIDTH, K = 16, 32, 3
PLANTED = planted_activations(n_contexts=96, n_positions=16, d_in=D, n_directions=24, n_active=2)
TRAINING, HELD_OUT = np.arange(80), np.arange(80, 96)
FILES = ["cfg.json", "loss.csv", "sae_weights.safetensors"]
KNOBS = {
    "jacobian_coefficient": 1.0,
    "epochs": 2,
    "batch": 60,
    "lr": 1e-2,
    "k": K,
    "shuffle_tokens": 600,
    "dead_after": 5,
    "lr_warm_up": 0.2,
    "jacobian_warm_up": 0.3,
}
METADATA = {"model_name": "planted", "context_size": 16, "prepend_bos": False, "hook_name": "of one half", "hook_side": "input"}


def planted_mlp(d_out=D):
    drawn = torch.Generator().manual_seed(1)
    up, gate, down = (torch.randn(*shape, generator=drawn) / 4 for shape in ((24, D), (24, D), (d_out, 24)))
    return Mlp(up=up, up_bias=None, gate=gate, gate_bias=None, down=down, down_bias=None, activation=torch.nn.functional.silu)


class Killed(Exception):
    """Stands for a kill: whatever was not committed is lost."""


class Both(StoredActivations):
    """What the MLP reads and writes; kills its reader at some of its calls."""

    def __init__(self, mlp, at=frozenset()):
        x = PLANTED.rows(np.arange(96))
        super().__init__(torch.cat([x, mlp(x)], dim=-1).view(96, 16, -1), d_written=mlp.down.shape[0])
        self._at, self.n_calls = at, 0

    def rows(self, contexts):
        self.n_calls += 1
        if self.n_calls in self._at:
            raise Killed
        return super().rows(contexts)


def config_of(half, **knobs):
    names = {"input": "mlp-in", "output": "mlp-out"}
    partner = names["output" if half == "input" else "input"]
    return jsae.Config(kind="jsae", half=half, hookpoint=names[half], width=WIDTH, train=KNOBS | {"partner": partner} | knobs)


def made(folder, half, both, seed=0, **knobs):
    """The half that was made in the folder."""
    mlp, config = planted_mlp(both.d_written), config_of(half, **knobs)
    folder.mkdir(parents=True, exist_ok=True)
    pair = PairInputs(activations=both, mlp=mlp, module="layers.0.mlp", digest="planted")
    how = {"seed": seed, "folder": folder, "metadata": METADATA, "checkpoint_tokens": 600}
    n_tokens = jsae.make(config, both, TRAINING, pair=pair, **how)
    assert n_tokens == 2 * 80 * 16 // 60 * 60
    return jsae.build(config, half, folder)


def bytes_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def curve(folder):
    with (folder / "loss.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def both():
    return Both(planted_mlp())


def test_both_halves_come_of_one_training_and_say_so(project, both):
    read = made(project / "in", "input", both)
    n_calls = both.n_calls
    written = made(project / "out", "output", both)
    assert both.n_calls == n_calls  # it was not trained again
    assert sorted(bytes_in(project / "out")) == FILES
    for file in ("cfg.json", "sae_weights.safetensors"):
        assert (project / "in" / file).read_bytes() == (project / "out" / file).read_bytes()
    assert read.provenance["digest"] == written.provenance["digest"]
    assert read.provenance["source"] == "trained here"
    hooks = [(sae.provenance["metadata"]["hf_hook_name"], sae.provenance["metadata"]["hook_side"]) for sae in (read, written)]
    assert hooks == [("layers.0.mlp", "input"), ("layers.0.mlp", "output")]
    assert str(project) not in (project / "in" / "cfg.json").read_text()


def test_each_half_rebuilds_what_it_reads_with_decoder_rows_of_norm_1(project, both):
    x = both.rows(np.arange(96))
    for half, own in zip(("input", "output"), x.split(D, dim=-1), strict=True):
        sae = made(project / half, half, both)
        measured = reconstruction(sae, StoredActivations(own.reshape(96, 16, D)), HELD_OUT, block=WIDTH, batch_tokens=1024)
        assert measured.fvu < 0.5
        assert 1 < measured.l0 <= K
        torch.testing.assert_close(sae.decoder.norm(dim=-1), torch.ones(WIDTH))


def test_the_curve_has_each_halfs_error_and_the_jacobian_that_both_share(project, both):
    for half in ("input", "output"):
        made(project / half, half, both, jacobian_coefficient=2.0)
    read, written = curve(project / "input"), curve(project / "output")
    assert list(read[0]) == ["step", "tokens", "loss", "mse", "sparsity", "l0", "jacobian"]
    assert [row["jacobian"] for row in read] == [row["jacobian"] for row in written]
    assert [row["mse"] for row in read] != [row["mse"] for row in written]
    for rows in (read, written):
        row = rows[-1]
        assert float(row["mse"]) < 0.7 * float(rows[0]["mse"])
        assert float(row["loss"]) == pytest.approx(float(row["mse"]) + float(row["sparsity"]), rel=1e-4)
        assert float(row["sparsity"]) >= 1.99 * float(row["jacobian"])


def mean_jacobian(read, written, both):
    x = both.rows(HELD_OUT)
    chosen = [largest(sae, rows) for sae, rows in ((read, x[:, :D]), (written, x[:, D:]))]
    return jacobian(planted_mlp(), x[:, :D], *chosen, *halves_rows(read, written)).abs().mean().item()


def halves_rows(read, written):
    return unit_rows(read.decoder, read.encoder)[0], unit_rows(written.decoder, written.encoder)[1]


def largest(sae, rows):
    return sae.encode_block(rows, slice(0, WIDTH)).topk(K, dim=-1).indices


def test_a_dearer_jacobian_is_a_smaller_one_and_is_the_one_that_the_files_have(project, both):
    found = {}
    for coefficient in (0.0, 30.0):
        pair = [made(project / f"{half}-{coefficient}", half, both, jacobian_coefficient=coefficient) for half in ("input", "output")]
        found[coefficient] = mean_jacobian(*pair, both)
        # training reads it in the scaled activations' units: the files' own times the ratio of the scales
        norms = [rows.norm(dim=-1).mean() for rows in both.rows(TRAINING).split(D, dim=-1)]
        trained = float(curve(project / f"input-{coefficient}")[-1]["jacobian"])
        assert trained == pytest.approx(found[coefficient] * float(norms[0] / norms[1]), rel=0.15)  # other tokens, and one batch
    assert found[30.0] < 0.6 * found[0.0]


def test_a_training_killed_again_and_again_or_lost_ends_with_the_same_bytes(project, both):
    made(project / "plain", "input", both)
    shutil.rmtree(project / ".cache" / "pairs")
    killing = Both(planted_mlp(), at=frozenset({2, 5, 8}))
    for _ in range(3):
        with pytest.raises(Killed):
            made(project / "killed", "input", killing)
    made(project / "killed", "input", killing)
    assert bytes_in(project / "plain") == bytes_in(project / "killed")
    assert [path.suffix for path in sorted((project / ".cache" / "pairs").iterdir())] == ["", ".lock"]


@pytest.mark.slow
def test_another_seed_or_coefficient_is_another_pair(project, both):
    saes = [made(project / f"{number}", "input", both, seed, **knobs) for number, (seed, knobs) in enumerate(OTHERS)]
    assert len({sae.provenance["digest"] for sae in saes}) == len(OTHERS)


OTHERS = ((0, {}), (1, {}), (0, {"jacobian_coefficient": 2.0}))


def test_an_mlp_that_writes_vectors_of_another_length_is_refused(project):
    with pytest.raises(UnsupportedError, match=r"layers\.0\.mlp: reads vectors of length 16 and writes vectors of 8; .*one d_in"):
        made(project / "in", "input", Both(planted_mlp(d_out=8)))


def test_a_pair_without_the_other_hookpoints_activations_is_a_fault_of_ours(project, both):
    with pytest.raises(ContractError, match=r"activations of both hookpoints"):
        jsae.make(config_of("input"), both, TRAINING, seed=0, folder=project, metadata=METADATA, checkpoint_tokens=600)


def test_a_half_makes_of_a_batch_what_sae_lens_makes_of_it_with_the_same_gradients():
    settings = TopKTrainingSAEConfig(d_in=D, d_sae=WIDTH, k=K, decoder_init_norm=0.1)
    plain, half = TopKTrainingSAE(settings), Half(settings)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)) / 10)
    half.load_state_dict(plain.state_dict())
    dead = torch.arange(WIDTH) % 3 == 0
    step = {"dead_neuron_mask": dead, "coefficients": {}, "n_training_steps": 0, "is_logging_step": False}
    found = [sae.training_forward_pass(TrainStepInput(sae_in=PLANTED.rows(np.arange(4)), **step)) for sae in (plain, half)]
    for output in found:
        output.loss.backward()
    assert found[0].losses["auxiliary_reconstruction_loss"] > 0
    torch.testing.assert_close(found[0].loss, found[1].loss)
    torch.testing.assert_close(found[0].sae_out, found[1].sae_out)
    torch.testing.assert_close(found[0].feature_acts, found[1].feature_acts)
    for one, other in zip(plain.parameters(), half.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_pair_trains_on_the_mlp_of_a_model_of_gpt_neoxs_shape_which_has_no_gate(project):
    torch.manual_seed(0)
    config = GPTNeoXConfig(hidden_size=D, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, vocab_size=32)
    mlp = mlp_of(GPTNeoXForCausalLM(config).eval(), "gpt_neox.layers.0.mlp")
    assert mlp.gate is None
    means = []
    for coefficient in (0.0, 30.0):
        pair = PairInputs(activations=Both(mlp), mlp=mlp, module="gpt_neox.layers.0.mlp", digest="neox")
        how = {"seed": 0, "folder": project, "metadata": METADATA, "checkpoint_tokens": 600}
        jsae.make(config_of("output", jacobian_coefficient=coefficient), pair.activations, TRAINING, pair=pair, **how)
        means += [float(curve(project)[-1]["jacobian"])]
    assert means[1] < 0.6 * means[0]
