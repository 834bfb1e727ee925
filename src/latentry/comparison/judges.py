"""Two judges on the same questions: how often they agree, and a cheap judge's rates put right by a dear one's.

Two scorers are two judges when they differ in their client alone, so that they were asked the same about the same examples.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float, Int

from latentry.comparison.grid import Grid, is_complete
from latentry.contracts import COMPARISON, SCORES
from latentry.metrics import wilson_interval
from latentry.randomness import rng_for
from latentry.store import read_table

JUDGES_TABLE = "judges.parquet"
N_DRAWS = 2000
_KEYS = ("latent", "explainer", "example_id", "null")


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """A rate of yes as the reference judge would have given it, with a 95 % interval by bootstrap of both samples."""

    rate: float | None
    """None where the cheap judge is no better than chance on the reference's answers."""
    low: float | None = None
    high: float | None = None


def corrected_rate(
    says: Bool[np.ndarray, " judgment"],
    cheap: Bool[np.ndarray, " shared"],
    reference: Bool[np.ndarray, " shared"],
    rng: np.random.Generator,
) -> Corrected:
    """(p + Sp - 1) / (Se + Sp - 1), clipped to 0 and 1 (Rogan and Gladen 1978).

    `says` are the cheap judge's answers on what it alone judged, p their share of yes; Se and Sp are its sensitivity and
    specificity for the reference judge's answers, on what both judged.
    """
    answers = np.array([(cheap & reference).sum(), (~cheap & reference).sum(), (cheap & ~reference).sum(), (~cheap & ~reference).sum()])
    if not len(says) or not len(cheap):
        return Corrected(rate=None)
    (point,) = _corrected(says.mean(keepdims=True), answers[None, :])
    if np.isnan(point):
        return Corrected(rate=None)
    # resampling answers is drawing how many of each kind there are
    p = rng.binomial(len(says), says.mean(), N_DRAWS) / len(says)
    drawn = _corrected(p, rng.multinomial(len(cheap), answers / len(cheap), N_DRAWS))
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return Corrected(rate=float(point), low=float(low), high=float(high))


def _corrected(p: Float[np.ndarray, " draw"], answers: Int[np.ndarray, "draw kind"]) -> Float[np.ndarray, " draw"]:
    """From the cheap judge's share of yes, and how often both said yes, the reference alone, the cheap one alone, and none; NaN where Se + Sp <= 1."""
    both, reference_alone, cheap_alone, none = answers.T.astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        sensitivity, specificity = both / (both + reference_alone), none / (none + cheap_alone)
        rate = np.clip((p + specificity - 1) / (sensitivity + specificity - 1), 0, 1)
        return np.where(sensitivity + specificity > 1, rate, np.nan)


def judges_table(grid: Grid) -> pa.Table:
    """Every two judges on each SAE."""
    alike: dict[str, list[str]] = {}
    for name, asked in grid.scorers.items():
        if asked.question is not None:
            alike.setdefault(asked.question, []).append(name)
    pairs = [pair for group in alike.values() for pair in combinations(group, 2)]
    rows = [row for pair in pairs for sae in grid.saes for row in _pair_rows(grid, sae, *pair)]
    return pa.Table.from_pylist(rows, schema=COMPARISON.tables[JUDGES_TABLE])


def _pair_rows(grid: Grid, sae: str, scorer_a: str, scorer_b: str) -> Iterator[dict[str, Any]]:
    answers = [_answers(grid, sae, scorer) for scorer in (scorer_a, scorer_b)]
    if any(one is None for one in answers):
        return
    a, b = (one or {} for one in answers)
    shared = sorted(a.keys() & b.keys())
    says_a, says_b = (np.array([of[key][1] for key in shared], bool) for of in (a, b))
    named = {"sae": sae, "scorer_a": scorer_a, "scorer_b": scorer_b, "n": len(shared)}
    yield {**named, **_agreement(says_a, says_b), **_put_right(grid, named, a, b)}


def _answers(grid: Grid, sae: str, scorer: str) -> Mapping[tuple, tuple[bool, bool]] | None:
    """(is activating, says so) by what was asked, of one scorer's answers that succeeded."""
    folder = grid.scores(sae, scorer)
    if not is_complete(folder):
        return None
    table = read_table(folder, SCORES, "judgments.parquet", [*_KEYS, "is_activating", "says_activating"])
    rows = table.filter(pc.field("says_activating").is_valid()).to_pylist()
    return {tuple(row[name] for name in _KEYS): (row["is_activating"], row["says_activating"]) for row in rows}


def _agreement(a: Bool[np.ndarray, " shared"], b: Bool[np.ndarray, " shared"]) -> dict[str, Any]:
    """Share of equal answers with Wilson's interval, Cohen's kappa, and the table of answers."""
    if not len(a):
        return {}
    agreed = float((a == b).mean())
    by_chance = float(a.mean() * b.mean() + (~a).mean() * (~b).mean())
    low, high = wilson_interval(int((a == b).sum()), len(a))
    counts = {
        "n_yes_yes": int((a & b).sum()),
        "n_yes_no": int((a & ~b).sum()),
        "n_no_yes": int((~a & b).sum()),
        "n_no_no": int((~a & ~b).sum()),
    }
    kappa = (agreed - by_chance) / (1 - by_chance) if by_chance < 1 else None
    return {"agreement": agreed, "low": low, "high": high, "kappa": kappa, **counts}


def _put_right(
    grid: Grid, named: Mapping[str, Any], a: Mapping[tuple, tuple[bool, bool]], b: Mapping[tuple, tuple[bool, bool]]
) -> dict[str, Any]:
    """TPR and FPR of the judge that answered more, on what it alone judged, as the other would have given them; own explanations only."""
    cheap, reference = (a, b) if len(a) >= len(b) else (b, a)
    found: dict[str, Any] = {"reference": named["scorer_b"] if len(a) >= len(b) else named["scorer_a"]}
    for rate, truth in (("true_positive_rate", True), ("false_positive_rate", False)):
        alone = [says for key, (activating, says) in cheap.items() if key not in reference and activating == truth and not key[3]]
        both = sorted(key for key in cheap.keys() & reference.keys() if cheap[key][0] == truth)
        says_cheap, says_reference = (np.array([of[key][1] for key in both], bool) for of in (cheap, reference))
        rng = rng_for(grid.seed, f"judges {named['sae']} {named['scorer_a']} {named['scorer_b']} {rate}")
        one = corrected_rate(np.array(alone, bool), says_cheap, says_reference, rng)
        found |= {rate: one.rate, f"{rate}_low": one.low, f"{rate}_high": one.high}
    return found
