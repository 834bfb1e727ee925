"""What makes two SAEs' scores by one scorer incomparable: anything that bears on a score other than the SAE itself.

Read off the manifests of the cells, which hold the settings and the digests of the inputs that they were really made with.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from latentry.comparison.grid import Grid, is_complete
from latentry.contracts import EXAMPLES, SCORES
from latentry.store import read_manifest

_NO_MATTER = {"examples.n_latents", "examples.latents", "scorer.max_latents", "scorer.null_latents"}
"""How many latents there are of each, which the intervals tell."""


def differing(grid: Grid, sae_a: str, sae_b: str, scorer: str) -> list[str]:
    """What differs between the scores of two SAEs by one scorer, each with both values; empty where they are alike, or not there yet."""
    a, b = (_traits(grid, sae, scorer) for sae in (sae_a, sae_b))
    if not a or not b:
        return []
    names = sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))
    return [f"{name}: {a.get(name)!r} against {b.get(name)!r}" for name in names if name not in _NO_MATTER]


def _traits(grid: Grid, sae: str, scorer: str) -> dict[str, Any]:
    folder = grid.scores(sae, scorer)
    if not (is_complete(folder) and is_complete(grid.examples(sae))):
        return {}
    examples, scores = read_manifest(grid.examples(sae), EXAMPLES), read_manifest(folder, SCORES)
    settings = scores.params.get(f"scorers.{scorer}", {})
    found: dict[str, Any] = dict(_flat("examples", examples.params.get("examples", {})))
    found |= dict(_flat("scorer", settings))
    found |= dict(_flat("judge", scores.params.get("clients", {}).get(settings.get("client"), {})))
    found |= {f"digest of {path}": digest[:12] for path, digest in examples.inputs.items() if path.endswith("tokens")}
    found |= {f"digest of {path}": digest[:12] for path, digest in scores.inputs.items() if "/models/" in path}
    return found


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(f"{path}.{name}", inner)
    else:
        yield path, value
