"""The files of a SAE from elsewhere, read as what they are: untrusted. Every fault names the file, what was found, what is wanted, what to do.

No pickle is opened: safetensors, numpy's npz without objects, or a torch file that holds tensors only.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentry.errors import ContractError, NumericsError, SourceError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DTYPES = ("float32", "float64", "float16", "bfloat16")


def read_json(path: Path) -> dict[str, Any]:
    """An object.

    Raises:
        ContractError: it is unreadable, or something else.
    """
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ContractError(f"{path}: unreadable JSON ({error}), wanted an object; save or download the SAE again") from error
    if not isinstance(described, dict):
        raise ContractError(f"{path}: holds a {type(described).__name__}, wanted an object; save or download the SAE again")
    return described


def read_safetensors(path: Path, device: str) -> dict[str, Tensor]:
    """All tensors of a safetensors file.

    Raises:
        SourceError: it is none, or cut short.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path, device=device)
    except SafetensorError as error:
        raise SourceError(
            f"{path}: no whole safetensors file ({error}), and nothing else is read under that name; pickles are never read: convert it"
            " with the library that made it, or download it again"
        ) from error


def read_torch(path: Path, device: str) -> dict[str, Tensor]:
    """The tensors, by name, of a file written by `torch.save`, of which nothing but tensors is read.

    Raises:
        SourceError: it holds code or objects, or is cut short.
    """
    import pickle

    import torch

    try:
        held = torch.load(path, map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        raise SourceError(
            f"{path}: holds more than tensors (a pickle of code or objects), which is never read; load it with the library that made it,"
            " where you trust it, and save its `state_dict()` under the same name, or as safetensors"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise SourceError(f"{path}: no whole file of torch ({first}), wanted tensors saved by `torch.save`; download it again") from error
    if not isinstance(held, dict):
        raise ContractError(f"{path}: holds a {type(held).__name__}, wanted tensors by name; save the SAE's `state_dict()`")
    return {str(key): value for key, value in held.items() if isinstance(value, torch.Tensor)}


def read_npz(path: Path, device: str) -> dict[str, Tensor]:
    """The arrays, by name, of a npz file, in float32 where they are numbers.

    Raises:
        SourceError: it holds objects, is no npz, or is cut short.
        ContractError: an array is not of floating-point numbers.
    """
    import zipfile

    import torch

    try:
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
    except (ValueError, AttributeError, TypeError) as error:
        raise SourceError(
            f"{path}: no npz file of arrays ({error}), and pickles are never read; save the arrays with `numpy.savez`, or download it again"
        ) from error
    except (zipfile.BadZipFile, EOFError, OSError, KeyError) as error:
        raise SourceError(f"{path}: is cut short or damaged ({error}), wanted a whole npz file; download it again") from error
    for name, array in arrays.items():
        if array.dtype.kind != "f":
            raise ContractError(f"{path}: {name} is {array.dtype}, wanted floating-point numbers that numpy has; save it as float32")
    return {name: torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)).to(device) for name, array in arrays.items()}


def checked(
    path: Path, weights: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, *, besides: Collection[str] = ()
) -> dict[str, Tensor]:
    """The tensors wanted, in one dtype; a tensor that is neither wanted nor named in `besides` contradicts the configuration.

    Raises:
        ContractError: one is missing, of another shape, not of floating-point numbers, or one too many.
        NumericsError: one holds NaN or infinity.
    """
    missing, unknown = sorted(set(shapes) - set(weights)), sorted(set(weights) - set(shapes) - set(besides))
    if missing:
        raise ContractError(
            f"{path}: lacks {missing}; found {sorted(weights)}, wanted {sorted(shapes)}; is the configuration that of this SAE?"
        )
    if unknown:
        raise ContractError(
            f"{path}: holds {unknown}, which its configuration does not speak of; wanted {sorted(shapes)}; is it that of another kind of SAE?"
        )
    for key, wanted in shapes.items():
        _check_tensor(path, key, weights[key], wanted)
    return {key: weights[key].to(dtype) for key in shapes}


def _check_tensor(path: Path, key: str, tensor: Tensor, wanted: tuple[int, ...]) -> None:
    found = tuple(tensor.shape)
    if found != wanted:
        hint = "it is stored transposed: save it the other way round" if found == wanted[::-1] else "is this the file of another SAE?"
        raise ContractError(f"{path}: {key} has shape {found}, wanted {wanted}; {hint}")
    if not tensor.is_floating_point():
        raise ContractError(f"{path}: {key} is {tensor.dtype}, wanted a floating-point tensor; save the SAE again")
    if not bool(tensor.isfinite().all()):
        raise NumericsError(f"{path}: {key} holds NaN or infinity, wanted finite numbers; its training diverged, or the file is damaged")


def whole_number(path: Path, key: str, found: Any, *, most: int | None = None) -> int:
    """A number of a configuration, from 1 (to `most`, the width).

    Raises:
        ContractError: it is none.
    """
    if isinstance(found, int) and not isinstance(found, bool) and found >= 1 and (most is None or found <= most):
        return found
    upto = "" if most is None else f" to the width {most}"
    raise ContractError(f"{path}: {key} is {found!r}, wanted a whole number from 1{upto}; save the SAE again")


def check_width(path: Path, key: str, found: Any, width: int) -> None:
    """The file's width is that of params.

    Raises:
        ContractError: it is not.
    """
    if found != width:
        raise ContractError(f"{path}: {key} is {found!r}, but params say width {width}; correct `width`")


def dtype_of(path: Path, named: str) -> torch.dtype:
    """The dtype that a configuration names, with or without `torch.` before it.

    Raises:
        ContractError: there is no such dtype for weights.
    """
    import torch

    short = str(named).removeprefix("torch.")
    if short not in DTYPES:
        raise ContractError(f"{path}: dtype is {named!r}, wanted one of {', '.join(DTYPES)}; save the SAE again")
    return getattr(torch, short)
