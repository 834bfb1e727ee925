"""Activations from the running subject, against those that the pass stored."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from latentry.activations.activation_store import ActivationStore
from latentry.activations.opened import open_activations
from latentry.activations.positions import kept_in
from latentry.activations.stream import ActivationStream
from latentry.errors import ContractError
from latentry.subjects.causal_lm import Subject
from latentry.subjects.hooks import Hookpoint
from planted_folders import token_folder

CPU = torch.device("cpu")


def stream_of(folder, token_set, model, batch_contexts: int, dtype: str = "float32") -> ActivationStream:
    found = open_activations(folder, tokens=token_set.folder, model=model, dtype=dtype, device=CPU, batch_contexts=batch_contexts)
    assert isinstance(found, ActivationStream)
    return found


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype and torch.equal(left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("subject_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("batch_contexts", "shard_contexts"), [(2, 4), (3, 3), (3, 9), (16, 16)])
def test_whole_batches_are_bit_for_bit_what_the_pass_stored(
    made, token_set, small_llama, dtype, subject_dtype, batch_contexts, shard_contexts
):
    sizes = {"dtype": dtype, "subject_dtype": subject_dtype, "batch_contexts": batch_contexts, "shard_contexts": shard_contexts}
    stored = made("stored", **sizes, max_norm_multiple=1.1)
    recipe = made("recipe", **sizes, max_norm_multiple=1.1, store=False)
    for point in stored:
        store = ActivationStore(stored[point])
        stream = stream_of(recipe[point], token_set, small_llama, batch_contexts, subject_dtype)
        assert np.array_equal(stream.kept, store.kept)
        # Segments of one, two and all batches, whatever the shards were.
        for n_batches in (1, 2, 11):
            for first in range(0, 11, n_batches * batch_contexts):
                contexts = range(first, min(first + n_batches * batch_contexts, 11))
                assert same_bits(stream.rows(contexts), store.rows(contexts))


@pytest.mark.parametrize("contexts", [[10, 0, 3, 3, 7], [5], np.array([6, 5, 4]), []])
def test_contexts_in_any_order_are_those_of_the_store_up_to_rounding(made, token_set, small_llama, contexts):
    store = ActivationStore(made("stored")["resid-2"])
    stream = stream_of(made("recipe", store=False)["resid-2"], token_set, small_llama, 2)
    found = stream.rows(contexts)
    assert found.shape == (int(store.kept[np.asarray(contexts, dtype=int)].sum()), 16)
    # float32, sums of at most 32 numbers in another order
    assert torch.allclose(found, store.rows(contexts), rtol=1e-5, atol=1e-5)


def test_the_subject_runs_to_the_streams_own_hookpoint_and_no_further(made, token_set, small_llama):
    recipe = made("recipe", store=False)["resid-0"]
    model = AutoModelForCausalLM.from_pretrained(small_llama, dtype=torch.float32, local_files_only=True)

    def must_not_run(*_: object) -> None:
        raise AssertionError("a layer after the hookpoint was run")

    model.model.layers[1].register_forward_pre_hook(must_not_run)
    point = Hookpoint(name="resid-0", module="model.layers.0", side="output")
    assert len(ActivationStream(recipe, Subject(model, [point], CPU), token_set, 4).rows(range(11))) == (~token_set.special).sum()


def test_dropped_contexts_give_no_rows_and_others_the_stored_ones(made, token_set, damaged):
    bad = int(token_set.tokens[3, 5])
    model = damaged(lambda weights: weights["model.embed_tokens.weight"][bad].fill_(torch.nan))
    sizes = {"model": model, "non_finite": "drop", "dtype": "bfloat16"}
    store = ActivationStore(made("stored", **sizes)["resid-2"])
    stream = stream_of(made("recipe", **sizes, store=False)["resid-2"], token_set, model, 2)
    assert stream.n_dropped_contexts == store.n_dropped_contexts > 0
    assert same_bits(stream.rows(range(11)), store.rows(range(11)))
    assert len(stream.rows([3])) == 0


def test_where_activations_are_stored_no_subject_is_loaded(made, tmp_path):
    folder = made("stored")["resid-0"]
    nowhere = tmp_path / "nowhere"
    found = open_activations(folder, tokens=nowhere, model=nowhere, dtype="float32", device=CPU, batch_contexts=1)
    assert isinstance(found, ActivationStore)
    assert (found.hookpoint, found.module, found.side, found.subject) == ("resid-0", "model.layers.0", "output", "small")


def test_what_counts_is_read_alone_and_from_nothing_else(made, project):
    folder = made("recipe", store=False)["resid-0"]
    assert kept_in(folder).dtype == bool
    other = token_folder(project / "other", np.zeros((2, 2)))
    for read in (
        kept_in,
        ActivationStore,
        lambda path: open_activations(path, tokens=path, model=path, dtype="", device=CPU, batch_contexts=1),
    ):
        with pytest.raises(ContractError, match=r"holds contract 'tokens' .* rerun `dvc repro activations`"):
            read(other)


def test_a_pair_stored_or_running_has_the_rows_of_both_hookpoints_side_by_side(made, token_set, small_llama):
    stored, recipe = made("stored", max_norm_multiple=1.1), made("recipe", max_norm_multiple=1.1, store=False)
    read, written = ActivationStore(stored["resid-0"]), ActivationStore(stored["resid-2"])
    expected = torch.cat([read.rows(range(11)), written.rows(range(11))], dim=-1)
    common = {"tokens": token_set.folder, "model": small_llama, "dtype": "float32", "device": CPU, "batch_contexts": 2}
    for folders in (stored, recipe):
        pair = open_activations(folders["resid-0"], **common, written=folders["resid-2"])
        assert (pair.hookpoint, pair.d_in, pair.d_written) == ("resid-0", 16, 16)
        assert same_bits(pair.rows(range(11)), expected)


def test_a_pair_of_two_runs_is_refused(made, token_set, small_llama):
    read, other = made("stored")["resid-0"], made("other", max_norm_multiple=1.1)["resid-2"]
    with pytest.raises(ContractError, match=r"both must be of one run: rerun `dvc repro activations`"):
        open_activations(read, tokens=token_set.folder, model=small_llama, dtype="float32", device=CPU, batch_contexts=2, written=other)
