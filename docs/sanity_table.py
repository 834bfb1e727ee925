"""The table of docs/scorers.md that says which metric sees which fault of an explanation, on planted concepts.

`python docs/sanity_table.py` takes minutes with the real models (their answers are kept in .cache/sanity), and writes between the marks.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests")]
from generated import write_between_marks  # noqa: E402 (the path is set above)

from sanity.sanity_runs import NULL, Scores, gain, loss  # noqa: E402
from sanity.scripted import SETTINGS, scripted_scores  # noqa: E402
from sanity.with_models import MODELS, missing, model_scores  # noqa: E402
from sanity.with_models import SETTINGS as MODEL_SETTINGS  # noqa: E402

HEAD = ("scorer", "contrast", "metric", "lift over the null (95 %), n", "too narrow", "the same, top decile only", "too broad", "empty")


def main() -> None:
    """Both tables."""
    scripted = [line for kind, contrast in SETTINGS for line in rows(kind, contrast, *scripted_pair(kind, contrast))]
    parts = ["### A judge that follows the text\n", *table(scripted), "\n### Real small models\n"]
    real = []
    for setting in MODEL_SETTINGS:
        why = missing(setting.kind)
        if why:
            sys.exit(why)
        found = model_scores(setting, ROOT / ".cache" / "sanity")
        real += rows(f"{setting.kind} ({MODELS[setting.kind]})", setting.contrast, found, None)
    write_between_marks(ROOT / "docs" / "scorers.md", parts + table(real))


def scripted_pair(kind: str, contrast: str) -> tuple[Scores, Scores]:
    """The scores on windows of every decile, and on those of the top one alone."""
    return scripted_scores(kind, contrast), scripted_scores(kind, contrast, only_top=True)


def rows(label: str, contrast: str, found: Scores, of_top: Scores | None) -> Iterator[tuple[str, ...]]:
    """One row per metric in which the true explanations stand apart from the null."""
    for metric, of_metric in found.items():
        whole = gain(of_metric, "true", NULL)
        if not whole.low:
            continue
        shown = f"{whole.mean:.2f} ({whole.low:.2f} to {whole.high:.2f}), {whole.n}"
        top = share(of_top[metric], "narrow") if of_top and contrast else ""
        yield (
            label,
            contrast or "none",
            metric,
            shown,
            share(of_metric, "narrow"),
            top,
            share(of_metric, "broad"),
            share(of_metric, "empty"),
        )


def share(of_metric: Mapping[str, Mapping[int, float]], fault: str) -> str:
    """What is lost by the fault, as a share of the lift."""
    for needed, said in ((NULL, "no null"), (fault, "no score")):
        if not of_metric.get(needed):
            return said
    found = loss(of_metric, fault)
    return "no lift" if found is None else str(found)


def table(lines: list[tuple[str, ...]]) -> list[str]:
    """In Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (HEAD, ("---",) * len(HEAD), *lines)]


if __name__ == "__main__":
    main()
