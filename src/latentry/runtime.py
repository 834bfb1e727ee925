"""What every stage's process does the same way: device, threads, logging, and how an error becomes an exit code."""

import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from safetensors import SafetensorError

from latentry.errors import LatentryError, MemoryShortError, ParamsError
from latentry.safe_text import presentable

if TYPE_CHECKING:
    import torch


def run_stage(main: Callable[[], object]) -> NoReturn:
    """Run a stage's command; our own errors, and those of disks, end with their message and exit code, all others with a traceback.

    What is said and logged holds no key of the environment, and nothing that a terminal obeys.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TQDM_MININTERVAL", "1" if sys.stderr.isatty() else "30")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    logging.basicConfig(level=logging.WARNING, handlers=[_harmless_handler()])
    logging.getLogger("latentry").setLevel(logging.INFO)
    warnings.filterwarnings("ignore", category=FutureWarning)
    try:
        main()
    except LatentryError as error:
        sys.stderr.write(presentable(f"error: {error}\n"))
        raise SystemExit(error.exit_code) from None
    except (OSError, SafetensorError) as error:  # a full disk, a file that cannot be read or written
        sys.stderr.write(presentable(f"error: {error}; what was committed before is kept: mend that and run again\n"))
        raise SystemExit(1) from None
    except Exception:  # a fault of ours: whole, but for keys
        sys.stderr.write(presentable(traceback.format_exc()))
        raise SystemExit(1) from None
    raise SystemExit(0)


def _harmless_handler() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_HarmlessFormatter("%(message)s"))
    return handler


class _HarmlessFormatter(logging.Formatter):
    """A record as it may be shown, its traceback included."""

    def format(self, record: logging.LogRecord) -> str:
        """See the class."""
        return presentable(super().format(record))


def use_threads(threads: int | None) -> None:
    """Fix torch's CPU threads; None takes the machine's cores."""
    import torch

    torch.set_num_threads(threads or os.cpu_count() or 1)


def device_of(wanted: str) -> "torch.device":
    """`auto` is the first accelerator there is, else the CPU.

    Raises:
        ParamsError: it is no device of this machine.
    """
    import torch

    try:
        if wanted == "auto":
            found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
            return found or torch.device("cpu")
        device = torch.device(wanted)
        torch.empty(0, device=device)
        if device.type == "meta":
            raise RuntimeError("it holds no numbers")
    except (RuntimeError, AssertionError) as error:  # AssertionError: torch was built without that kind of device
        reason = str(error).splitlines()[0]
        raise ParamsError("params.yaml", [f"run.device: {wanted!r} is no device ({reason}); auto, cpu, cuda or cuda:1"]) from error
    return device


@contextmanager
def memory_for(*knobs: str) -> Iterator[None]:
    """Say which parameters to lower, by their paths in `params.yaml`, when the block finds too little memory.

    Raises:
        MemoryShortError: an allocation of Python, numpy or torch failed, on the CPU or an accelerator.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_allocation(error):
            raise
        asked = f" ({str(error).splitlines()[0]})" if str(error) else ""
        raise MemoryShortError(f"out of memory{asked}; lower {' or '.join(f'`{knob}`' for knob in knobs)} in params.yaml") from error


def _is_allocation(error: Exception) -> bool:
    """torch has no class of its own for failed allocations on the CPU, and one for accelerators that is a RuntimeError."""
    texts = ("can't allocate memory", "out of memory", "bad_alloc")
    return isinstance(error, MemoryError) or any(text in str(error) for text in texts)
