"""Calls that adaptive judging saves against judging all latents alike, at equal intervals.

Two sets of latents, each with 50 activating windows and 50 contrasts: those of the example, whose own judgments (of detection
and fuzzing, under `data/scores` of the working folder) are drawn again with replacement, since the example judges few windows
of each; and simulated ones, with true accuracies even from .5 to .98. Beside the savings: bias and coverage over the latents,
whose truth is known. With QUICK=1 fewer draws.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from jaxtyping import Float

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
from latentry.metrics import balanced_accuracy_interval  # noqa: E402 (the path is set above)
from latentry.randomness import rng_for  # noqa: E402
from latentry.records import Judgment, Kind, Status  # noqa: E402
from latentry.scorers.adaptive import Adaptive, judged_by_rounds, known_so_far  # noqa: E402
from latentry.scorers.asking import Case  # noqa: E402
from latentry.scorers.base import Item  # noqa: E402
from planted_windows import item  # noqa: E402

QUICK = bool(os.environ.get("QUICK"))
EACH = 50
N_ROUNDS = EACH // 10
WIDTHS = (0.15, 0.2, 0.25, 0.3)
SHOWN = 0.2
SAE_WIDTH = 0.1
ROUNDING = 1e-12
DRAWS = 2 if QUICK else 20
ONE = item("tax", n=EACH)
CASES = [Case(example_id=one.example_id, is_activating=one.kind is Kind.ACTIVATING, shown="") for one in ONE.examples]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """A latent's true shares: of activating windows found, of contrasts rejected."""

    true_positive: float
    true_negative: float

    @property
    def balanced_accuracy(self) -> float:
        return (self.true_positive + self.true_negative) / 2


def of_the_example(scores: Path) -> list[Rates]:
    """The rates that the example's own judgments show, of every latent with both kinds."""
    found = []
    for path in sorted(scores.glob("*/*/judgments.parquet")):
        right: dict[tuple[int, str, bool], dict[bool, list[bool]]] = defaultdict(lambda: {True: [], False: []})
        for row in pq.read_table(path, columns=["latent", "explainer", "null", "is_activating", "says_activating"]).to_pylist():
            if row["says_activating"] is not None:
                key = row["latent"], row["explainer"], row["null"]
                right[key][row["is_activating"]].append(row["says_activating"] == row["is_activating"])
        for key, of in right.items():
            if not key[2] and of[True] and of[False]:
                found.append(Rates(true_positive=float(np.mean(of[True])), true_negative=float(np.mean(of[False]))))
    return found


def simulated(n: int) -> list[Rates]:
    """Latents of true accuracies even from .5 to .98."""
    return [Rates(true_positive=float(rate), true_negative=float(rate)) for rate in np.linspace(0.5, 0.98, n)]


def judged(rates: Sequence[Rates], adaptive: Adaptive, draw: int) -> Iterator[list[Judgment]]:
    """Each latent's judgments; the judge of one draw is the same whatever the stopping."""

    def judge(items: Sequence[Item], cases: Sequence[Sequence[Case]], number: int) -> list[Judgment]:
        return [one for of, some in zip(items, cases, strict=True) for one in _answers(of, some, rates[of.latent], f"{draw} {number}")]

    items = [replace(ONE, latent=latent) for latent in range(len(rates))]
    by_latent: dict[int, list[Judgment]] = defaultdict(list)
    for one in judged_by_rounds(items, [CASES] * len(items), judge, adaptive, 0):
        by_latent[one.latent].append(one)
    yield from (by_latent[latent] for latent in range(len(rates)))


def _answers(of: Item, cases: Sequence[Case], rates: Rates, purpose: str) -> Iterator[Judgment]:
    luck = rng_for(0, f"benchmark {purpose}", of.latent).random(len(cases))
    for case, drawn in zip(cases, luck.tolist(), strict=True):
        right = drawn < (rates.true_positive if case.is_activating else rates.true_negative)
        yield Judgment(
            latent=of.latent,
            explainer=of.explainer,
            example_id=case.example_id,
            null=False,
            is_activating=case.is_activating,
            says_activating=case.is_activating == right,
            confidence=None,
            status=Status.OK,
            detail="",
            reply_key=None,
        )


def fixed_widths(rates: Sequence[Rates]) -> list[Float[np.ndarray, " latent"]]:
    """Widths of the same interval where every latent is judged on as many rounds: of one round, of two, to all."""
    rng, found = np.random.default_rng(0), []
    for n in range(10, EACH + 1, 10):
        drawn = [(rng.binomial(n, one.true_positive, DRAWS), rng.binomial(n, one.true_negative, DRAWS)) for one in rates]
        pairs = [(int(a), int(b)) for of in drawn for a, b in zip(*of, strict=True)]
        bounds = [balanced_accuracy_interval(a, n, b, n, corrected=True) for a, b in pairs]
        found.append(np.array([high - low for low, high in bounds]))
    return found


def measure(name: str, rates: Sequence[Rates]) -> str:
    """Say what each width costs; returns the figures at the width shown."""
    fixed = fixed_widths(rates)
    shown = ""
    for width in WIDTHS:
        found = [row for draw in range(DRAWS) for row in _rows(rates, Adaptive(max_width=width), draw)]
        calls, widths, errors, covered = (np.array(column) for column in zip(*found, strict=True))
        narrow = float((widths < width).mean())
        # all alike: the fewest rounds that make as many latents as narrow as was asked, within 1 %
        enough = [rounds for rounds, of in enumerate(fixed, start=1) if rounds > 1 and (of < width).mean() >= narrow - 0.01]
        alike = 20 * (enough[0] if enough else N_ROUNDS)
        same_mean = float(np.interp(widths.mean(), [of.mean() for of in fixed[::-1]], np.arange(N_ROUNDS, 0, -1) * 20.0))
        print(  # noqa: T201
            f"{name}, stop at {width}: {calls.mean():.1f} calls a latent, {narrow:.0%} as narrow; all alike take {alike} for that, and"
            f" {same_mean:.1f} for the same mean width ({widths.mean():.3f}); bias {errors.mean():+.4f}, coverage {covered.mean():.3f}"
        )
        if width == SHOWN:
            shown = (
                f"{name}_latents={len(rates)} {name}_calls={calls.mean():.1f} {name}_saved={1 - calls.mean() / alike:.3f}"
                f" {name}_saved_at_mean_width={1 - calls.mean() / same_mean:.3f} {name}_bias={errors.mean():.4f}"
                f" {name}_coverage={covered.mean():.3f}"
            )
    of_mean = [len(one) for draw in range(DRAWS) for one in judged(rates, Adaptive(max_sae_width=SAE_WIDTH), draw)]
    print(f"{name}, stop when the mean over latents is known to {SAE_WIDTH}: {np.mean(of_mean):.1f} calls a latent")  # noqa: T201
    return shown


def _rows(rates: Sequence[Rates], adaptive: Adaptive, draw: int) -> Iterator[tuple[int, float, float, bool]]:
    """Calls, width, error and whether the truth is covered, latent after latent."""
    for one, judgments in zip(rates, judged(rates, adaptive, draw), strict=True):
        known, truth = known_so_far(judgments), one.balanced_accuracy
        if known is None or known.low is None or known.high is None:
            raise RuntimeError("a latent whose windows of both kinds were judged has no interval")
        yield len(judgments), known.high - known.low, known.value - truth, known.low - ROUNDING <= truth <= known.high + ROUNDING


def main() -> None:
    own = of_the_example(Path("data/scores"))
    parts = [measure("example", own)] if own else []
    parts.append(measure("simulated", simulated(25 if QUICK else 100)))
    print(f"adaptive n={DRAWS} width={SHOWN} windows={2 * EACH} {' '.join(parts)}")  # noqa: T201


if __name__ == "__main__":
    main()
