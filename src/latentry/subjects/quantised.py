"""Subjects whose weights are stored quantised: by which method, and a load that leaves the numbers to its library."""

from pathlib import Path
from typing import Any

import torch

from latentry.errors import SourceError


def method_of(config: Any) -> str | None:
    """Name of the quantisation that a model's configuration states, such as `gptq`; None where it states none."""
    stated = getattr(config, "quantization_config", None)
    if stated is None:
        return None
    method = stated.get("quant_method") if isinstance(stated, dict) else getattr(stated, "quant_method", None)
    return str(getattr(method, "value", method) or "unknown")


def load_quantised(folder: Path, method: str, *, dtype: torch.dtype, device: torch.device) -> Any:
    """A quantised model, put on its device while it is read, for such models refuse to be moved or cast afterwards.

    Raises:
        SourceError: the library of its method is missing, or refuses this dtype, device or configuration.
    """
    from transformers import AutoModelForCausalLM

    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, device_map={"": device}, local_files_only=True, trust_remote_code=False
        )
    except torch.OutOfMemoryError:
        raise
    except (ImportError, ValueError, RuntimeError) as error:
        raise SourceError(
            f"subject.model: {folder} is quantised by {method!r} (`quantization_config` in its config.json), which cannot be loaded"
            f" here: {' '.join(str(error).split())[:300]}; install what that names, set `subject.dtype` to what it takes, or name the"
            " model that is not quantised"
        ) from error
    return model
