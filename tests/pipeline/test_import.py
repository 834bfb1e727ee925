"""The whole way of others' explanations: their files, `latentry import`, params, `dvc repro`, and their scores beside ours."""

import gzip
import json
import random
import shutil

import pyarrow.parquet as pq
import pytest
import yaml
from scipy import stats

from pipeline.tiny import lay_out, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCORERS = ("detection", "fuzz")


def put_delphi(folder, latents, rng):
    """Results as delphi leaves them; returns the share marked as correct of each latent and scorer."""
    shares = {}
    (folder / "explanations").mkdir(parents=True)
    for latent in latents:
        (folder / "explanations" / f"model.layers.1_latent{latent}.txt").write_text(json.dumps(f"words that latent {latent} likes"))
        for scorer in SCORERS:
            (folder / "scores" / scorer).mkdir(parents=True, exist_ok=True)
            samples = [sample(place, rng) for place in range(20)]
            (folder / "scores" / scorer / f"model.layers.1_latent{latent}.txt").write_text(json.dumps(samples))
            marked = [one["correct"] for one in samples if one["correct"] is not None]
            shares[scorer, latent] = sum(marked) / len(marked)
    return shares


def sample(place, rng):
    activating, says = place % 2 == 0, rng.choice([True, True, False, None])
    answer = {"prediction": says, "probability": None, "correct": None if says is None else says == activating}
    return {
        "str_tokens": ["a", " b"],
        "activations": [0.0, 1.5 * activating],
        "distance": 3 if activating else -1,
        "activating": activating,
        **answer,
    }


def put_export(folder, latents):
    """A source of a bulk export of Neuronpedia, some of it of no use."""
    (folder / "explanations").mkdir(parents=True)
    named = {"modelId": "tiny", "layer": "1-res", "authorId": "someone", "typeName": "human", "explanationModelName": None}
    rows = [{"id": f"e{latent}", "index": str(latent), "description": f"a person's view of {latent}", **named} for latent in [*latents, 48]]
    with gzip.open(folder / "explanations" / "batch-0.jsonl.gz", "wt") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


def pasted(project, tree, form, source, name):
    """Import, and put what is printed into the parameters, as its reader would."""
    printed = run(project, "latentry", "import", form, source, "--name", name, "--sae", "tiny", capture_output=True).stdout
    block = yaml.safe_load(printed[printed.index("explainers:") :])
    tree["explainers"] |= block["explainers"]
    tree["comparison"].setdefault("imported", {}).update(block.get("comparison", {}).get("imported", {}))
    return printed


def rows_of(folder, table, **wanted):
    return [row for row in pq.read_table(folder / table).to_pylist() if all(row[name] == value for name, value in wanted.items())]


@pytest.fixture(scope="module")
def rescored(tmp_path_factory):
    """A project with one scorer, to which both imports are added when its latents are known, and everything run."""
    project = tmp_path_factory.mktemp("import")
    lay_out(project)
    tree = yaml.safe_load((project / "params.yaml").read_text())
    del tree["models"]["judge"]
    tree["clients"] = {}
    tree["examples"]["contrasts"] = {"random": {}}
    tree["explainers"], tree["scorers"] = {"lexical": {}}, {"embedding": {"model": "encoder"}}
    (project / "params.yaml").write_text(yaml.safe_dump(tree))
    run(project, "dvc", "repro", "--quiet", "examples@tiny")
    latents = [row["latent"] for row in rows_of(project / "data/examples/tiny", "latents.parquet", status="ok")]
    shares = put_delphi(project / "theirs", latents, random.Random(0))
    put_export(project / "1-res", latents[:5])
    printed = [pasted(project, tree, "delphi", "theirs", "delphi"), pasted(project, tree, "neuronpedia", "1-res", "people")]
    (project / "params.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    run(project, "latentry", "check")
    run(project, "dvc", "repro", "--quiet", "compare")
    return project, latents, shares, printed


def test_what_is_imported_is_scored_beside_our_explainers(rescored):
    project, latents, _, printed = rescored
    for explainer, of in (("delphi", latents), ("people", latents[:5])):
        scored = rows_of(project / "data/comparison", "latents.parquet", sae="tiny", explainer=explainer, scorer="embedding", status="ok")
        assert sorted(row["latent"] for row in scored) == sorted(of)
        assert all(row["auroc"] is not None and row["explanation"] for row in scored)
    assert "1 row left out, outside the width of the SAE: explanations/batch-0.jsonl.gz:6 ('48')" in printed[1]
    pairs = rows_of(project / "data/comparison", "explainer_pairs.parquet", sae="tiny", explainer_a="lexical", explainer_b="delphi")
    assert [row["n"] for row in pairs] == [len(latents)]


def test_their_scores_stand_beside_ours_of_the_same_latents(rescored):
    project, latents, shares, _ = rescored
    ours = {
        row["latent"]: row["auroc"]
        for row in rows_of(project / "data/comparison", "latents.parquet", sae="tiny", explainer="delphi", scorer="embedding")
        if row["status"] == "ok"
    }
    for scorer in SCORERS:
        (row,) = rows_of(project / "data/comparison", "imported.parquet", imported="delphi", their_scorer=scorer, their_metric="accuracy")
        theirs = [shares[scorer, latent] for latent in latents]
        assert row["n"] == len(latents) == len(ours)
        assert (row["their_mean"], row["mean"]) == pytest.approx((sum(theirs) / len(theirs), sum(ours.values()) / len(ours)))
        assert row["spearman"] == pytest.approx(stats.spearmanr(theirs, [ours[latent] for latent in latents])[0])
    assert {row["their_metric"] for row in rows_of(project / "data/comparison", "imported.parquet", recomputed=True)} == {
        "balanced_accuracy",
        "f1",
    }
    assert "Scores of others" in (project / "report" / "index.html").read_text()


def test_a_changed_import_is_told_before_anything_is_run(rescored, tmp_path):
    project = shutil.copytree(rescored[0], tmp_path / "changed", symlinks=True)
    path = project / "imports" / "delphi" / "scores.parquet"
    path.write_bytes(path.read_bytes() + b" ")
    told = run(project, "latentry", "check", check=False, capture_output=True)
    assert told.returncode == 2 and "comparison.imported.delphi.sha256" in told.stdout + told.stderr
