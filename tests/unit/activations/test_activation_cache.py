"""The subject's activations as they are kept: what is left out, what is refused, and what a second run makes again."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from latentry.activations.cache import cache_activations, kept_positions, norms_in, width_in
from latentry.contracts import ACTIVATIONS
from latentry.corpora.token_set import TokenSet
from latentry.errors import NumericsError
from latentry.store import Work
from latentry.subjects.causal_lm import Hookpoint, Subject
from planted_folders import token_folder

pytestmark = pytest.mark.usefixtures("project")
D_IN = 4
TOKENS = np.random.default_rng(0).integers(1, 90, size=(10, 6))


class Layer(nn.Module):
    """Applies a function of the test."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, x: Tensor) -> Tensor:
        return self._function(x)


class Counting(nn.Module):
    """A model of two layers: token t becomes t * (1, 2, 3, 4), then the layers' functions; it notes every batch that it is given."""

    def __init__(self, first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(first), Layer(second)])
        self.seen: list[int] = []

    def forward(self, input_ids: Tensor, use_cache: bool) -> Tensor:  # noqa: ARG002
        self.seen += input_ids[:, 0].tolist()
        return self.layers[1](self.layers[0](base(input_ids)))


def base(ids: Tensor) -> Tensor:
    return ids.unsqueeze(-1) * torch.arange(1.0, 1 + D_IN)


def run(
    root: Path,
    *,
    tokens: np.ndarray = TOKENS,
    first: Callable[[Tensor], Tensor] = lambda x: x + 1,
    second: Callable[[Tensor], Tensor] = lambda x: -x,
    dtype: str = "float32",
    shard_contexts: int = 4,
    batch_contexts: int = 3,
) -> tuple[dict[str, Path], Counting]:
    token_set = TokenSet(token_folder(root / "tokens", tokens))
    model = Counting(first, second)
    points = [Hookpoint(name=f"at-{number}", module=f"layers.{number}", side="output") for number in (0, 1)]
    folders = {point.name: root / point.name for point in points}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    making = {name: Work(folder, folder, ACTIVATIONS) for name, folder in folders.items()}
    subject = Subject(model, points, torch.device("cpu"))
    cache_activations(subject, token_set, making, dtype=dtype, shard_contexts=shard_contexts, batch_contexts=batch_contexts)
    return folders, model


def stored(folder: Path) -> Tensor:
    return torch.cat([load_file(path)["activations"] for path in sorted(folder.glob("shard-*.safetensors"))])


def stamps(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.glob("shard-*")}


@pytest.mark.parametrize(("shard_contexts", "batch_contexts"), [(4, 3), (10, 1), (1, 16), (7, 2)])
def test_every_position_is_kept_in_order_whatever_the_shards_and_batches(tmp_path, shard_contexts, batch_contexts):
    folders, model = run(tmp_path, shard_contexts=shard_contexts, batch_contexts=batch_contexts)
    x = base(torch.from_numpy(TOKENS)).flatten(0, 1) + 1
    assert torch.equal(stored(folders["at-0"]), x)
    assert torch.equal(stored(folders["at-1"]), -x)
    assert len(list(folders["at-0"].glob("shard-*"))) == -(-10 // shard_contexts)
    assert np.allclose(norms_in(folders["at-1"], TOKENS.shape).reshape(-1), np.linalg.norm(x.numpy(), axis=1))
    assert width_in(folders["at-0"]) == D_IN
    assert model.seen == TOKENS[:, 0].tolist()


def test_a_second_run_makes_only_the_shard_that_is_missing(tmp_path):
    folders, _ = run(tmp_path)
    before, whole = stamps(folders["at-0"]), stored(folders["at-0"])
    (folders["at-0"] / "shard-00001.safetensors").unlink()
    _, model = run(tmp_path)
    assert model.seen == TOKENS[4:8, 0].tolist()
    assert torch.equal(stored(folders["at-0"]), whole)
    after = stamps(folders["at-0"])
    assert {name for name in before if after[name] == before[name]} >= {"shard-00000.safetensors", "shard-00002.safetensors"}


def test_a_complete_cache_runs_the_subject_over_nothing(tmp_path):
    run(tmp_path)
    assert run(tmp_path)[1].seen == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stops_and_names_its_contexts(tmp_path, bad):
    tokens = TOKENS.copy()
    tokens[[5, 9], 2] = 99
    with pytest.raises(NumericsError, match=r"activations at at-0: 1 contexts hold NaN or infinity, first \[5\]"):
        run(tmp_path, tokens=tokens, first=lambda x: torch.where(x[..., :1] == 99, bad, x))
    assert sorted(path.name for path in (tmp_path / "at-0").iterdir()) == ["shard-00000.safetensors"]


def test_several_contexts_of_one_batch_are_all_named(tmp_path):
    tokens = TOKENS.copy()
    tokens[[5, 9], 2] = 99
    with pytest.raises(NumericsError, match=r"2 contexts hold NaN or infinity, first \[5, 9\]"):
        run(tmp_path, tokens=tokens, first=lambda x: torch.where(x[..., :1] == 99, torch.nan, x), batch_contexts=16, shard_contexts=16)


def test_what_does_not_fit_float16_stops_with_its_size_and_what_to_set(tmp_path):
    with pytest.raises(NumericsError, match=r"at-1: 7\.\d+e\+04 does not fit float16; set `activations\.dtype` to bfloat16 or float32"):
        run(tmp_path, tokens=np.full((2, 6), 90), first=lambda x: x, second=lambda x: x * 200, dtype="float16")
    assert list((tmp_path / "at-1").iterdir()) == []


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_what_float16_cannot_hold_the_other_types_can(tmp_path, dtype):
    folders, _ = run(tmp_path, second=lambda x: x * 1e6, dtype=dtype)
    assert stored(folders["at-1"]).dtype is getattr(torch, dtype)
    wanted = (base(torch.from_numpy(TOKENS)).flatten(0, 1) + 1) * 1e6
    # bfloat16 has 8 bits of precision.
    assert torch.allclose(stored(folders["at-1"]).float(), wanted, rtol=2**-8)


def test_norms_are_of_the_activations_before_they_are_rounded_to_the_stored_type(tmp_path):
    folders, _ = run(tmp_path, dtype="bfloat16")
    x = base(torch.from_numpy(TOKENS)) + 1
    assert np.allclose(norms_in(folders["at-0"], TOKENS.shape), x.norm(dim=-1).numpy(), rtol=1e-6)


def test_attention_sinks_are_left_out_at_every_hookpoint_when_they_are_one_at_any():
    special = np.zeros((20, 8), dtype=bool)
    special[:, 3] = True
    norms = {"a": np.full((20, 8), 2.0, dtype=np.float32), "b": np.full((20, 8), 5.0, dtype=np.float32)}
    norms["a"][2, 0], norms["b"][7, 6] = 20.1, 50.1
    norms["a"][1, 0], norms["b"][8, 6] = 20.0, 50.0
    kept, medians = kept_positions(norms, special, 10.0)
    left_out = {(int(row), int(place)) for row, place in np.argwhere(~kept & ~special)}
    assert left_out == {(2, 0), (7, 6)}
    assert medians == {"a": 2.0, "b": 5.0}
    assert not kept[special].any()


def test_the_first_position_is_kept_unless_its_norm_is_a_sinks():
    kept, _ = kept_positions({"a": np.ones((4, 3), dtype=np.float32)}, np.zeros((4, 3), dtype=bool), 10.0)
    assert kept.all()


def test_special_tokens_of_huge_norm_do_not_move_the_median():
    special = np.zeros((10, 4), dtype=bool)
    special[:, :3] = True
    norm = np.full((10, 4), 1e4, dtype=np.float32)
    norm[:, 3] = 1.0
    norm[0, 3] = 11.0
    kept, medians = kept_positions({"a": norm}, special, 10.0)
    assert medians == {"a": 1.0}
    assert kept.sum() == 9


def test_the_median_is_that_of_the_first_100_000_tokens_that_are_not_special():
    norm = np.ones(250_000, dtype=np.float32)
    norm[100_001:] = 100.0
    special = np.zeros((250, 1000), dtype=bool)
    special[0, 0] = True
    kept, medians = kept_positions({"a": norm.reshape(250, 1000)}, special, 10.0)
    assert medians == {"a": 1.0}
    assert kept.sum() == 100_000
