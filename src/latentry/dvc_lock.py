"""`dvc.lock` as DVC writes it, read without DVC; DVC writes it in place, so that a kill or a full disk may leave a part of it."""

from pathlib import Path
from typing import Any

import yaml


def parsed_lock(path: Path) -> dict[str, Any] | None:
    """The whole of it; None where its end is missing, as far as that can be seen, or it is none."""
    try:
        lock = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (ValueError, yaml.YAMLError):
        return None
    stages = lock.get("stages") if isinstance(lock, dict) and lock.get("schema") == "2.0" else None
    return lock if isinstance(stages, dict) and all(map(_is_entry, stages.values())) else None


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("cmd"), str):
        return False
    named = [one for kind in ("deps", "outs") for one in entry.get(kind) or ()]
    return all(isinstance(one, dict) and "path" in one for one in named)
