"""The files of a SAE from elsewhere, read as what they are: untrusted. Every fault names the file, what was found, what is wanted, what to do.

No pickle is opened: safetensors, numpy's npz without objects, or a torch file that holds tensors only.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from latentry.errors import ContractError, NumericsError, SourceError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DTYPES = ("float32", "float64", "float16", "bfloat16")
_DAMAGE = (RuntimeError, EOFError, OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError, MemoryError, BadZipFile)
"""What torch raises on a damaged file: any of these, by what the damage makes of what it reads."""
_LARGEST_JSON = 1 << 26
"""Bytes; the longest configuration there is holds a training run's, of some kilobytes."""
_LARGEST_RATIO, _SMALL = 64, 1 << 26
"""How many times its bytes on disk the arrays of a npz file may take, from some size on: trained numbers hardly compress."""


def read_json(path: Path) -> dict[str, Any]:
    """An object; NaN and infinity in it, which are no JSON, are None.

    Raises:
        ContractError: it is unreadable, too large, holds what UTF-8 cannot keep, or is something else.
    """
    if path.stat().st_size > _LARGEST_JSON:
        raise ContractError(f"{path}: has {path.stat().st_size:,} bytes, allowed are {_LARGEST_JSON:,}; is it a configuration?")
    try:
        described = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
        json.dumps(described, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{path}: unreadable JSON ({error}), wanted an object; save or download the SAE again") from error
    if not isinstance(described, dict):
        raise ContractError(f"{path}: holds a {type(described).__name__}, wanted an object; save or download the SAE again")
    return described


def section(path: Path, described: Mapping[str, Any], key: str) -> dict[str, Any]:
    """An object inside a configuration; an empty one where it is not there.

    Raises:
        ContractError: it is something else.
    """
    found = described.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ContractError(f"{path}: {key} is a {type(found).__name__}, wanted an object; save or download the SAE again")
    return found


def read_safetensors(path: Path, device: str) -> dict[str, Tensor]:
    """All tensors of a safetensors file.

    Raises:
        SourceError: it is none, is cut short, or holds none.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = load_file(path, device=device)
    except SafetensorError as error:
        raise _no_safetensors(path, error) from error
    if not found:
        raise SourceError(f"{path}: holds no tensors, wanted those of a SAE; save or download it again")
    return found


def read_torch(path: Path, device: str) -> dict[str, Tensor]:
    """The tensors, by name, of a file written by `torch.save`, of which nothing but tensors is read.

    Raises:
        SourceError: it holds code or objects, or is cut short.
    """
    import pickle

    import torch

    try:
        if zipfile.is_zipfile(path):
            _check_unpacked(path)
        held = torch.load(path, map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        raise SourceError(
            f"{path}: holds more than tensors (a pickle of code or objects), which is never read; load it with the library that made it,"
            " where you trust it, and save its `state_dict()` under the same name, or as safetensors"
        ) from error
    except _DAMAGE as error:
        raise SourceError(
            f"{path}: no whole file of torch ({type(error).__name__}), wanted tensors saved by `torch.save`; download it again"
        ) from error
    if not isinstance(held, dict):
        raise ContractError(f"{path}: holds a {type(held).__name__}, wanted tensors by name; save the SAE's `state_dict()`")
    return {str(key): value for key, value in held.items() if isinstance(value, torch.Tensor)}


def read_npz(path: Path, device: str) -> dict[str, Tensor]:
    """The arrays, by name, of a npz file, in float32 where they are numbers.

    Raises:
        SourceError: it holds objects, is no npz, or is cut short.
        ContractError: an array is not of floating-point numbers.
    """
    import torch

    try:
        _check_unpacked(path)
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
    except (BadZipFile, EOFError, OSError, KeyError, MemoryError, RuntimeError) as error:
        raise SourceError(f"{path}: is no npz file, or damaged ({error}), and pickles are never read; download it again") from error
    except (ValueError, AttributeError, TypeError) as error:
        raise SourceError(
            f"{path}: no npz file of arrays ({error}), and pickles are never read; save the arrays with `numpy.savez`, or download it again"
        ) from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise ContractError(f"{path}: {name} is {kind}, wanted floating-point numbers that numpy has; save it as float32")
    return {name: torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)).to(device) for name, array in arrays.items()}


def _check_unpacked(path: Path) -> None:
    """Arrays that would unpack to far more than a file of weights holds are refused before they do."""
    with zipfile.ZipFile(path) as members:
        n_bytes, on_disk = sum(member.file_size for member in members.infolist()), path.stat().st_size
    if n_bytes > max(_SMALL, _LARGEST_RATIO * on_disk):
        raise SourceError(
            f"{path}: {on_disk:,} bytes that unpack to {n_bytes:,}, allowed is {_LARGEST_RATIO} times as many; weights do not compress so far:"
            " save them without compression"
        )


def read_shapes(path: Path) -> dict[str, tuple[int, ...]] | None:
    """The shapes of a file's tensors by name, without the tensors; None of a torch file, which tells them only with its objects.

    Raises:
        SourceError: it is no whole file of its format.
    """
    if path.suffix == ".npz":
        return _npz_shapes(path)
    if path.suffix != ".safetensors":
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as held:
            return {name: tuple(held.get_slice(name).get_shape()) for name in held.keys()}  # noqa: SIM118 (no mapping)
    except SafetensorError as error:
        raise _no_safetensors(path, error) from error


def _npz_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """From the head of each array."""
    found: dict[str, tuple[int, ...]] = {}
    try:
        _check_unpacked(path)
        with zipfile.ZipFile(path) as members:
            for name in members.namelist():
                with members.open(name) as head:
                    version = np.lib.format.read_magic(head)
                    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                    found[name.removesuffix(".npy")] = tuple(read(head)[0])
    except (BadZipFile, EOFError, OSError, KeyError, RuntimeError, ValueError) as error:
        raise SourceError(f"{path}: is no npz file, or damaged ({error}), and pickles are never read; download it again") from error
    return found


def _no_safetensors(path: Path, error: Exception) -> SourceError:
    return SourceError(
        f"{path}: no whole safetensors file ({error}), and nothing else is read under that name; pickles are never read: convert it"
        " with the library that made it, or download it again"
    )


def checked(
    path: Path, weights: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, *, besides: Collection[str] = ()
) -> dict[str, Tensor]:
    """The tensors wanted, in one dtype; a tensor that is neither wanted nor named in `besides` contradicts the configuration.

    Raises:
        ContractError: one is missing, of another shape, not of floating-point numbers, or one too many.
        NumericsError: one holds NaN or infinity.
    """
    check_shapes(path, {key: tuple(tensor.shape) for key, tensor in weights.items()}, shapes, besides=besides)
    for key in shapes:
        _check_tensor(path, key, weights[key])
    return {key: weights[key].to(dtype) for key in shapes}


def check_shapes(
    path: Path, found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]], *, besides: Collection[str] = ()
) -> None:
    """The tensors wanted are there, of these shapes, and no others but those named in `besides`.

    Raises:
        ContractError: one is missing, of another shape, or one too many.
    """
    missing, unknown = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted) - set(besides))
    if missing:
        raise ContractError(
            f"{path}: lacks {missing}; found {sorted(found)}, wanted {sorted(wanted)}; is the configuration that of this SAE?"
        )
    if unknown:
        raise ContractError(
            f"{path}: holds {unknown}, which its configuration does not speak of; wanted {sorted(wanted)}; is it that of another kind of SAE?"
        )
    for key, shape in wanted.items():
        if found[key] != shape:
            turned = found[key] == shape[::-1]
            hint = "it is stored transposed: save it the other way round" if turned else "is this the file of another SAE?"
            raise ContractError(f"{path}: {key} has shape {found[key]}, wanted {shape}; {hint}")


def _check_tensor(path: Path, key: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point() or str(tensor.dtype).removeprefix("torch.") not in DTYPES:
        raise ContractError(f"{path}: {key} is {tensor.dtype}, wanted a floating-point tensor ({', '.join(DTYPES)}); save the SAE again")
    if not _is_whole(tensor):
        raise ContractError(
            f"{path}: {key} of shape {tuple(tensor.shape)} does not lie whole in the file (sparse, or repeated from fewer numbers), wanted a plain tensor;"
            " save `tensor.contiguous()`"
        )
    if not bool(tensor.isfinite().all()):
        raise NumericsError(f"{path}: {key} holds NaN or infinity, wanted finite numbers; its training diverged, or the file is damaged")


def _is_whole(tensor: Tensor) -> bool:
    """Whether every one of its numbers is held: an expanded tensor of a few can claim any size."""
    import torch

    if tensor.layout is not torch.strided or tensor.is_nested or tensor.device.type == "meta":
        return False
    return tensor.untyped_storage().nbytes() >= tensor.numel() * tensor.element_size()


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
