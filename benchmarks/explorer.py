"""The explorer with a million latents in Chromium, opened from disk: seconds until it lists, and until a search has its answer.

Latents are made up: an explanation of some eight words from 20,000 (frequent ones more often), a score, a frequency. The page is
opened anew for every search, so that a search finds nothing loaded; both are medians over fresh browsers. `sort_s` is a sort by
score, `latent_s` one latent's page. With QUICK=1: 100,000 latents.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright

from latentry.explorer.site.rows import SaeRows, Score
from latentry.explorer.site.write import Names, write_pages

QUICK = bool(os.environ.get("QUICK"))
N = 100_000 if QUICK else 1_000_000
ROUNDS = 3 if QUICK else 5
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")


def made_up(n: int) -> SaeRows:
    """One SAE's latents."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, rng.integers(3, 10))) for _ in range(20_000)]
    drawn = np.minimum(rng.zipf(1.3, (n, 8)) - 1, len(words) - 1)
    texts = [" ".join(words[word] for word in row) for row in drawn.tolist()]
    score = rng.normal(0.7, 0.1, n).astype(np.float32)
    latents = [
        {"latent": latent, "status": "ok", "firing_frequency": frequency}
        for latent, frequency in enumerate(rng.lognormal(-7, 1, n).tolist())
    ]
    scores = [
        Score(
            explainer="default", scorer="detection", value=score, low=score - 0.1, high=score + 0.1, null=score * 0 + 0.5, status=["ok"] * n
        )
    ]
    return SaeRows(
        sae="made-up",
        latents=latents,
        labels=[str(latent) for latent in range(n)],
        texts={"default": texts},
        notes={"default": ["prompt 0"] * n},
        scores=scores,
    )


def details(part: SaeRows) -> Iterator[dict[str, Any]]:
    """What a latent's page shows, of the usual size."""
    window = ["held_out", 10, 5.1, ["some words of a text, ", ["marked", 9, 4.2], " and more words until its end"]]
    for row in part.latents:
        about = {
            "latent": row["latent"],
            "label": str(row["latent"]),
            "status": "ok",
            "detail": "",
            "shortfall": "",
            "n_windows": 99,
            "window_fraction": 0.01,
        }
        yield {**about, "explanations": [], "scores": [], "active": [window] * 20, "silent": [], "matches": [], "similar": []}


def seconds(page: Page, act: Callable[[], object], done: str) -> float:
    """How long until the page is as it should be."""
    start = time.perf_counter()
    act()
    page.wait_for_function(done)
    return time.perf_counter() - start


def measured(folder: Path, query: str) -> dict[str, float]:
    """One fresh browser: opens, searches, sorts, shows a latent."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        page = browser.new_page(bypass_csp=True)  # the waits below are evaluated in the page
        found = {"open": seconds(page, lambda: page.goto((folder / "latents.html").as_uri()), "document.body.dataset.ready === '1'")}
        n_before = page.inner_text("#said")
        found["search"] = seconds(page, lambda: page.fill("#query", query), f"document.getElementById('said').textContent !== {n_before!r}")
        page.fill("#query", "")
        page.wait_for_function(f"document.getElementById('said').textContent === {n_before!r}")
        before = page.inner_text("#rows tr")
        found["sort"] = seconds(
            page, lambda: page.select_option("#sort", "2"), f"document.querySelector('#rows tr').innerText !== {before!r}"
        )
        found["latent"] = seconds(page, lambda: page.click("#rows a"), "!document.getElementById('latent').hidden")
        browser.close()
    return found


def main() -> None:
    """Write the site and measure it."""
    part = made_up(N)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        names = Names(saes=("made-up",), explainers=("default",), scorers={"detection": "auroc"}, contrasts={"detection": "random"})
        about = {
            "name": "made-up",
            "width": N,
            "loss": "topk",
            "l0": 32.0,
            "fvu": 0.2,
            "hookpoint": "resid",
            "subject": "none",
            "baseline": None,
            "digests": {},
        }
        write_pages(Path(folder), names, [part], [about], details(part), {})
        write_s = time.perf_counter() - start
        size = sum(path.stat().st_size for path in Path(folder).rglob("*")) / 1e9
        frequent, rare = (part.texts["default"][place] or "" for place in (0, 1))
        queries = [frequent.split()[0], rare.split()[-1], frequent[:2]]
        rounds = [measured(Path(folder), queries[number % len(queries)]) for number in range(ROUNDS)]
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    searched = ", ".join(f"{query!r} {one['search']:.2f}" for query, one in zip(queries * ROUNDS, rounds, strict=False))
    print(f"seconds of a search in a fresh browser: {searched}", file=sys.stderr)  # noqa: T201
    shown = " ".join(f"{name}_s={value:.2f}" for name, value in medians.items())
    print(f"explorer n={N} {shown} write_s={write_s:.0f} disk_gb={size:.2f}")  # noqa: T201


if __name__ == "__main__":
    main()
