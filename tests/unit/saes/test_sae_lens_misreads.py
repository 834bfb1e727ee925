"""Why sparsify's files are not left to sae-lens's converter: it fails on them or computes something else, where ours computes what sparsify does."""

import pytest
import torch

from native_saes import ALL, WIDTH, dense_in_file_order

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("sparsify") and not name.endswith("bfloat16")])
def test_sae_lens_reads_it_wrongly_and_we_do_not(name):
    from sae_lens import SAE
    from sae_lens.loading.pretrained_sae_loaders import sparsify_disk_loader

    specimen = ALL[name]
    x, native, ours = specimen.x, specimen.native, specimen.built()
    try:
        theirs = SAE.load_from_disk(specimen.folder, converter=sparsify_disk_loader, dtype="float32")
        with torch.no_grad():
            is_right = torch.allclose(theirs(x), native["reconstruction"], atol=1e-3)
    except (RuntimeError, ValueError):
        is_right = False
    assert not is_right, "sae-lens reads sparsify's files now: this converter may be used, see OWN_KINDS in saes/sae_lens_registry.py"
    found = dense_in_file_order(ours, ours.firings(x, WIDTH), len(x))
    torch.testing.assert_close(found, native["latents"], rtol=1e-5, atol=1e-5)
