"""Peak memory and time of `activations` and `latents`, over tokens and over widths; every point is a process of its own.

`growth` is the peak at the most tokens over that at the fewest, `time_growth` the same of seconds per token. Memory is RssAnon,
sampled; each process begins with some 0.3 GB, of Python, torch and transformers, which is part of it and shown as `base_gb`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from peak import Peak
from synthetic import Study, activations, latents, lay_out, lay_out_sae, line, scratch

from latentry.runtime import use_threads

QUICK = bool(os.environ.get("QUICK"))
TOKENS = (16_384, 65_536, 131_072) if QUICK else (262_144, 1_048_576, 4_194_304)
WIDTHS = (4096, 65536) if QUICK else (4096, 65536, 1_048_576)
TOKENS_OF_WIDTHS = 8192 if QUICK else 98_304
CONTEXT = 128


def study_of(folder: Path, n_tokens: int) -> Study:
    """A tiny subject; shards as large as params.yaml has them by default."""
    return Study(
        folder=folder,
        d_in=64,
        n_layers=2,
        n_contexts=n_tokens // CONTEXT,
        context=CONTEXT,
        vocabulary=4096,
        subject_dtype="float32",
        shard_contexts=512,
    )


def point(folder: Path, n_tokens: int, width: int) -> dict[str, float]:
    """Lay one point out here, run it in a process of its own."""
    study = study_of(folder, n_tokens)
    lay_out(study)
    lay_out_sae(study, width)
    command = [sys.executable, __file__, str(folder), str(n_tokens), str(width)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
    print(line(f"point n={n_tokens} width={width}", found))  # noqa: T201
    return found


def run_point(folder: Path, n_tokens: int, width: int) -> None:
    """In the process of its own: both stages, watched."""
    study = study_of(folder, n_tokens)
    use_threads(study.threads)
    with Peak.watched() as peak:
        while not peak.n_bytes:
            pass
        base = peak.n_bytes
        seconds = {"activations": activations(study), **latents(study, width)}
    growing = sum(value for part, value in seconds.items() if part not in ("gate", "promoted"))
    print(json.dumps({"peak_gb": peak.n_bytes / 1e9, "base_gb": base / 1e9, "us_per_token": growing / n_tokens * 1e6, **seconds}))  # noqa: T201


def main() -> None:
    """All points, one after another, then the line."""
    by_tokens, by_width = {}, {}
    for n_tokens in TOKENS:
        with scratch() as folder:
            by_tokens[n_tokens] = point(folder, n_tokens, WIDTHS[0])
    for width in WIDTHS:
        with scratch() as folder:
            by_width[width] = point(folder, TOKENS_OF_WIDTHS, width)
    fewest, most = by_tokens[TOKENS[0]], by_tokens[TOKENS[-1]]
    shown: dict[str, object] = {"n": f"{TOKENS[0]}-{TOKENS[-1]}", "growth": most["peak_gb"] / fewest["peak_gb"]}
    shown |= {"time_growth": most["us_per_token"] / fewest["us_per_token"]}
    shown |= {f"peak_gb_{n_tokens}": found["peak_gb"] for n_tokens, found in by_tokens.items()}
    shown |= {f"us_per_token_{n_tokens}": found["us_per_token"] for n_tokens, found in by_tokens.items()}
    shown |= {f"peak_gb_width_{width}": found["peak_gb"] for width, found in by_width.items()}
    print(line("memory", shown))  # noqa: T201


if __name__ == "__main__":
    run_point(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 1 else main()
