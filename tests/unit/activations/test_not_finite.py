"""Activations that cannot be used: NaN, infinity, and what does not fit the stated dtype."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from latentry.activations.cache import finish
from latentry.errors import NumericsError
from planted_subject import IDS, base, pass_over, stored


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stops_and_names_its_contexts(project, caching, bad):
    tokens = IDS.copy()
    tokens[[5, 9], 2] = 99
    with pytest.raises(NumericsError, match=r"activations at at-0: 1 of 4 contexts from context 4 on hold NaN or infinity, first \[5\]"):
        pass_over(project, caching, tokens=tokens, first=lambda x: torch.where(x[..., :1] == 99, bad, x))
    assert sorted(path.name for path in (project / "passes" / "at-0").iterdir()) == ["hookpoint.json", "shard-00000.safetensors"]


@pytest.mark.parametrize("batch_contexts", [1, 16])
def test_all_contexts_of_a_shard_that_are_not_finite_are_counted_and_the_first_five_named(project, caching, batch_contexts):
    tokens = IDS.copy()
    tokens[[0, 2, 3, 5, 8, 9], 2] = 99
    with pytest.raises(NumericsError, match=r"at at-1: 6 of 10 contexts .* first \[0, 2, 3, 5, 8\]; .*`activations\.non_finite` to drop"):
        pass_over(
            project,
            caching,
            tokens=tokens,
            second=lambda x: torch.where(x[..., :1] == 100, torch.nan, x),
            batch_contexts=batch_contexts,
            shard_contexts=16,
        )


def test_contexts_that_are_not_finite_at_one_hookpoint_are_dropped_whole_at_all(project, caching):
    tokens = IDS.copy()
    tokens[[5, 9], 2] = 99
    folders, _, job = pass_over(
        project, caching, tokens=tokens, second=lambda x: torch.where(x[..., :1] == 100, torch.inf, x), non_finite="drop"
    )
    special = tokens == tokens[0, 0]
    finish(job, [], special, 10.0)
    x = base(torch.from_numpy(tokens)) + 1
    x[[5, 9]] = 0
    for folder in folders.values():
        assert torch.equal(stored(folder).view(x.shape), x)
        kept = load_file(folder / "positions.safetensors")["kept"].bool().numpy()
        assert not kept[[5, 9]].any()
        assert np.array_equal(np.delete(kept, [5, 9], axis=0), ~np.delete(special, [5, 9], axis=0))
        assert json.loads((folder / "hookpoint.json").read_text())["n_dropped_contexts"] == 2
        assert stored(folder, "norm").view(tokens.shape).isnan().nonzero()[:, 0].unique().tolist() == [5, 9]
    assert job.making["at-0"].counts == {
        "n_positions": 60,
        "n_kept": int((~np.delete(special, [5, 9], axis=0)).sum()),
        "n_special": int(special.sum()),
        "n_attention_sinks": 0,
        "n_dropped_contexts": 2,
    }


def test_where_every_context_is_dropped_the_stage_says_that_nothing_is_left(project, caching):
    _, _, job = pass_over(project, caching, first=lambda x: x * torch.nan, non_finite="drop")
    with pytest.raises(NumericsError, match="no position is left"):
        finish(job, [], np.zeros(IDS.shape, dtype=bool), 10.0)


def test_what_does_not_fit_float16_stops_with_its_size_and_what_to_set(project, caching):
    with pytest.raises(NumericsError, match=r"at-1: 7\.2e\+04 does not fit float16; set `activations\.dtype` to bfloat16 or float32"):
        pass_over(project, caching, tokens=np.full((2, 6), 90), first=lambda x: x, second=lambda x: x * 200, dtype="float16")
    assert not list((project / "passes" / "at-1").glob("shard-*"))


@pytest.mark.parametrize("store", [True, False])
def test_the_largest_that_fits_float16_is_kept_and_the_next_is_not_also_where_nothing_is_stored(project, caching, store):
    # 65519 rounds to 65504, the largest; 65520 rounds to infinity. The norms of both are beyond the type's range.
    largest = {"tokens": np.full((2, 6), 1), "second": lambda x: torch.zeros_like(x) + 65519.0, "dtype": "float16", "store": store}
    pass_over(project, caching, **largest)
    shutil.rmtree(project / "passes")
    with pytest.raises(NumericsError, match=r"65520|6\.552e"):
        pass_over(project, caching, **largest | {"second": lambda x: torch.zeros_like(x) + 65520.0})


def test_an_overflow_in_a_context_that_is_dropped_anyway_stops_nothing(project, caching):
    tokens = IDS.copy()
    tokens[5, 2] = 99
    wild = torch.tensor([torch.nan, 1e6, 0, 0])
    folders, _, _ = pass_over(
        project, caching, tokens=tokens, second=lambda x: torch.where(x[..., :1] == 100, wild, x), non_finite="drop", dtype="float16"
    )
    assert stored(folders["at-1"]).isfinite().all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_what_float16_cannot_hold_the_other_types_can(project, caching, dtype):
    folders, _, _ = pass_over(project, caching, second=lambda x: x * 1e6, dtype=dtype)
    assert stored(folders["at-1"]).dtype is getattr(torch, dtype)
    wanted = (base(torch.from_numpy(IDS)).flatten(0, 1) + 1) * 1e6
    # bfloat16 has 8 bits of precision.
    assert torch.allclose(stored(folders["at-1"]).float(), wanted, rtol=2**-8)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_activations_whose_squares_overflow_are_finite_and_have_their_norm(project, caching, dtype):
    folders, _, _ = pass_over(project, caching, second=lambda x: x * 1e30, dtype=dtype)
    wanted = (base(torch.from_numpy(IDS)).flatten(0, 1) + 1).double().norm(dim=1) * 1e30
    assert torch.allclose(stored(folders["at-1"], "norm").double(), wanted, rtol=1e-6)
    assert stored(folders["at-1"]).isfinite().all()


def test_norms_are_of_the_activations_before_they_are_rounded_to_the_stored_type(project, caching):
    folders, _, _ = pass_over(project, caching, dtype="bfloat16")
    assert torch.allclose(stored(folders["at-0"], "norm"), (base(torch.from_numpy(IDS)) + 1).norm(dim=-1).flatten(), rtol=1e-6)


def test_a_layer_of_nan_stops_the_real_subject_where_it_is_first_seen(made, damaged):
    model = damaged(lambda weights: weights["model.layers.1.mlp.down_proj.weight"].fill_(torch.nan))
    with pytest.raises(NumericsError, match=r"activations at resid-2: 4 of 4 contexts from context 0 on hold NaN"):
        made("stopped", model=model)


def test_a_token_whose_embedding_is_nan_drops_the_contexts_that_hold_it(made, damaged, token_set):
    bad = int(token_set.tokens[3, 5])
    model = damaged(lambda weights: weights["model.embed_tokens.weight"][bad].fill_(torch.nan))
    folder = made("dropped", model=model, non_finite="drop", dtype="bfloat16")["resid-0"]
    holds = (token_set.tokens == bad).any(axis=1)
    kept = load_file(folder / "positions.safetensors")["kept"].bool().numpy()
    assert not kept[holds].any()
    assert (kept[~holds] == ~token_set.special[~holds]).all()
    assert json.loads((folder / "hookpoint.json").read_text())["n_dropped_contexts"] == holds.sum()
