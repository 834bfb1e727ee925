"""Each format as the field writes it: specimens that the libraries themselves made and measured, and exports laid out by hand."""

import csv
import gzip
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from latentry.errors import ExchangeError
from latentry.exchange import from_delphi, from_neuronpedia, from_rows, from_saebench, imported
from latentry.exchange.imported import sift

SPECIMENS = Path(__file__).parents[2] / "specimens"
DELPHI, SAEBENCH = SPECIMENS / "delphi-0.1.3", SPECIMENS / "saebench-0.6.0.json"


def texts(taken):
    return {latent: text.text for latent, text in taken.texts.items()}


def scores(taken, latent, scorer, *, recomputed):
    return {metric: one for (name, metric, made), one in taken.scores[latent].items() if (name, made) == (scorer, recomputed)}


def test_delphi_texts_are_taken_and_what_it_writes_for_none_is_none():
    taken = sift(from_delphi.source(DELPHI).rows, 48, {})
    assert texts(taken) == {latent: f"words about tax, {latent} “quoted”" for latent in (3, 17, 40)}
    assert taken.left.counts == {imported.OUTSIDE: 1, imported.EMPTY: 1}
    assert taken.texts[3].about == {"explainer_model": "a/writer", "method": "default"}


def test_scores_made_anew_are_those_of_delphi_itself():
    """Its own balanced accuracy, F1 and AUROC of the same samples, and which of them have no answer."""
    taken = sift(from_delphi.source(DELPHI).rows, 48, {})
    expected = json.loads((DELPHI / "expected.json").read_text())
    for latent in (3, 17, 40):
        for scorer in ("detection", "fuzz"):
            wanted = expected[f"{scorer} {latent}"]
            found = scores(taken, latent, scorer, recomputed=True)
            assert {name: one.score for name, one in found.items()} == pytest.approx(
                {name: wanted[name] for name in ("balanced_accuracy", "f1", "auroc") if wanted[name] is not None}
            )
            assert {(one.counts.n, one.counts.n_failed) for one in found.values()} == {(wanted["n"], wanted["n_failed"])}


def test_delphi_own_number_is_the_share_it_marked_as_correct():
    taken = sift(from_delphi.source(DELPHI).rows, 48, {})
    samples = json.loads((DELPHI / "scores" / "fuzz" / "layers.1_latent3.txt").read_text())
    marked = [sample["correct"] for sample in samples if sample["correct"] is not None]
    (theirs,) = scores(taken, 3, "fuzz", recomputed=False).values()
    assert (theirs.score, theirs.counts.n, theirs.counts.n_failed) == (sum(marked) / len(marked), len(marked), len(samples) - len(marked))


def test_hookpoints_of_one_folder_of_delphi_are_told_apart(tmp_path):
    folder = shutil.copytree(DELPHI, tmp_path / "results")
    (folder / "explanations" / "layers.2.mlp_latent3.txt").write_text('"of another"')
    with pytest.raises(ExchangeError, match=r"hookpoint has 2 values: 'layers\.1' .*--where hookpoint="):
        sift(from_delphi.source(folder).rows, 48, {})
    assert texts(sift(from_delphi.source(folder).rows, 48, {"hookpoint": "layers.2.mlp"})) == {3: "of another"}


def test_a_simulation_of_delphi_gives_its_correlation_over_all_windows(tmp_path):
    folder = shutil.copytree(DELPHI, tmp_path / "results")
    (folder / "scores" / "simulation").mkdir()
    groups = [
        {"distance": at, "scored_sequence_simulations": [{}] * (5 + at), "ev_correlation_score": r} for at, r in ((0, 0.9), (-1, 0.4))
    ]
    for latent, found in ((3, groups), (17, [groups[1] | {"ev_correlation_score": "nan"}]), (40, groups[:1])):
        (folder / "scores" / "simulation" / f"layers.1_latent{latent}.txt").write_text(json.dumps(found))
    taken = sift(from_delphi.source(folder).rows, 48, {})
    (one,) = scores(taken, 3, "simulation", recomputed=False).values()
    assert (one.metric, one.score, one.counts.n) == ("pearson", 0.4, 4)
    assert taken.left_scores.counts[imported.NO_NUMBER] == taken.left_scores.counts[imported.UNREADABLE] == 1


@pytest.mark.parametrize(
    "content",
    [
        '{"a": 1}',
        "[]",
        "[3]",
        '[{"activating": true}]',
        '[{"activating": "yes", "prediction": true, "correct": true}]',
        '[{"activating": true, "prediction": true, "correct": true, "probability": NaN}]',
        '[{"activating": true, "prediction": true, "correct": true, "probability": 2}]',
        "[" * 100_000,
        "\x00",
    ],
)
def test_a_file_of_scores_that_holds_no_answers_is_told(tmp_path, content):
    folder = shutil.copytree(DELPHI, tmp_path / "results")
    (folder / "scores" / "fuzz" / "layers.1_latent3.txt").write_text(content)
    taken = sift(from_delphi.source(folder).rows, 48, {})
    assert taken.left_scores.first[imported.UNREADABLE][0].startswith("scores/fuzz/layers.1_latent3.txt (")
    assert not scores(taken, 3, "fuzz", recomputed=False)


def test_odd_names_are_told_and_nothing_of_what_is_no_text_is_shown(tmp_path):
    folder = shutil.copytree(DELPHI, tmp_path / "results")
    (tmp_path / "secret.txt").write_text("a secret")
    (folder / "explanations" / "layers.1_latent7.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "explanations" / "layers.1_latent-4.txt").write_text('"x"')
    (folder / "explanations" / "notes.txt").write_text('"x"')
    taken = sift(from_delphi.source(folder).rows, 48, {})
    assert taken.left.counts[imported.UNREADABLE] == 2 and taken.left.counts[imported.OUTSIDE] == 2
    assert "a secret" not in str(taken.left)


def explained(index, description, **more):
    row = {
        "id": f"id{index}",
        "modelId": "gpt2-small",
        "layer": "6-res-jb",
        "index": index,
        "authorId": "someone",
        "description": description,
    }
    return {**row, "embedding": "[0.1,0.2]", "typeName": "oai_token-act-pair", "explanationModelName": "gpt-4o-mini", **more}


def export(folder, *batches):
    (folder / "explanations").mkdir(parents=True)
    for number, rows in enumerate(batches):
        with gzip.open(folder / "explanations" / f"batch-{number}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(row)}\n" for row in rows)
    (folder / "release.jsonl").write_text(json.dumps({"name": "res-jb", "creatorName": "someone else"}) + "\n")
    (folder / "source.jsonl").write_text("{broken\n")
    (folder / "activations").mkdir()
    (folder / "activations" / "batch-0.jsonl.gz").write_bytes(b"never read")
    return folder


def test_an_export_of_neuronpedia_is_read_batch_after_batch(tmp_path):
    batches = [[explained(str(number), f"text {number}")] for number in range(11)]
    source = from_neuronpedia.source(export(tmp_path / "6-res-jb", *batches))
    assert [file.name for file in source.files[2:]] == [f"batch-{number}.jsonl.gz" for number in range(11)]
    taken = sift(source.rows, 48, {})
    assert texts(taken) == {number: f"text {number}" for number in range(11)}
    assert taken.texts[3].about == {"explainer_model": "gpt-4o-mini", "method": "oai_token-act-pair", "author": "someone"}
    assert source.provenance == {"release": "res-jb", "release_creator": "someone else"}


def test_sources_methods_and_models_of_an_export_are_chosen_by_their_names(tmp_path):
    export(tmp_path / "all" / "6-res-jb", [explained("1", "six"), explained("2", "human", typeName="human", explanationModelName=None)])
    export(tmp_path / "all" / "7-res-jb", [explained("1", "seven", layer="7-res-jb")])
    rows = lambda: from_neuronpedia.source(tmp_path / "all").rows  # noqa: E731
    with pytest.raises(ExchangeError, match=r"layer has 2 values.*typeName has 2 values.*explanationModelName has 2 values"):
        sift(rows(), 48, {})
    assert texts(sift(rows(), 48, {"layer": "7-res-jb"})) == {1: "seven"}
    assert texts(sift(rows(), 48, {"explanationModelName": ""})) == {2: "human"}


def test_a_folder_that_is_none_of_the_formats_is_told_what_is_wanted(tmp_path):
    for module in (from_neuronpedia, from_delphi):
        with pytest.raises(ExchangeError, match="holds no explanations/"):
            module.source(tmp_path)
        with pytest.raises(ExchangeError, match=r"is a file; .* wants a folder"):
            module.source(SAEBENCH)
    for module in (from_saebench, from_rows):
        with pytest.raises(ExchangeError, match=r"is no file; .* wants a file"):
            module.source(tmp_path)


def test_saebench_scores_stand_beside_those_made_anew_of_its_answers():
    taken = sift(from_saebench.source(SAEBENCH).rows, 48, {})
    rows = json.loads(SAEBENCH.read_text())["eval_result_unstructured"]
    assert texts(taken) == {latent: f"words like {latent}" for latent in (2, 30, 31)}
    (theirs,) = scores(taken, 2, "autointerp", recomputed=False).values()
    assert (theirs.score, theirs.counts.n, theirs.counts.n_activating) == (rows["2"]["score"], 14, 4)
    hits = len(set(rows["2"]["predictions"]) & set(rows["2"]["correct seqs"]))
    by_hand = (hits / 4 + 1 - (3 - hits) / 10) / 2
    assert scores(taken, 2, "autointerp", recomputed=True)["balanced_accuracy"].score == pytest.approx(by_hand)


def test_answers_that_do_not_give_the_score_that_is_written_are_not_used():
    taken = sift(from_saebench.source(SAEBENCH).rows, 48, {})
    assert not scores(taken, 31, "autointerp", recomputed=True)
    assert scores(taken, 31, "autointerp", recomputed=False)["accuracy"].score == 0.123


@pytest.mark.parametrize("content", ["[]", "{", '{"eval_result_unstructured": null}', '{"eval_result_metrics": {}}'])
def test_a_file_of_saebench_without_texts_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ExchangeError, match=r"a\.json: (is no JSON object|has no `eval_result_unstructured`)"):
        from_saebench.source(tmp_path / "a.json")


def test_odd_latents_of_saebench_are_left_out_and_told(tmp_path):
    found = {"1": None, "2": {"explanation": 3}, "x": {"explanation": "a"}, "4": {"explanation": "b", "score": "NaN", "predictions": [[]]}}
    (tmp_path / "a.json").write_text(json.dumps({"eval_config": 3, "eval_result_unstructured": found}))
    taken = sift(from_saebench.source(tmp_path / "a.json").rows, 48, {})
    assert (texts(taken), taken.left.counts) == ({4: "b"}, {imported.EMPTY: 1, imported.UNREADABLE: 2})
    assert taken.left_scores.counts == {imported.NO_NUMBER: 1}


def write_rows(path, rows):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        content = "\r\n".join(map(json.dumps, rows)).encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_plain_rows_bring_texts_and_scores_in_every_format(tmp_path, name):
    of = {"explainer": "people", "author": "A. Person"}
    rows = [
        {"latent": 1, "text": "taxes", "score": 0.75, "scorer": "detection", "metric": "auroc", "n": 40, **of},
        {"latent": 1, "text": "taxes", "score": 0.5, "scorer": "fuzzing", "metric": "auroc", "n": 20, **of},
        {"latent": 2, "text": "the sea", "score": None, "scorer": None, "metric": None, "n": None, **of},
    ]
    write_rows(tmp_path / name, rows)
    taken = sift(from_rows.source(tmp_path / name).rows, 48, {})
    assert (texts(taken), taken.left.counts) == ({1: "taxes", 2: "the sea"}, {imported.SAME: 1})
    assert {(key[:2], float(one.score), one.counts.n) for key, one in taken.scores[1].items()} == {
        (("detection", "auroc"), 0.75, 40),
        (("fuzzing", "auroc"), 0.5, 20),
    }
    assert taken.texts[1].about == {"author": "A. Person"}


def test_our_own_explanations_can_be_imported_and_failures_are_no_texts(tmp_path):
    rows = [
        {"latent": latent, "explainer": "default", "text": text, "status": status}
        for latent, text, status in ((1, "a", "ok"), (2, None, "refused"))
    ]
    write_rows(tmp_path / "explanations.parquet", [*rows, {"latent": 1, "explainer": "lexical", "text": "b", "status": "ok"}])
    taken = sift(from_rows.source(tmp_path / "explanations.parquet").rows, 48, {"explainer": "default"})
    assert (texts(taken), taken.left.counts) == ({1: "a"}, {imported.EMPTY: 1, imported.NOT_CHOSEN: 1})
