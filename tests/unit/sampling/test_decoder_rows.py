"""The decoder that neighbours are found by: of whatever kind of SAE, in float32 whatever it is stored in."""

import shutil

import numpy as np
import pytest
import torch

from latentry.contracts import SAE
from latentry.errors import ContractError
from latentry.sampling.folders import decoder_rows
from native_saes import ALL
from planted_folders import finish


@pytest.mark.parametrize("name", ["sparsify-topk-bfloat16", "dictionary_learning-AutoEncoderTopK", "gemma_scope-1", "sae_lens-abstopk"])
def test_it_is_the_saes_own_as_float32(tmp_path, name):
    specimen = ALL[name]
    folder = finish(tmp_path / "sae", SAE, lambda making: shutil.copytree(specimen.folder, making.folder, dirs_exist_ok=True))
    rows = decoder_rows(specimen.config(), name, folder)
    assert (rows.dtype, rows.shape) == (np.float32, tuple(specimen.built().decoder.shape))
    assert torch.equal(torch.from_numpy(rows), specimen.built().decoder.float())


def test_a_sae_that_is_not_finished_is_not_read(tmp_path):
    shutil.copytree(ALL["sparsify-topk"].folder, tmp_path / "sae")
    with pytest.raises(ContractError, match="dvc repro"):
        decoder_rows(ALL["sparsify-topk"].config(), "x", tmp_path / "sae")
