"""Reading stored activations, against the array they were cut from."""

import numpy as np
import pytest
import torch

from latentry.activations.activation_store import ActivationStore
from latentry.errors import ContractError
from planted_folders import activation_folder, token_folder

pytestmark = pytest.mark.usefixtures("project")
X = torch.randn(10, 6, 3, generator=torch.Generator().manual_seed(0))
KEPT = np.random.default_rng(0).random((10, 6)) < 0.6
KEPT[4] = False


@pytest.fixture(params=[1, 3, 5, 10, 64])
def store(request, tmp_path) -> ActivationStore:
    return ActivationStore(activation_folder(tmp_path / "out", X, KEPT, shard_contexts=request.param))


def brute_force(contexts) -> torch.Tensor:
    return torch.stack([X[c, p] for c in contexts for p in range(6) if KEPT[c, p]] or [torch.empty(0)])


def test_it_knows_its_sizes(store):
    assert (store.n_contexts, store.context, store.d_in) == (10, 6, 3)
    assert np.array_equal(store.kept, KEPT)


@pytest.mark.parametrize("contexts", [[0], [9, 0, 3], [4, 5], range(10), np.array([7, 2]), [1, 1]])
def test_rows_are_the_kept_positions_in_the_order_asked_for(store, contexts):
    assert torch.equal(store.rows(contexts), brute_force(contexts))


@pytest.mark.parametrize("contexts", [[], [4]])
def test_contexts_without_a_kept_position_give_no_rows(store, contexts):
    assert store.rows(contexts).shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_stored_type_comes_back(tmp_path, dtype):
    store = ActivationStore(activation_folder(tmp_path / "out", X.to(dtype), KEPT, shard_contexts=4))
    assert torch.equal(store.rows(range(10)), X.to(dtype)[torch.from_numpy(KEPT)])
    assert store.rows([]).dtype is dtype


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(ContractError, match=r"holds contract 'tokens' .* rerun `dvc repro activations`"):
        ActivationStore(token_folder(tmp_path / "tokens", np.zeros((2, 2))))
