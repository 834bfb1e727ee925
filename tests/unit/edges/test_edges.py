"""Edges against what was planted and against the dense Jacobian by autograd; the same bytes whatever the parts, blocks and kills."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from latentry.contracts import JACOBIAN
from latentry.edges import run as running
from latentry.edges import sums as summing
from latentry.edges.active import active_pairs
from latentry.edges.between import between, check_mlp, pair_of
from latentry.edges.figures import sums_by_context
from latentry.edges.pairs import ActivePairs
from latentry.edges.run import JacobianJob, checked_fvu, chosen_contexts, join_parts, read_parts
from latentry.edges.sums import added, edges_table, merged, sums_of
from latentry.errors import ContractError, HookpointError, NumericsError, ParamsError, UnsupportedError
from latentry.store import Work
from planted_jacobian import DRIVES, beside, brute_force, driven, plain_sae, random_pair
from planted_saes import StoredActivations


def job(folder: Path, both, read: StoredActivations) -> JacobianJob:
    folder.mkdir(parents=True, exist_ok=True)
    return JacobianJob(
        making=Work(folder, folder, JACOBIAN),
        name="planted",
        between=both,
        read=read,
        contexts=np.arange(read.n_contexts),
        pairs_per_token=1.0,
        context=1,
        block=64,
    )


def made(folder: Path, both, read) -> Path:
    one = job(folder, both, read)
    read_parts(one)
    join_parts(one)
    running.drop_parts(one)
    return folder


def test_each_planted_edge_is_found_with_its_strength_and_sign_and_no_other_has_any(tmp_path):
    both, read = driven()
    rows = pq.read_table(made(tmp_path, both, read) / "edges.parquet").to_pylist()
    strong = {row["out"]: (row["in"], row["mean"]) for row in rows if row["mean_abs"] > 0}
    assert strong == DRIVES
    assert all(row["mean_abs"] == abs(row["mean"]) for row in rows)
    _, active = brute_force(both, read.rows(np.arange(4)))
    counts = active.sum(axis=0)
    assert {(row["out"], row["in"]): row["count"] for row in rows} == {pair: counts[pair] for pair in zip(*counts.nonzero(), strict=True)}


def test_edges_are_the_means_of_the_dense_jacobian_where_both_latents_are_active(tmp_path):
    both, read = random_pair()
    table = pq.read_table(made(tmp_path, both, read) / "edges.parquet")
    dense, active = brute_force(both, read.rows(np.arange(read.n_contexts)))
    counts = active.sum(axis=0)
    pairs = list(zip(*counts.nonzero(), strict=True))
    assert list(zip(table["out"].to_pylist(), table["in"].to_pylist(), strict=True)) == pairs
    assert table["count"].to_pylist() == [counts[pair] for pair in pairs]
    for name, values in (("mean", dense), ("mean_abs", np.abs(dense))):
        wanted = [(values * active).sum(axis=0)[pair] / counts[pair] for pair in pairs]
        np.testing.assert_allclose(table[name].to_numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_parts_and_blocks_of_outputs_change_no_byte(tmp_path, monkeypatch):
    both, read = random_pair()
    whole = made(tmp_path / "whole", both, read)
    monkeypatch.setattr(running, "_PART_PAIRS", 2)
    parts = made(tmp_path / "parts", both, read)
    with monkeypatch.context() as changed:
        changed.setattr(running, "_TOKEN_PAIRS", 3)
        few_tokens = made(tmp_path / "few-tokens", both, read)
    monkeypatch.setattr(running, "ROWS_PER_GROUP", 10)
    grouped = made(tmp_path / "grouped", both, read)
    monkeypatch.setattr(running, "_PART_PAIRS", 1)
    monkeypatch.setattr(summing, "_HELD", 7)
    blocks = made(tmp_path / "blocks", both, read)
    assert pq.read_table(few_tokens / "edges.parquet")["count"].equals(pq.read_table(whole / "edges.parquet")["count"])
    few, all_at_once = (sums_by_context(pq.read_table(folder / "contexts.parquet").to_pylist()) for folder in (few_tokens, whole))
    np.testing.assert_allclose(few, all_at_once, rtol=1e-4, atol=1e-6)  # the Jacobian of fewer tokens at once is rounded otherwise
    for other, same in ((parts, whole), (blocks, grouped)):
        for name in ("edges.parquet", "contexts.parquet"):
            assert (other / name).read_bytes() == (same / name).read_bytes()
        assert sorted(path.name for path in other.iterdir()) == ["contexts.parquet", "edges.parquet"]


def test_a_killed_run_goes_on_with_the_parts_it_has(tmp_path, monkeypatch):
    both, read = random_pair()
    whole = made(tmp_path / "whole", both, read)
    monkeypatch.setattr(running, "_PART_PAIRS", 1)

    class Dying(StoredActivations):
        def rows(self, contexts):
            if contexts[0] == 3:
                raise KeyboardInterrupt
            return super().rows(contexts)

    dying = Dying(read._x, d_written=read.d_written)
    with pytest.raises(KeyboardInterrupt):
        read_parts(job(tmp_path / "killed", both, dying))

    class OnlyTheRest(StoredActivations):
        def rows(self, contexts):
            assert contexts[0] >= 3, "a part that was committed is read again"
            return super().rows(contexts)

    rest = OnlyTheRest(read._x, d_written=read.d_written)
    made(tmp_path / "killed", both, rest)
    assert (tmp_path / "killed" / "edges.parquet").read_bytes() == (whole / "edges.parquet").read_bytes()


def test_sums_are_exact_in_any_order():
    rng = np.random.default_rng(0)
    value = (rng.standard_normal(20_000) * 10.0 ** rng.integers(-6, 3, 20_000)).astype(np.float32)
    out, read = rng.integers(0, 5, 20_000), rng.integers(0, 7, 20_000)

    def of(places):
        return sums_of(ActivePairs(token=places, out=out[places], input=read[places], value=value[places]), 7)

    order = rng.permutation(20_000)
    once, again = of(np.arange(20_000)), added([of(some) for some in np.array_split(order, 13)])
    for name, column in once.arrays().items():
        assert np.array_equal(column, again.arrays()[name])
    table = edges_table(once, 7)
    wanted = [
        value[(out == o) & (read == i)].astype(np.float64).mean()
        for o, i in zip(table["out"].to_pylist(), table["in"].to_pylist(), strict=True)
    ]
    np.testing.assert_allclose(table["mean"].to_numpy(), wanted, rtol=1e-6, atol=1e-9)


def test_no_part_at_all_makes_no_edge():
    assert [len(sums.key) for sums in merged([], 4, 4)] == [0]
    pairs = ActivePairs(token=np.zeros(0, np.int64), out=np.zeros(0, np.int64), input=np.zeros(0, np.int64), value=np.zeros(0, np.float32))
    assert len(added([sums_of(pairs, 4)]).key) == 0


def test_a_sum_too_large_to_be_exact_and_a_jacobian_that_is_no_number_are_told():
    one = np.zeros(1, np.int64)
    with pytest.raises(NumericsError, match="adds up to"):
        sums_of(ActivePairs(token=one, out=one, input=one, value=np.array([3e9], np.float32)), 4)
    both, read = driven()
    both.reads[0, 0] = float("nan")
    with pytest.raises(NumericsError, match="'read' and 'written' has NaN"):
        active_pairs(both, read.rows(np.arange(4)), 64)


def test_saes_that_have_no_such_jacobian_are_named():
    both, _ = driven()
    eye = torch.eye(4)
    gated = plain_sae("gated", eye, eye)
    object.__setattr__(gated, "encoder", None)
    with pytest.raises(UnsupportedError, match=r"SAE 'gated'.*not linear before its activation"):
        between(both.input, gated, both.mlp)
    long = plain_sae("long", torch.eye(5), torch.eye(5))
    with pytest.raises(ContractError, match="'long' reads activations of length d_in = 5, the MLP reads 4"):
        between(long, both.output, both.mlp)
    with pytest.raises(ContractError, match=r"'long' .* the MLP writes 4"):
        between(both.input, long, both.mlp)
    transcoder = plain_sae("transcoder", eye, eye)
    object.__setattr__(transcoder, "writes", "elsewhere")
    with pytest.raises(UnsupportedError, match="'transcoder': is a transcoder from 'transcoder' to 'elsewhere'"):
        between(transcoder, both.output, both.mlp)


def test_an_mlp_that_does_not_lie_between_the_hookpoints_is_told(tmp_path):
    both, read = random_pair()
    assert checked_fvu(job(tmp_path / "right", both, read)) < 1e-9
    other, _ = random_pair(seed=1)
    wrong = checked_fvu(job(tmp_path / "wrong", both, beside(other.mlp, read._x[..., :5])))
    with pytest.raises(HookpointError, match=r"jacobians.pair: what the MLP makes of hookpoint 'in' differs from what stands at 'out'"):
        check_mlp(wrong, "pair", "in", "out")
    with pytest.raises(HookpointError):
        check_mlp(float("nan"), "pair", "in", "out")


def test_halves_of_two_trainings_are_known():
    def half(digest: str):
        sae = plain_sae("half", torch.eye(2), torch.eye(2))
        object.__setattr__(sae, "loss", "jsae")
        object.__setattr__(sae, "provenance", {"digest": digest})
        return sae

    assert pair_of(half("a"), half("a")) == "one training"
    assert pair_of(half("a"), half("b")) == "two trainings"
    assert pair_of(half("a"), driven()[0].output) is None


def test_contexts_are_held_out_ones_until_the_budget_is_met_and_too_large_a_budget_is_told():
    held_out = np.arange(40) % 2 == 0
    kept = np.ones((40, 10), bool)
    kept[0] = False
    chosen = chosen_contexts(held_out, kept, 45, 0, "jacobians.a.tokens")
    assert len(chosen) == 5
    assert held_out[chosen].all()
    assert 0 not in chosen
    assert len(chosen_contexts(held_out, kept, None, 0, "")) == 19
    with pytest.raises(ParamsError, match=r"jacobians.a.tokens: is 191; the contexts kept from training have 190"):
        chosen_contexts(held_out, kept, 191, 0, "jacobians.a.tokens")
