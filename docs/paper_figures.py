"""Our figures beside the paper's (Paulo et al. 2025), for docs/paper.md: from the example's results, and from small runs beside them.

`python docs/paper_figures.py [PROJECT]` reads PROJECT/data (by default this checkout's), runs the variants of the examples
with the lexical explainer and the embedding scorer in .cache/paper, and writes the tables between the marks in docs/paper.md.
"""

import argparse
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml
from generated import write_between_marks
from scipy import stats

from latentry.metrics import auroc, lift, summary
from latentry.metrics.intervals import N_DRAWS
from latentry.randomness import rng_for

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "paper.md"
SAE = "topk-2k"
"""Whose examples are drawn anew in the variants."""
INPUTS = ("models", "tokens", "activations", "saes", "latents")
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "as the example": {},
    "explain from the strongest": {"explain": {"how": "top"}},
    "explain from any": {"explain": {"how": "random"}},
    "10 examples to explain": {"explain": {"n": 10}},
    "40 examples to explain": {"explain": {"n": 40}},
    "windows of 16": {"window": 16},
    "windows of 64": {"window": 64},
}
PAPER_VARIANTS = {
    "as the example": "(deciles) .77 fuzzing, .74 detection; window 32: .76; 20 examples: .74",
    "explain from the strongest": ".73 fuzzing, .72 detection",
    "explain from any": "",
    "10 examples to explain": ".73",
    "40 examples to explain": ".76",
    "windows of 16": ".75",
    "windows of 64": ".74",
}
PAPER_ORDER = {"fuzzing": ".73, .76, .81 (balanced accuracy)", "detection": ".70, .74, .83 (balanced accuracy)"}
"""Gemma-2-9B 16k and 131k, Llama-3.1-8B 262k."""
PAPER_PAIRS = {
    ("detection", "fuzzing"): ".73",
    ("fuzzing", "simulation"): ".75",
    ("embedding", "fuzzing"): ".41",
    ("detection", "embedding"): ".71",
    ("embedding", "surprisal"): ".79",
}
Rows = Sequence[Mapping[str, Any]]
Latent = tuple[str, str, int]


def main() -> None:
    """Read, run, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project", nargs="?", type=Path, default=ROOT)
    project = parser.parse_args().project.resolve()
    rows = pq.read_table(project / "data" / "comparison" / "latents.parquet").to_pylist()
    headline = {name: metric_of(rows, name) for name in sorted({row["scorer"] for row in rows})}
    parts = [
        "### Order of the scorers\n",
        *table(("scorer", "metric", "explainer", "mean (95 %)", "median", "null", "n", "the paper, median"), order(rows, headline)),
        "\n### Spearman's correlation among scorers\n",
        *table(("scorers", "explainer", "rho (95 %)", "n", "the paper"), correlations(rows, headline)),
        "\n### By decile\n",
        *table(("scorer, explainer", "n of each decile", *(str(number) for number in range(1, 11))), deciles(project)),
        "\n### What the explainer sees, and windows\n",
        *table(("variant", "AUROC (95 %)", "minus the example's, paired (95 %)", "n", "the paper"), variants(project)),
    ]
    write_between_marks(PAGE, parts)


def metric_of(rows: Rows, scorer: str) -> str:
    """The first metric that the scorer gives."""
    mine = [row for row in rows if row["scorer"] == scorer]
    names = [name.removeprefix("null_") for name in rows[0] if name.startswith("null_")]
    return next(name for name in names if any(row[name] is not None for row in mine))


def order(rows: Rows, headline: Mapping[str, str]) -> Iterator[Sequence[str]]:
    """Mean, median and null of every scorer and explainer, over the latents of all SAEs."""
    for scorer, explainer in sorted({(row["scorer"], row["explainer"]) for row in rows}):
        mine = [row for row in rows if (row["scorer"], row["explainer"]) == (scorer, explainer)]
        metric = headline[scorer]
        found = summary(values(mine, metric), rng_for(0, f"paper {scorer} {explainer}"))
        null = values(mine, f"null_{metric}")
        shown_null = f"{null.mean():.2f}" if len(null) else ""
        yield scorer, metric, explainer, interval(found), f"{found.median:.2f}", shown_null, str(found.n), PAPER_ORDER.get(scorer, "")


def correlations(rows: Rows, headline: Mapping[str, str]) -> Iterator[Sequence[str]]:
    """Every two scorers over the latents that both scored, SAEs pooled."""
    for explainer in sorted({row["explainer"] for row in rows}):
        scores = {name: by_latent(rows, explainer, name, headline[name]) for name in headline}
        for one, other in itertools.combinations(sorted(scores), 2):
            shared = sorted(scores[one].keys() & scores[other].keys())
            if len(shared) >= 10:
                a, b = (np.array([scores[name][latent] for latent in shared]) for name in (one, other))
                shown = f"{stats.spearmanr(a, b).statistic:.2f} ({spearman_interval(a, b)})"
                yield f"{one}, {other}", explainer, shown, str(len(shared)), PAPER_PAIRS.get((one, other), "")


def by_latent(rows: Rows, explainer: str, scorer: str, metric: str) -> dict[Latent, float]:
    """One scorer's scores of one explainer."""
    mine = (row for row in rows if (row["explainer"], row["scorer"]) == (explainer, scorer) and row[metric] is not None)
    return {(row["sae"], row["explainer"], row["latent"]): row[metric] for row in mine}


def spearman_interval(a: np.ndarray, b: np.ndarray) -> str:
    """95 % percentile bootstrap over latents."""
    drawn = rng_for(0, "paper spearman").integers(0, len(a), size=(N_DRAWS, len(a)))
    ranks = stats.rankdata(a[drawn], axis=1), stats.rankdata(b[drawn], axis=1)
    x, y = (each - each.mean(axis=1, keepdims=True) for each in ranks)
    spread = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    found = (x * y).sum(axis=1)[spread > 0] / spread[spread > 0]
    low, high = np.quantile(found, [0.025, 0.975])
    return f"{low:.2f} to {high:.2f}"


def deciles(project: Path) -> Iterator[Sequence[str]]:
    """AUROC of each decile's windows against all contrasts of their latent, as a mean over the latents of all SAEs."""
    folders = sorted(path for path in (project / "data" / "scores").glob("*/*") if (path / "judgments.parquet").exists())
    scorers = sorted({folder.name for folder in folders})
    for scorer in scorers:
        found: dict[str, list[list[float]]] = {}
        for folder in (folder for folder in folders if folder.name == scorer):
            ranks = pq.read_table(project / "data" / "examples" / folder.parent.name / "examples.parquet", columns=["example_id", "decile"])
            place = dict(zip(ranks["example_id"].to_pylist(), ranks["decile"].to_pylist(), strict=True))
            for key, judged in grouped(folder).items():
                for decile, value in graded_by_decile(judged, place):
                    found.setdefault(key[0], [[] for _ in range(10)])[decile - 1].append(value)
        for explainer, of_decile in sorted(found.items()):
            means = (with_half_width(one) for one in of_decile)
            sizes = [len(one) for one in of_decile]
            yield f"{scorer}, {explainer}", f"{min(sizes)} to {max(sizes)}", *means


def with_half_width(found: Sequence[float]) -> str:
    """A mean, and half the width of its 95 % interval over latents."""
    one = summary(np.array(found), rng_for(0, "paper decile"))
    return "" if one.low is None or one.high is None else f"{one.mean:.2f} ± {(one.high - one.low) / 2:.2f}"


def grouped(folder: Path) -> dict[tuple[str, int], list[Mapping[str, Any]]]:
    """Graded judgments under a latent's own explanation, by explainer and latent."""
    found: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in pq.read_table(folder / "judgments.parquet").to_pylist():
        if not row["null"] and row["confidence"] is not None:
            found.setdefault((row["explainer"], row["latent"]), []).append(row)
    return found


def graded_by_decile(judged: Rows, place: Mapping[str, int]) -> Iterator[tuple[int, float]]:
    """Decile and AUROC, where the latent has a contrast and a window of that decile."""
    contrast = [row["confidence"] for row in judged if not row["is_activating"]]
    for decile in range(1, 11):
        mine = [row["confidence"] for row in judged if row["is_activating"] and place.get(row["example_id"]) == decile]
        if mine and contrast:
            yield decile, auroc(np.array(mine + contrast), np.array([True] * len(mine) + [False] * len(contrast)))


def variants(project: Path) -> Iterator[Sequence[str]]:
    """The lexical explainer by the embedding scorer, with the examples drawn otherwise."""
    scores = {name: scores_of(project, name) for name in VARIANTS}
    usual = scores["as the example"]
    for name, mine in scores.items():
        shared = sorted(mine.keys() & usual.keys())
        change = lift(*(np.array([of[latent] for latent in shared]) for of in (mine, usual)), rng_for(0, "paper variant"))
        found = summary(np.array(list(mine.values())), rng_for(0, f"paper {name}"))
        apart = "" if mine is usual else f"{interval(change, '+.3f')}, n {change.n}"
        yield name, interval(found, ".3f"), apart, str(found.n), PAPER_VARIANTS[name]


def scores_of(project: Path, name: str) -> dict[int, float]:
    """AUROC by latent, under its own explanation, made anew."""
    rows = pq.read_table(run_variant(project, name) / "scores.parquet").to_pylist()
    return {row["latent"]: row["auroc"] for row in rows if not row["null"] and row["auroc"] is not None}


def run_variant(project: Path, name: str) -> Path:
    """The scores of `SAE`: the stages from `examples` on, in a folder that has the project's weights, tokens and latents."""
    folder = ROOT / ".cache" / "paper" / name.replace(" ", "-")
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for one in INPUTS:
        if not (folder / "data" / one).exists():
            (folder / "data" / one).symlink_to(project / "data" / one, target_is_directory=True)
    tree = yaml.safe_load((ROOT / "params.yaml").read_text())
    for key, value in VARIANTS[name].items():
        tree["examples"][key] = tree["examples"][key] | value if isinstance(value, dict) else value
    tree |= {"explainers": {"lexical": {}}, "scorers": {"embedding": {"model": "minilm"}}}
    (folder / "params.yaml").write_text(yaml.safe_dump(tree))
    for stage, more in (("examples", ()), ("explain", ()), ("score", ("--scorer", "embedding"))):
        command = [sys.executable, str(ROOT / "stages" / f"{stage}.py"), "--sae", SAE, *more]
        subprocess.run(command, cwd=folder, env=os.environ | {"DVC_ROOT": str(folder.parent)}, check=True)
    return folder / "data" / "scores" / SAE / "embedding"


def values(rows: Rows, column: str) -> np.ndarray:
    """A column without what is lacking."""
    return np.array([row[column] for row in rows if row.get(column) is not None], dtype=float)


def interval(found: Any, as_text: str = ".2f") -> str:
    """A mean with its interval over latents."""
    ends = "" if found.low is None else f" ({found.low:{as_text}} to {found.high:{as_text}})"
    return f"{found.mean:{as_text}}{ends}"


def table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    line: Callable[[Sequence[str]], str] = lambda cells: f"| {' | '.join(cells)} |"  # noqa: E731
    return [line(head), line(["---"] * len(head)), *(line(row) for row in rows)]


if __name__ == "__main__":
    main()
