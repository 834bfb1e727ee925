"""Upload batches: what stands in them is what the results say, and what may not leave the project does not."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from exportable_study import make_exportable, study_params
from latentry.cli.exports import export
from latentry.errors import ContractError, ExchangeError, ParamsError
from latentry.exchange.neuronpedia import Asked, Exported, export_neuronpedia, token_texts
from latentry.exchange.neuronpedia_limits import breaches_of_files
from latentry.exchange.neuronpedia_names import Given, Names, explainer_of, names_of
from latentry.store import MANIFEST, file_digest
from made_up_study import HOSTILE

NAMES = Names(model="smollm2", source="1-topk-1k", method="np_max-act", explainer_model="gpt-4o-mini")
LEXICAL = Asked(sae="topk-1k", explainer="lexical", names=NAMES, with_logits=False)


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("study")
    make_exportable(root)
    return root


@pytest.fixture(scope="module")
def exported(study, tmp_path_factory) -> tuple[Path, Exported]:
    """The lexical labels of one SAE as they are written, and what was said of it."""
    out = tmp_path_factory.mktemp("exported") / "out"
    return out, export_neuronpedia(study, study_params(), LEXICAL, out)


@pytest.fixture
def own(study, tmp_path) -> Path:
    return Path(shutil.copytree(study, tmp_path / "own"))


def rows(study: Path, room: str, table: str) -> list[dict]:
    return pq.read_table(study / "data" / room / "topk-1k" / f"{table}.parquet").to_pylist()


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_tokens_join_to_the_text_whatever_its_script():
    text = "a  鯨🐋 é<end"
    spans = [0, 1, 3, 4, 4, 5, 4, 5, 4, 5, 6, 7]  # two spaces lie between tokens, three tokens share the whale
    assert token_texts(text, spans) == ["a", "  鯨", "🐋", "", "", " é<end"]
    assert token_texts(" sea", [1, 4]) == [" sea"]


def test_a_batch_holds_what_the_results_say(study, exported):
    out, done = exported
    (batch,) = lines(out / "batch-00000.json")
    said = {
        row["latent"]: row["text"] for row in rows(study, "explanations", "explanations") if row["explainer"] == "lexical" and row["text"]
    }
    frequencies = {row["latent"]: row["firing_frequency"] for row in rows(study, "examples", "latents")}
    assert (batch["modelId"], batch["source"]) == ("smollm2", "1-topk-1k")
    assert {one["index"]: one["explanations"][0]["text"] for one in batch["features"]} == said
    assert {one["index"]: one["density"] for one in batch["features"]} == {latent: frequencies[latent] for latent in said}
    assert done.n_latents == len(said) == 13
    assert dict(done.left_out) == {"dead": 1, "undersampled": 1}
    assert not list(breaches_of_files([out / "batch-00000.json"]))


def test_activations_are_the_strongest_windows_with_their_own_text(study, exported):
    (batch,) = lines(exported[0] / "batch-00000.json")
    first = batch["features"][0]
    windows = [row for row in rows(study, "examples", "examples") if (row["latent"], row["kind"]) == (first["index"], "activating")]
    peaks = [max(activation["values"]) for activation in first["activations"]]
    assert peaks == sorted((max(row["activations"]) for row in windows), reverse=True)
    texts = ["".join(activation["tokens"]) for activation in first["activations"]]
    assert sorted(texts) == sorted(row["text"] for row in windows)
    assert any(HOSTILE in text for text in texts)


def test_fewer_windows_are_the_strongest_of_all(study, tmp_path):
    export_neuronpedia(
        study, study_params(), Asked(sae="topk-1k", explainer="lexical", names=NAMES, with_logits=False, n_activations=1), tmp_path / "out"
    )
    (batch,) = lines(tmp_path / "out" / "batch-00000.json")
    assert [[max(one["values"]) for one in feature["activations"]] for feature in batch["features"]] == [[9.0]] * 13


def test_what_cannot_be_uploaded_stands_beside_with_its_origin(study, tmp_path):
    out = tmp_path / "out"
    asked = Asked(sae="topk-1k", explainer="default", names=NAMES, with_logits=False)
    done = export_neuronpedia(study, study_params(), asked, out)
    explained = {row["latent"]: row for row in rows(study, "explanations", "explanations") if row["explainer"] == "default"}
    ok = [latent for latent, row in explained.items() if row["status"] == "ok"]
    assert dict(done.left_out) == {"parse_error": 1, "not asked": 9}
    assert [row["latent"] for row in lines(out / "labels.jsonl")] == ok
    assert all(row["prompt_digest"] == explained[row["latent"]]["prompt_digest"] for row in lines(out / "labels.jsonl"))
    scores = lines(out / "scores.jsonl")
    assert {row["scorer"] for row in scores} == {"embedding", "detection", "fuzzing"}
    assert {row["latent"] for row in scores} == set(ok)
    assert all((row["chance"], row["explainer"]) == (0.5, "default") for row in scores)
    told = json.loads((out / "provenance.json").read_text())
    weights = json.loads((study / "data/saes/topk-1k" / MANIFEST).read_text())["files"]["cfg.json"]
    assert told["saes"]["topk-1k"]["weights"] == {"cfg.json": weights}
    assert told["folders"]["data/explanations/topk-1k"]["manifest"] == file_digest(study / "data/explanations/topk-1k" / MANIFEST)


def test_the_same_results_give_the_same_bytes(study, exported, tmp_path):
    export_neuronpedia(study, study_params(), LEXICAL, tmp_path / "again")
    files = sorted(path.name for path in exported[0].iterdir())
    assert all((exported[0] / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in files)


def remake(folder: Path, change) -> None:
    """Change a table of explanations, and the manifest with it, as if a stage had written it so."""
    path = folder / "explanations.parquet"
    table = pq.read_table(path)
    pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema), path)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][path.name], manifest["sizes"][path.name] = file_digest(path), path.stat().st_size
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.fixture
def long_text(own) -> tuple[Path, int]:
    """A study in which one explanation is too long for Neuronpedia, and its latent."""
    folder, lexical = own / "data/explanations/topk-1k", {}

    def change(table: list[dict]) -> list[dict]:
        row = next(row for row in table if row["explainer"] == "lexical" and row["status"] == "ok")
        lexical["latent"], row["text"] = row["latent"], "w" * 600
        return table

    remake(folder, change)
    return own, lexical["latent"]


def test_a_long_explanation_is_told_and_nothing_is_cut_or_written(long_text, tmp_path):
    here, latent = long_text
    with pytest.raises(ExchangeError, match=rf"latent {latent}: explanations\[0\].text: has 600 characters; 1 to 512"):
        export_neuronpedia(here, study_params(), LEXICAL, tmp_path / "out")
    assert list(tmp_path.glob("*out*")) == []


def test_latents_that_break_a_limit_can_be_left_out_and_are_counted(long_text, tmp_path):
    here, latent = long_text
    asked = Asked(sae="topk-1k", explainer="lexical", names=NAMES, with_logits=False, leave_out=True)
    done = export_neuronpedia(here, study_params(), asked, tmp_path / "out")
    (batch,) = lines(tmp_path / "out" / "batch-00000.json")
    assert latent not in [one["index"] for one in batch["features"]]
    assert (done.n_latents, done.left_out["breaks a limit"], [breach.latent for breach in done.breaches]) == (12, 1, [latent])


def test_a_latent_explained_without_a_window_is_told_and_not_lost(own, tmp_path):
    def explain_the_dead(table: list[dict]) -> list[dict]:
        return [row | {"text": "from a file", "status": "ok"} if row["status"] == "dead" else row for row in table]

    remake(own / "data/explanations/topk-1k", explain_the_dead)
    with pytest.raises(ExchangeError, match=r"latent \d+: activations: is empty; a list of at least one"):
        export_neuronpedia(own, study_params(), LEXICAL, tmp_path / "out")


@pytest.mark.parametrize(
    ("folder", "rerun"),
    [("examples/topk-1k", "examples@topk-1k"), ("scores/topk-1k/detection", "score@topk-1k-detection"), ("comparison", "compare")],
)
def test_missing_results_are_refused_with_what_to_rerun(own, tmp_path, folder, rerun):
    shutil.rmtree(own / "data" / folder)
    with pytest.raises(ContractError, match=f"data/{folder}.*rerun `dvc repro {rerun}`"):
        export_neuronpedia(own, study_params(), LEXICAL, tmp_path / "out")


def test_a_changed_byte_is_refused_by_its_file(own, tmp_path):
    path = own / "data/explanations/topk-1k/explanations.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ContractError, match=r"explanations\.parquet: has changed"):
        export_neuronpedia(own, study_params(), LEXICAL, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_results_of_other_params_are_refused(own, tmp_path):
    manifest = own / "data/comparison" / MANIFEST
    found = json.loads(manifest.read_text())
    found["params"] = {"seed": 0, "scorers": {"embedding": {"max_latents": 3, "since_removed": None}}}
    manifest.write_text(json.dumps(found))
    with pytest.raises(ContractError, match=r"comparison: made with scorers.embedding.max_latents = 3, which is None"):
        export_neuronpedia(own, study_params(), LEXICAL, tmp_path / "out")


def test_what_is_there_is_replaced_only_by_force_and_only_an_export(study, exported, tmp_path):
    out, mine = Path(shutil.copytree(exported[0], tmp_path / "out")), tmp_path / "mine"
    (out / "left").write_text("of the first")
    with pytest.raises(ExchangeError, match="there already"):
        export_neuronpedia(study, study_params(), LEXICAL, out)
    export_neuronpedia(study, study_params(), LEXICAL, out, force=True)
    assert not (out / "left").exists()
    mine.mkdir()
    (mine / "thesis").write_text("years of work")
    with pytest.raises(ExchangeError, match="replaces an earlier export only"):
        export_neuronpedia(study, study_params(), LEXICAL, mine, force=True)
    assert (mine / "thesis").read_text() == "years of work"


def test_names_come_from_params_where_params_tell_them():
    hub = {"kind": "hub", "id": "EleutherAI/Pythia-160m", "revision": "main"}
    endpoint = {"judge": {"kind": "openai_compatible", "model": "gpt-4o-mini"}}
    params = study_params(
        models__subject={"format": "folder", "sources": [hub]},
        clients=endpoint,
        run={"clients": {"judge": {"base_url": "http://localhost:1/v1"}}},
        examples__explain={"n": 20, "how": "top"},
        examples__min_examples=40,
    )
    assert names_of(params, "topk-1k", "default", Given()) == Names(
        model="pythia-160m", source="1-topk-1k", method="eleuther_acts_top20", explainer_model="gpt-4o-mini"
    )


def test_names_that_params_do_not_tell_are_asked_for_all_at_once():
    params = study_params(subject__hookpoints={"resid-1": {"module": "lm_head"}})
    with pytest.raises(ParamsError) as refused:
        names_of(params, "topk-1k", "lexical", Given())
    assert [fault.split(":")[0] for fault in refused.value.faults] == ["--source", "--method", "--explainer-model"]
    with pytest.raises(ParamsError, match="several"):
        explainer_of(params, None)


def test_a_name_that_neuronpedia_does_not_know_is_refused_before_any_work(tmp_path):
    asked = Asked(sae="topk-1k", explainer="lexical", names=Names(model="M", source="x", method="mine", explainer_model="yours"))
    with pytest.raises(ExchangeError) as refused:
        export_neuronpedia(tmp_path, study_params(), asked, tmp_path / "out")
    assert [line.split(":")[0] for line in str(refused.value).splitlines()[:4]] == ["modelId", "source", "methodName", "modelName"]


def test_the_command_checks_files_of_others(tmp_path):
    (tmp_path / "batch.json").write_text(json.dumps({"modelId": "m", "source": "1-x", "features": []}))
    done = CliRunner().invoke(export, ["neuronpedia", "--check", str(tmp_path / "batch.json")])
    assert isinstance(done.exception, ExchangeError)
    assert "features: has 0 latents" in str(done.exception)
