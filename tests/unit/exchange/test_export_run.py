"""Exports of a whole run by the command, and of what a colleague's clone has of it."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from latentry.errors import ContractError
from latentry.exchange.bundle import export_bundle
from latentry.exchange.bundle_file import open_bundle
from latentry.exchange.dataset import export_dataset
from latentry.exchange.neuronpedia import Asked, export_neuronpedia
from latentry.exchange.neuronpedia_names import Names
from latentry.params import load_params
from pipeline.tiny import run

pytestmark = pytest.mark.slow
NAMED = ("--method", "human", "--explainer-model", "gpt-4o")


def export(project: Path, *options: str) -> str:
    return run(project, "latentry", "export", *options, capture_output=True).stdout


def test_upload_batches_of_a_run_pass_the_check_and_have_the_subjects_own_logits(whole, tmp_path):
    said = export(whole, "neuronpedia", "tiny", "--explainer", "lexical", *NAMED, "--out", str(tmp_path / "out"))
    assert "as model subject, source 1-tiny" in said
    path = tmp_path / "out" / "batch-00000.json"
    assert "keeps every limit" in export(whole, "neuronpedia", "--check", str(path))
    folder = whole / "data/models/subject"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)
    decoder = load_file(whole / "data/saes/tiny/sae_weights.safetensors")["W_dec"]
    promoted = pq.read_table(whole / "data/examples/tiny/promoted.parquet").to_pylist()
    for feature in json.loads(path.read_text())["features"]:
        with torch.inference_mode():
            logits = model.lm_head(model.model.norm(decoder[feature["index"]]))
        for end, largest in (("topLogits", True), ("bottomLogits", False)):
            found = logits.topk(20, largest=largest)
            assert [one["value"] for one in feature[end]] == pytest.approx(
                found.values.tolist(), rel=1e-4
            )  # float32, another order of sums
            assert [one["token"] for one in feature[end]] == [tokenizer.decode([token]) for token in found.indices.tolist()]
        kept = next(row for row in promoted if row["latent"] == feature["index"])
        assert [one["token"] for one in feature["topLogits"][: len(kept["promoted_tokens"])]] == kept["promoted_tokens"]


def test_a_bundle_and_a_dataset_of_a_run(whole, tmp_path):
    params = load_params(whole / "params.yaml")
    export_bundle(whole, params, tmp_path / "b.zip")
    opened = open_bundle(tmp_path / "b.zip")
    for folder, told in opened.about["folders"].items():
        assert opened.sums[f"{folder}/manifest.json"] == told["manifest"]
    assert {"data/models/subject", "data/tokens", "data/activations/resid-1", "data/latents/tiny"} <= opened.about["folders"].keys()
    export_dataset(whole, params, tmp_path / "dataset", licence=None, with_examples=False)
    explained = pq.ParquetFile(tmp_path / "dataset/data/explanations/tiny.parquet").read().to_pylist()
    served = {row["explainer_model_served"] for row in explained if row["explainer"] == "default"}
    assert served == {opened.about["models"]["judge"]["files_digest"]}


def test_a_clone_without_weights_and_activations_exports_its_results(whole, copied, tmp_path):
    clone = copied("clone")
    for room in ("models", "activations", "latents", "tokens"):
        shutil.rmtree(clone / "data" / room)
    params = load_params(whole / "params.yaml")
    for project, name in ((clone, "theirs"), (whole, "ours")):
        export_dataset(project, params, tmp_path / name, licence=None, with_examples=False)
    tables = [path.relative_to(tmp_path / "ours") for path in (tmp_path / "ours/data").rglob("*.parquet")]
    same = [path for path in tables if "provenance" not in path.parts]
    assert all((tmp_path / "theirs" / path).read_bytes() == (tmp_path / "ours" / path).read_bytes() for path in same)
    names = Names(model="subject", source="1-tiny", method="human", explainer_model="gpt-4o")
    with pytest.raises(ContractError, match="leave them out by --no-logits"):
        export_neuronpedia(clone, params, Asked(sae="tiny", explainer="lexical", names=names), tmp_path / "out")
    export_neuronpedia(clone, params, Asked(sae="tiny", explainer="lexical", names=names, with_logits=False), tmp_path / "out")
    assert "topLogits" not in json.loads((tmp_path / "out/batch-00000.json").read_text())["features"][0]
