"""Too little memory is an error that says what to lower, for real failures of allocation and for nothing else."""

import subprocess
import sys
import textwrap

import pytest

from latentry.runtime import memory_for

SCRIPT = """
import resource, sys
import numpy as np, torch
from latentry.errors import MemoryShortError
from latentry.runtime import memory_for

torch.set_num_threads(1)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, used + 2**29))
try:
    with memory_for("run.batch_tokens", "run.block_latents"):
        {what}
except MemoryShortError as error:
    sys.exit(f"{{error.exit_code}} {{error}}")
sys.exit("no error")
"""


@pytest.mark.parametrize(
    "what",
    [
        "torch.empty(2**28)",
        "torch.ones(2**14, 4) @ torch.ones(4, 2**14)",
        "torch.ones(2**26).topk(2**26)",
        "np.ones(2**28)",
        "bytearray(2**30)",
    ],
)
def test_a_failed_allocation_names_the_parameters_to_lower(what):
    script = textwrap.dedent(SCRIPT).format(what=what)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.startswith("2 out of memory")
    assert "lower `run.batch_tokens` or `run.block_latents` in params.yaml" in done.stderr


def test_other_errors_pass_unchanged():
    for error in (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ValueError("out of memory"), KeyError("x")):
        with pytest.raises(type(error)) as caught, memory_for("run.batch_tokens"):
            raise error
        assert caught.value is error
