"""Which positions count at all hookpoints of a run, from the norms that the pass left in its shards.

A shard's norm is NaN over the whole of a context that was dropped. Memory is one byte a position, and one shard.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

from latentry.contracts import ACTIVATIONS
from latentry.errors import NumericsError
from latentry.store import read_manifest

MEDIAN_TOKENS = 100_000
"""The median norm is taken over so many tokens (methods.md, Caching 3)."""
HOOKPOINT_FILE = "hookpoint.json"
POSITIONS_FILE = "positions.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Which positions all SAEs of a run use, and how many others there are, by reason."""

    kept: np.ndarray
    """bool [context, position]."""
    n_special: int
    n_attention_sinks: int
    n_dropped_contexts: int


def shard_name(number: int) -> str:
    """File of one shard, of norms and of stored activations."""
    return f"shard-{number:05d}.safetensors"


def shards_in(folder: Path) -> list[Path]:
    """The shards of a folder, in order."""
    return sorted(folder.glob("shard-*.safetensors"), key=lambda path: (len(path.name), path.name))


def kept_in(folder: Path) -> np.ndarray:
    """Which positions count, bool [context, position]: neither special nor an attention sink, nor in a context that was dropped.

    Raises:
        ContractError: the folder holds no complete activations of this version.
    """
    read_manifest(folder, ACTIVATIONS)
    return read_kept(folder)


def read_kept(folder: Path) -> np.ndarray:
    """The same of a folder that may still be in the making."""
    return load_file(folder / POSITIONS_FILE)["kept"].view(np.bool_)


def counted_positions(medians: Mapping[Path, float], special: np.ndarray, max_norm_multiple: float) -> Counted:
    """Leave out a position when its token is special, its context was dropped, or its norm is above `max_norm_multiple` times
    the median of any folder given."""
    kept = ~special
    n_sinks = n_dropped = first = 0
    for shards in zip(*(shards_in(folder) for folder in medians), strict=True):
        norms = [_norm_in(shard).reshape(-1, special.shape[1]) for shard in shards]
        rows = slice(first, first + len(norms[0]))
        dropped = np.any([np.isnan(norm[:, 0]) for norm in norms], axis=0)  # passes of other subjects may drop others
        for norm, median in zip(norms, medians.values(), strict=True):
            kept[rows] &= norm <= max_norm_multiple * median
        n_sinks += int((~kept[rows] & ~special[rows])[~dropped].sum())
        n_dropped += int(dropped.sum())
        first = rows.stop
    return Counted(kept=kept, n_special=int(special.sum()), n_attention_sinks=n_sinks, n_dropped_contexts=n_dropped)


def median_norm(folder: Path, special: np.ndarray) -> float:
    """Median over the first 100,000 tokens that are not special and not in a dropped context; reads no more shards than that takes.

    Raises:
        NumericsError: there is no such token.
    """
    found: list[np.ndarray] = []
    wanted, first = MEDIAN_TOKENS, 0
    for shard in shards_in(folder):
        norm = _norm_in(shard).reshape(-1, special.shape[1])
        usable = norm[~special[first : first + len(norm)] & ~np.isnan(norm)][:wanted]
        found.append(usable)
        wanted, first = wanted - len(usable), first + len(norm)
        if not wanted:
            break
    if wanted == MEDIAN_TOKENS:
        raise NumericsError(f"{folder}: no position is left, all are special or in contexts that hold NaN or infinity; check the subject")
    return float(np.median(np.concatenate(found)))


def _norm_in(shard: Path) -> np.ndarray:
    with safe_open(shard, framework="np") as file:
        return file.get_tensor("norm")
