"""A project whose examples are planted, for the stages that ask models, which run here as they are."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from latentry.contracts import EXAMPLES
from latentry.errors import LatentryError
from latentry.records import Status
from planted_folders import finish
from planted_windows import window
from small_params import put, small_params

ROOT = Path(__file__).parents[1]
SAE = "topk-64"
WORDS = ("tax", "whale", "river", *(f"word{number}" for number in range(60)))


def lay_out(project: Path, url: str, n_latents: int = 6, **changes: Any) -> None:
    """Params with a judge at the URL, and examples of so many latents, each of which fires on one word."""
    tree = small_params(
        clients={"judge": {"kind": "openai_compatible", "model": "any"}},
        explainers={"default": {"client": "judge"}},
        scorers={"detection": {"client": "judge", "contrast": "random", "max_examples": 5, "null_latents": 3}},
        examples__n_latents=n_latents,
        run={"clients": {"judge": {"base_url": url, "concurrency": 4, "retries": 1, "timeout_s": 2}}},
        models={"subject": {"format": "folder", "sources": [{"kind": "random", "purpose": "language_model"}]}},
    )
    for path, value in changes.items():
        put(tree, path.replace("__", "."), value)
    (project / "params.yaml").write_text(yaml.safe_dump(tree))
    (project / "corpus").mkdir(exist_ok=True)
    (project / "corpus" / "a.txt").write_text(" ".join(f"whale {number} seen by men" for number in range(2000)))
    examples(project / "data" / "examples" / SAE, n_latents)


def examples(folder: Path, n_latents: int, *, are_supplied: bool = False) -> None:
    """`data/examples/<S>` with both splits of every latent; the last one asked for is dead.

    Where they are supplied, every latent's contrasts are windows of all the others.
    """
    rows, windows = [], []
    for latent in range(n_latents):
        rows.append(_row(latent, Status.OK, ""))
        for number in range(10):
            windows += [_window(latent, number, WORDS[latent], "explain"), _window(latent, 40 + number, WORDS[latent], "held_out")]
            windows += [_window(latent, 100 + number, None, "held_out"), _window(latent, 200 + number, None, "explain")]
    rows.append(_row(n_latents, Status.DEAD, "no firing in 3,200 tokens"))
    if are_supplied:
        windows = [
            replace(made, supplier=(made.latent + 1 + made.rank % (n_latents - 1)) % n_latents) if made.contrast else made
            for made in windows
        ]
    promoted = [{"latent": row["latent"], "promoted_tokens": ["a"], "suppressed_tokens": ["b"]} for row in rows]

    def fill(making: Any) -> None:
        making.write_table("latents.parquet", rows)
        making.write_table("examples.parquet", windows)
        making.write_table("promoted.parquet", promoted)

    finish(folder, EXAMPLES, fill, params={"examples": {"split_by": "document"}})


def _row(latent: int, status: Status, detail: str) -> dict[str, Any]:
    row = dict.fromkeys(EXAMPLES.tables["latents.parquet"].names)
    return row | {"latent": latent, "rank": latent, "status": status.value, "detail": detail}


def _window(latent: int, number: int, word: str | None, split: str) -> Any:
    made = window(latent, 1000 * latent + number, word)
    return replace(made, split=type(made.split)(split), rank=number % 10, document=number, example_id=f"{latent}/{split}/{number}")


def stage(name: str, *options: str) -> LatentryError | None:
    """One stage of the project in the current folder, in this process; gives the error that would end its process."""
    spec = importlib.util.spec_from_file_location(f"stage_{name}", ROOT / "stages" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    done = CliRunner().invoke(module.main, ["--sae", SAE, *options])
    if done.exception is not None and not isinstance(done.exception, LatentryError):
        raise done.exception
    return done.exception
