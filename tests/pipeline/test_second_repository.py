"""A second repository: explanations and their SAE imported from the first by version, and scored there by another judge on the same windows."""

import hashlib

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.tiny import lay_out, run
from pipeline.versioned import git, published

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FILE = "theirs/explanations/explanations.parquet"


def params_of(second):
    """The same subject and texts, their SAE and their explanations; a judge, and a scorer of our own."""
    params = yaml.safe_load((second / "params.yaml").read_text())
    judge = {"format": "folder", "sources": [{"kind": "random", "purpose": "language_model", "seed": 2}]}
    tiny = {key: params["saes"]["tiny"][key] for key in ("kind", "hookpoint", "width", "loss")}
    digest = hashlib.sha256((second / FILE).read_bytes()).hexdigest()
    theirs = {"kind": "fixed", "path": FILE, "sha256": digest, "sae": "tiny", "explainer": "lexical"}
    changed = {
        "models": {"subject": params["models"]["subject"], "judge": judge},
        "saes": {"tiny": {**tiny, "folder": "theirs/sae"}},
        "examples": {**params["examples"], "contrasts": {"random": {}}},
        "explainers": {"theirs": theirs},
        "scorers": {"detection": params["scorers"]["detection"]},
    }
    return {**params, **changed}


@pytest.fixture(scope="module")
def first(copied):
    return published(copied, "first")


@pytest.fixture(scope="module")
def second(first, tmp_path_factory):
    folder = tmp_path_factory.mktemp("second") / "second"
    lay_out(folder)
    (folder / ".dvc" / "config").write_text("[core]\n    analytics = false\n")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "theirs").mkdir()
    for source, target in (("data/explanations/tiny", "theirs/explanations"), ("data/saes/tiny", "theirs/sae")):
        run(folder, "dvc", "import", "--quiet", str(first.parent / "hub.git"), source, "--out", target)
    (folder / "params.yaml").write_text(yaml.safe_dump(params_of(folder), sort_keys=False))
    run(folder, "latentry", "check")
    run(folder, "dvc", "repro", "--quiet")
    return folder


def rows(folder, name, **wanted):
    table = pq.read_table(folder / "data" / name)
    for column, value in wanted.items():
        table = table.filter(pc.field(column) == value)
    return table.to_pylist()


def test_their_texts_are_taken_as_they_are(first, second):
    theirs = {row["latent"]: row["text"] for row in rows(first, "explanations/tiny/explanations.parquet", explainer="lexical", status="ok")}
    ours = {row["latent"]: row["text"] for row in rows(second, "explanations/tiny/explanations.parquet", status="ok")}
    assert theirs
    assert ours == {latent: " ".join(text.split()) for latent, text in theirs.items()}


def test_another_judge_reads_the_same_windows(first, second):
    def judged(folder, explainer):
        found = rows(folder, "scores/tiny/detection/judgments.parquet", explainer=explainer, null=False)
        return {(row["latent"], row["example_id"]): row["confidence"] for row in found}

    theirs, ours = judged(first, "lexical"), judged(second, "theirs")
    assert theirs.keys() == ours.keys()
    assert theirs != ours
    assert rows(first, "examples/tiny/latents.parquet") == rows(second, "examples/tiny/latents.parquet")


def test_a_newer_version_of_theirs_is_a_change_of_the_study_that_check_names(first, second):
    file = second / FILE
    written = file.read_bytes()
    file.unlink()
    pq.write_table(pq.read_table(first / "data/explanations/tiny/explanations.parquet").slice(1), file)
    said = run(second, "latentry", "check", check=False, capture_output=True)
    assert said.returncode == 2
    assert f"{FILE} has {hashlib.sha256(file.read_bytes()).hexdigest()}" in said.stderr
    file.write_bytes(written)


def test_what_was_imported_and_what_was_made_of_it_is_verified_together(second):
    said = run(second, "latentry", "verify", "data", "theirs", capture_output=True).stdout
    assert "all is as written" in said
    assert "theirs/explanations was made from the one" not in said.partition("data/examples/tiny")[0]
