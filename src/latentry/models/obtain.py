"""From a model's list of sources to one checked local folder that loads without a network.

Sources are tried in order. What was fetched counts only when its sha256 is the expected one.
"""

import logging
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from latentry.errors import SourceError
from latentry.models.base import FileName
from latentry.models.gguf_header import check_gguf
from latentry.models.untrusted import CODE, check_folder
from latentry.registry import VariantConfig, variant
from latentry.store import file_digest

_log = logging.getLogger(__name__)


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ModelSettings(BaseModel):
    """One entry of `models`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["gguf", "folder"]
    """`gguf`: one quantised file, converted once to safetensors; `folder`: files as transformers or sentence-transformers save them."""
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    """Of the weights that a GGUF file is converted to."""
    weights: FileName | None = None
    """Name of the file whose digest is checked; needed when `sha256` is given."""
    sha256: Digest | None = None
    """Expected digest of `weights`; without one, what was found is recorded and not checked."""
    sources: Annotated[tuple[dict, ...], Field(min_length=1)]
    """Where it may be had, tried in order; each entry's `kind` is a file of the room `models`."""

    @model_validator(mode="after")
    def _digest_of_something(self) -> "ModelSettings":
        if self.sha256 is not None and self.weights is None:
            raise ValueError("`sha256` is given without `weights`; name the file whose digest it is")
        return self


def obtain(name: str, settings: ModelSettings, sources: Sequence[VariantConfig], downloads: Path, into: Path) -> dict[str, str]:
    """Fill `into` with the model; returns which source it came from and the digest that was checked.

    Raises:
        SourceError: no source has it, or its digest is not the expected one; names every source tried and why.
    """
    downloads.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(name, downloads)
    reasons = []
    for config in sources:
        with TemporaryDirectory(dir=downloads, prefix=f"{name}.partial-") as scratch:
            try:
                fetched = variant("models", config.kind).build(config).fetch(downloads, Path(scratch))
                checked = _checked(fetched, settings)
                gguf = _gguf_file(fetched, settings) if settings.format == "gguf" else None
                if gguf is None:
                    _check_weights(fetched)
                    check_folder(fetched)
                else:
                    check_gguf(fetched / gguf)
            except SourceError as error:
                _log.warning("models.%s: %s", name, error)
                reasons.append(str(error))
                continue
            _log.info("models.%s: from %s", name, config.kind)
            if gguf:
                convert_gguf(fetched, gguf, settings.dtype, into)
            else:
                shutil.copytree(fetched, into, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*(f"*{end}" for end in CODE), ".cache"))
            return {"source": config.kind, "sha256": checked}
    tried = "\n".join(f"  - {reason}" for reason in reasons)
    raise SourceError(
        f"models.{name}: none of its {len(sources)} sources has it:\n{tried}\n"
        f"add to `models.{name}.sources` a folder ({{kind: folder, path: ...}}), packages, or a hub id at a revision that does"
    )


def _remove_leftovers(name: str, downloads: Path) -> None:
    """What a killed run fetched of this model; the end without a dot keeps a model `a.partial-b` apart from `a`."""
    for path in downloads.iterdir():
        if re.fullmatch(re.escape(name) + r"\.partial-[^.]+", path.name):
            shutil.rmtree(path, ignore_errors=True)


def _checked(folder: Path, settings: ModelSettings) -> str:
    if settings.weights is None:
        return "not given"
    path = folder / settings.weights
    if not path.is_file():
        raise SourceError(f"{settings.weights}: is not among what was fetched ({', '.join(sorted(p.name for p in folder.iterdir())[:20])})")
    found = file_digest(path)
    if settings.sha256 is not None and found != settings.sha256:
        raise SourceError(f"{settings.weights}: has sha256 {found}, wanted {settings.sha256}; not used")
    return found


def _gguf_file(folder: Path, settings: ModelSettings) -> str:
    if settings.weights is not None:
        return settings.weights
    found = sorted(path.name for path in folder.glob("*.gguf"))
    if len(found) != 1:
        raise SourceError(f"{folder}: holds {len(found)} .gguf files {found}; name the one wanted as `weights`")
    return found[0]


def convert_gguf(folder: Path, file: str, dtype: str, into: Path) -> None:
    """A GGUF file as a transformers folder of safetensors in `dtype`, with its tokenizer and chat template.

    transformers refuses to save a model that it loaded from GGUF, so the weights move into a fresh module.

    Raises:
        SourceError: transformers cannot read it.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    try:
        quantised = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=getattr(torch, dtype), trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file, trust_remote_code=False)
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError, OverflowError, NotImplementedError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise SourceError(f"{folder / file}: cannot be converted ({said}); use another file, or the model as safetensors") from error
    config = quantised.config
    if hasattr(config, "quantization_config"):
        delattr(config, "quantization_config")
    with torch.device("meta"):
        fresh = AutoModelForCausalLM.from_config(config)
    weights = {key: value.to(getattr(torch, dtype)) for key, value in quantised.state_dict().items()}
    fresh.load_state_dict(weights, assign=True)
    fresh.tie_weights()
    fresh.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    config.dtype = dtype
    fresh.save_pretrained(into)
    tokenizer.save_pretrained(into)


def _check_weights(folder: Path) -> None:
    if not any(folder.rglob("*.safetensors")):
        pickles = sorted(path.name for path in folder.rglob("*") if path.suffix in CODE)
        found = f"pickled weights ({', '.join(pickles[:5])}), which are never read" if pickles else "no weights"
        raise SourceError(f"{folder}: holds {found}; latentry reads safetensors")
