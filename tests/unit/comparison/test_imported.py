"""Scores of others beside ours: of the same latents alone, by both definitions, never mixed."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from latentry.comparison.imported import imported_table
from latentry.comparison.tables import contrast_sources, latents_table
from latentry.contracts import IMPORT
from latentry.errors import ContractError, ParamsError
from latentry.sections import ImportedSettings
from latentry.store import file_digest
from planted_grid import LATENTS, grid_of, make_sae

SAES = ("topk-1k", "topk-2k")
SCHEMA = IMPORT.tables["scores.parquet"]
OURS = {latent: 0.6 + 0.2 * (latent % 2) for latent in LATENTS[:-1]}
"""What the embedding scorer gives in the planted grid."""
THEIRS = dict(zip([*LATENTS[1:], 500], [0.9, 0.2, 0.8, 0.3, 0.85, 0.1, 0.7, 0.4, 0.95, 0.0], strict=True))


@pytest.fixture
def grid(tmp_path):
    for sae in SAES:
        make_sae(tmp_path / "data", sae)
    return lambda path, **changes: grid_of(tmp_path / "data", saes=SAES, imported={"theirs": settings(path, **changes)})


def settings(path, **changes):
    return ImportedSettings(**{"path": str(path), "sha256": file_digest(path), "sae": "topk-1k", "explainer": "lexical", **changes})


def written(path, *kinds):
    """A file of scores: each kind is a scorer, a metric, whether it was made anew, and scores by latent."""
    rows = [
        {
            "latent": latent,
            "scorer": scorer,
            "metric": metric,
            "recomputed": anew,
            "score": score,
            "n": 20,
            "definition": f"{metric} by them",
        }
        for scorer, metric, anew, scores in kinds
        for latent, score in scores.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
    return path


def table_of(grid):
    return imported_table(grid, latents_table(grid), contrast_sources(grid))


def rows_of(grid):
    return {(row["their_scorer"], row["their_metric"], row["scorer"]): row for row in table_of(grid).to_pylist()}


def test_means_and_ranks_are_of_the_latents_that_both_scored(grid, tmp_path):
    row = rows_of(grid(written(tmp_path / "s.parquet", ("fuzz", "accuracy", False, THEIRS))))["fuzz", "accuracy", "embedding"]
    both = sorted(OURS.keys() & THEIRS.keys())
    a, b = [THEIRS[latent] for latent in both], [OURS[latent] for latent in both]
    assert (row["n"], row["n_theirs"], row["n_ours"]) == (len(both), len(THEIRS), len(OURS)) == (8, 10, 9)
    assert (row["their_mean"], row["mean"]) == pytest.approx((np.mean(a), np.mean(b)))
    assert row["spearman"] == pytest.approx(stats.spearmanr(a, b)[0])
    assert row["spearman_low"] <= row["spearman"] <= row["spearman_high"]
    assert row["their_mean_low"] < row["their_mean"] < row["their_mean_high"]
    assert (row["imported"], row["sae"], row["explainer"], row["recomputed"], row["metric"]) == (
        "theirs",
        "topk-1k",
        "lexical",
        False,
        "auroc_random",
    )
    assert row["definition"] == "accuracy by them"


def test_each_of_their_numbers_has_a_row_per_scorer_of_ours(grid, tmp_path):
    kinds = [("fuzz", "accuracy", False, THEIRS), ("fuzz", "balanced_accuracy", True, THEIRS), ("detection", "accuracy", False, OURS)]
    rows = rows_of(grid(written(tmp_path / "s.parquet", *kinds)))
    assert set(rows) == {(scorer, metric, ours) for scorer, metric, *_ in kinds for ours in ("embedding", "fuzzing")}
    assert rows["detection", "accuracy", "embedding"]["spearman"] == pytest.approx(1)
    assert rows["fuzz", "balanced_accuracy", "fuzzing"]["metric"] == "balanced_accuracy_wrong_position"


def test_other_explainers_and_saes_have_their_own_scores(grid, tmp_path):
    path = written(tmp_path / "s.parquet", ("fuzz", "accuracy", False, THEIRS))
    row = rows_of(grid(path, explainer="default"))["fuzz", "accuracy", "embedding"]
    assert (row["n"], row["mean"], row["their_mean"], row["spearman"]) == (0, None, None, None)


def test_without_imports_there_is_no_row(tmp_path):
    make_sae(tmp_path, "topk-1k")
    assert len(table_of(grid_of(tmp_path, saes=("topk-1k",)))) == 0


def test_a_file_that_changed_or_is_none_is_refused(grid, tmp_path):
    path = written(tmp_path / "s.parquet", ("fuzz", "accuracy", False, THEIRS))
    with pytest.raises(ParamsError, match=r"comparison\.imported\.theirs\.sha256"):
        table_of(grid(path, sha256="0" * 64))
    for content in (b"", b"PAR1 and more"):
        path.write_bytes(content)
        with pytest.raises(ContractError, match="cannot be read as Parquet"):
            table_of(grid(path))
    pq.write_table(pa.table({"latent": [1]}), path)
    with pytest.raises(ContractError, match="has columns"):
        table_of(grid(path))
