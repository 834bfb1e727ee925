"""What `latentry check` finds wrong before any work, beyond what params.yaml says of itself."""

import gzip
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner
from safetensors.numpy import save_file

from latentry.cli import commands
from latentry.contracts import IMPORT, MODEL
from latentry.errors import ParamsError
from latentry.models.random import Config, build
from latentry.params import Params, load_params, parse_params
from latentry.preflight import Found, check, make_markers, mend_lock, unwritten
from native_saes import ALL, WIDTH
from planted_folders import finish
from small_params import small_params


@pytest.fixture(autouse=True)
def corpus(project: Path) -> None:
    (project / "corpus").mkdir()
    (project / "corpus" / "a.txt").write_text("some text")


def made(name: str = "subject") -> None:
    config = Config(kind="random", purpose="language_model", d_model=16, n_layers=2)
    finish(Path("data/models", name), MODEL, lambda making: build(config).fetch(Path(), making.folder))


def params(**changes) -> Params:
    return parse_params(small_params(**changes))


def found(**changes) -> Found:
    return check(params(**changes))


def test_a_fresh_project_has_no_fault_and_says_what_only_later_stages_know():
    outcome = found()
    assert outcome.faults == ()
    assert [said.split(":")[0] for said in outcome.not_checked] == ["clients.judge", "subject.hookpoints"]
    assert all("dvc repro models" in said for said in outcome.not_checked)


def test_once_the_models_are_made_everything_is_checked():
    made()
    assert found() == Found(faults=(), not_checked=())


def test_a_hookpoint_that_does_not_exist_is_answered_with_the_nearest_and_all_are_told():
    made()
    wrong = {"resid-1": {"module": "model.layers.1"}, "a": {"module": "model.layer.1"}, "b": {"module": "model.layers.7"}}
    faults = found(subject__hookpoints=wrong).faults
    assert len(faults) == 2
    assert faults[0].startswith("subject.hookpoints.a.module: 'model.layer.1' is no module of the subject; did you mean 'model.layers.1'?")
    assert faults[1].startswith("subject.hookpoints.b.module: 'model.layers.7'")


@pytest.mark.parametrize(("module", "is_mlp"), [("model.layers.1.mlp", True), ("model.layers.1.self_attn", False)])
def test_a_jacobian_of_what_is_no_mlp_is_told_with_what_it_is_made_of(module, is_mlp):
    made()
    trained = {"kind": "sae_lens", "width": 64, "loss": "topk", "train": {"epochs": 1, "k": 4}}
    faults = found(
        subject__hookpoints={"read": {"module": module, "side": "input"}, "written": {"module": module}},
        saes={name: {**trained, "hookpoint": name} for name in ("read", "written")},
        jacobians={"one": {"input": "read", "output": "written", "scorer": "embedding"}},
    ).faults
    assert len(faults) == (0 if is_mlp else 1)
    if faults:
        assert faults[0].startswith("jacobians.one.output: hookpoint 'written' is the output of model.layers.1.self_attn, a ")
        assert "q_proj" in faults[0]
        assert faults[0].endswith("name the output of one, such as `model.layers.1.mlp`, `model.layers.0.mlp`")


@pytest.mark.parametrize(("module", "is_mlp"), [("model.layers.1.mlp", True), ("model.layers.1.self_attn", False)])
def test_a_pair_that_is_trained_on_what_is_no_mlp_is_told_for_each_half(module, is_mlp):
    made()
    saes = {
        f"jsae-{half}": {
            "kind": "jsae",
            "half": half,
            "hookpoint": half,
            "width": 64,
            "train": {"epochs": 1, "k": 4, "partner": partner},
        }
        for half, partner in (("input", "output"), ("output", "input"))
    }
    points = {half: {"module": module, "side": half} for half in ("input", "output")}
    faults = found(subject__hookpoints=points, saes=saes).faults
    assert [fault.split(":")[0] for fault in faults] == ([] if is_mlp else ["saes.jsae-input", "saes.jsae-output"])
    assert all("model.layers.1.self_attn" in fault and "q_proj" in fault for fault in faults)


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.txt", b""), ("a.txt", b" \n\t"), ("a.jsonl", b""), ("a.jsonl", b'{"text": ""}\n'), ("a.txt.gz", gzip.compress(b""))],
)
def test_a_corpus_without_text_is_told(name, content):
    Path("corpus/a.txt").unlink()
    Path("corpus", name).write_bytes(content)
    assert [fault.split(";")[0] for fault in found().faults] == ["corpus: is empty"]


def test_a_corpus_that_is_not_there_is_told():
    assert found(corpus__path="nowhere").faults[0].startswith("corpus.path: nowhere is not there")


def test_a_sae_whose_folder_is_not_there_is_told():
    sae = {"kind": "sae_lens", "hookpoint": "resid-1", "width": 8, "loss": "topk", "folder": "weights/mine"}
    faults = found(saes={"mine": sae}).faults
    assert [fault.split(";")[0] for fault in faults] == ["saes.mine.folder: weights/mine is not there"]


ROOT = Path(__file__).parents[2]
API = {"judge": {"kind": "openai_compatible", "model": "m"}}


@pytest.mark.parametrize(
    ("run", "path"),
    [
        ({}, "run.clients.judge.base_url"),
        ({"base_url": "http://example.org/v1"}, "run.clients.judge.base_url"),
        ({"base_url": "example.org"}, "run.clients.judge.base_url"),
        ({"base_url": "https://example.org/v1", "key_env": "NO_SUCH_KEY"}, "run.clients.judge.key_env"),
    ],
)
def test_an_endpoint_without_url_or_key_is_told_with_its_path(monkeypatch, run, path):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    faults = found(clients=API, run__clients={"judge": run}).faults
    assert len(faults) == 1
    assert faults[0].startswith(f"{path}: ")


def test_an_endpoint_with_its_key_in_the_environment_is_fine_and_the_key_is_said_nowhere(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "s3cret")
    outcome = found(clients=API, run__clients={"judge": {"base_url": "https://example.org/v1", "key_env": "SOME_KEY"}})
    assert outcome.faults == ()
    assert "s3cret" not in str(outcome)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", ""])
def test_a_device_that_this_machine_lacks_is_told(device):
    faults = found(run__device=device).faults
    assert len(faults) == 1
    assert faults[0].startswith(f"run.device: {device!r} is no device")


def test_faults_of_every_kind_are_told_at_once():
    faults = found(corpus__path="nowhere", clients=API, run__device="gpu").faults
    assert [fault.split(":")[0] for fault in faults] == ["corpus.path", "run.clients.judge.base_url", "run.device"]


def test_a_file_of_explanations_is_checked_before_any_work():
    texts = Path("texts.csv")
    texts.write_text("latent,text\n99,taxes\n")
    digest = hashlib.sha256(texts.read_bytes()).hexdigest()
    (fault,) = found(explainers__people={"kind": "fixed", "path": "texts.csv"}).faults
    assert fault.startswith("explainers.people.sha256") and digest in fault
    (fault,) = found(explainers__people={"kind": "fixed", "path": "texts.csv", "sha256": digest}).faults
    assert "99 is no latent of SAE 'topk-64', which has 0 to 63" in fault
    (fault,) = found(explainers__people={"kind": "fixed", "path": "nowhere.csv", "sha256": digest}).faults
    assert "nowhere.csv: cannot be read" in fault


def test_texts_that_no_sae_would_get_are_told():
    texts = Path("texts.csv")
    texts.write_text("sae,latent,text\ntopk-46,9,taxes\n")
    digest = hashlib.sha256(texts.read_bytes()).hexdigest()
    (fault,) = found(explainers__people={"kind": "fixed", "path": "texts.csv", "sha256": digest}).faults
    assert fault.startswith("explainers.people.path: no row is of a SAE under `saes` (topk-64)")


def test_imported_scores_are_checked_before_any_work():
    Path("scores.parquet").write_text("x")
    entry = {"path": "scores.parquet", "sae": "topk-64", "explainer": "lexical"}
    (fault,) = found(comparison__imported={"theirs": entry}).faults
    assert fault.startswith("comparison.imported.theirs.sha256: is missing") and hashlib.sha256(b"x").hexdigest() in fault
    digest = hashlib.sha256(b"x").hexdigest()
    (fault,) = found(comparison__imported={"theirs": {**entry, "sha256": digest}}).faults
    assert fault.startswith("comparison.imported.theirs.path: scores.parquet cannot be read as Parquet")
    (fault,) = found(comparison__imported={"theirs": {**entry, "sha256": digest, "path": "gone.parquet"}}).faults
    assert "gone.parquet: cannot be read" in fault


@pytest.mark.parametrize(("table", "told"), [("scores.parquet", ""), ("explanations.parquet", "has the columns latent, text, ")])
def test_a_file_that_holds_no_scores_of_an_import_is_told_by_its_columns(table, told):
    pq.write_table(IMPORT.tables[table].empty_table(), "some.parquet")
    digest = hashlib.sha256(Path("some.parquet").read_bytes()).hexdigest()
    entry = {"path": "some.parquet", "sha256": digest, "sae": "topk-64", "explainer": "lexical"}
    faults = found(comparison__imported={"theirs": entry}).faults
    assert len(faults) == bool(told)
    assert all(fault.startswith(f"comparison.imported.theirs.path: some.parquet {told}") for fault in faults)


def checked(tree: dict):
    Path("params.yaml").write_text(yaml.safe_dump(tree))
    return CliRunner().invoke(commands, ["check"], standalone_mode=False)


def test_the_command_counts_what_will_run():
    result = checked(small_params())
    assert result.exception is None
    # models 2; tokens, activations, compare, track; sae, latents, examples, explain and three scorers for one SAE.
    assert result.output.splitlines()[-1] == "params.yaml is fine: 1 SAEs, 2 explainers, 3 scorers, 13 cells"


def test_the_command_fails_with_all_faults():
    result = checked(small_params(corpus__path="nowhere", run__device="gpu"))
    assert isinstance(result.exception, ParamsError)
    assert len(result.exception.faults) == 2
    assert result.exception.exit_code == 2


def test_a_lock_that_a_kill_cut_short_is_set_aside_and_a_whole_one_is_left(tmp_path):
    lock = tmp_path / "dvc.lock"
    lock.write_text("")
    assert len(list(mend_lock(tmp_path))) == 1
    assert not lock.exists()
    lock.write_text("schema: '2.0'\nstages: {}\n")
    assert list(mend_lock(tmp_path)) == []
    assert lock.exists()


def test_the_folders_that_compare_reads_are_put_back_where_data_was_deleted(tmp_path):
    declared = yaml.safe_load(Path(__file__).parents[2].joinpath("dvc.yaml").read_text())["stages"]["compare"]["deps"]
    make_markers(tmp_path)
    made = {path.relative_to(tmp_path).parent.as_posix() for path in tmp_path.rglob(".keep")}
    assert made == {"data/jacobians", "data/edges"}
    assert made <= set(declared)
    make_markers(tmp_path)  # again, where they stand
    assert checked(small_params()).exception is None
    assert Path("data/edges/.keep").is_file()


def weights(folder: str, d_in: int, width: int) -> None:
    shapes = {"W_enc": (d_in, width), "W_dec": (width, d_in), "b_enc": (width,), "b_dec": (d_in,)}
    save_file({name: np.ones(shape, np.float32) for name, shape in shapes.items()}, Path(folder) / "sae_weights.safetensors")


def recorded(folder: str, d_in: int = 16, **metadata) -> dict:
    Path(folder).mkdir(exist_ok=True)
    (Path(folder) / "cfg.json").write_text(json.dumps({"architecture": "topk", "d_in": d_in, "d_sae": 64, "k": 4, "metadata": metadata}))
    weights(folder, d_in, 64)
    return {"mine": {"kind": "sae_lens", "hookpoint": "resid-1", "width": 64, "loss": "topk", "folder": folder}}


@pytest.mark.parametrize(
    ("begins", "asked", "faulty"),
    [(True, True, False), (True, None, False), (True, False, True), (False, None, False), (False, False, False), (False, True, True)],
)
def test_a_sae_trained_with_or_without_bos_is_not_applied_to_the_other(begins, asked, faulty):
    faults = found(saes=recorded("mine", prepend_bos=begins), tokens__prepend_bos=asked).faults
    assert [fault.split(":")[0] for fault in faults] == (["tokens.prepend_bos"] if faulty else [])
    assert not faulty or ("with BOS" if begins else "without BOS") in faults[0]


def test_a_sae_that_does_not_say_whether_bos_was_there_is_said_not_to_be_checked():
    assert any(said.startswith("tokens.prepend_bos: whether SAE 'mine'") for said in found(saes=recorded("mine")).not_checked)


def test_a_context_longer_than_the_saes_is_a_fault_and_a_shorter_one_is_not():
    assert [fault.split(":")[0] for fault in found(saes=recorded("mine", prepend_bos=False, context_size=16)).faults] == ["tokens.context"]
    assert not found(saes=recorded("mine", prepend_bos=False, context_size=64)).faults


def test_a_saes_folder_is_looked_at_before_any_work_and_named_as_the_user_named_it():
    saes = recorded("mine", prepend_bos=False)
    assert not found(saes=saes).faults
    (Path("mine") / "cfg.json").write_text(json.dumps({"architecture": "topk", "d_in": 16, "d_sae": 65, "k": 4}))
    assert found(saes=saes).faults == ("saes.mine.folder: mine/cfg.json: d_sae is 65, but params say width 64; correct `width`",)
    (Path("mine") / "sae_weights.safetensors").unlink()
    recorded_again = recorded("mine", prepend_bos=False)
    (Path("mine") / "sae_weights.safetensors").unlink()
    assert "no sae_weights.safetensors" in found(saes=recorded_again).faults[0]


@pytest.mark.parametrize(("trained_on", "faulty"), [(16, True), (64, False)])
def test_what_the_files_beside_a_sae_of_any_format_say_of_its_contexts_is_heard(trained_on, faulty):
    shutil.copytree(ALL["sparsify-topk"].folder.parent, "mine")
    (Path("mine") / "config.json").write_text(json.dumps({"ctx_len": trained_on}))
    saes = {"mine": {"kind": "sparsify", "hookpoint": "resid-1", "width": WIDTH, "folder": "mine/layers.1.mlp"}}
    point = {"module": "model.layers.1.mlp"}
    faults = found(saes=saes, examples__latents=[1, 2], subject__hookpoints={"resid-1": point}).faults
    assert [fault.split(":")[0] for fault in faults] == (["tokens.context"] if faulty else [])


def test_a_sae_on_the_hub_is_said_to_be_looked_at_later():
    hub = {"id": "some/saes", "revision": "0" * 40}
    saes = {"far": {"kind": "sparsify", "hookpoint": "resid-1", "width": 64, "hub": hub}}
    assert any(
        said.startswith("saes.far: its files are fetched from the hub by `dvc repro sae@far`") for said in found(saes=saes).not_checked
    )


def test_a_saes_folder_that_changed_since_it_was_copied_is_told():
    saes = recorded("mine", prepend_bos=False)
    copied = Path("data/saes/mine")
    shutil.copytree("mine", copied)
    (copied / "manifest.json").write_text("{}")
    assert not found(saes=saes).faults
    with (Path("mine") / "sae_weights.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"othe")
    assert "dvc repro --force sae@mine" in found(saes=saes).faults[0]


def test_a_section_that_dvc_looks_for_is_told_although_it_has_defaults(tmp_path):
    pipeline = Path(__file__).parents[2] / "dvc.yaml"
    left_out = {"gate": {}, "comparison": {}, "max_failed_fraction": 0.2}
    said = list(unwritten(params(), pipeline))
    assert [fault.partition(":")[0] for fault in said] == list(left_out)
    assert said[-1].endswith("write `max_failed_fraction: 0.2` for the defaults")
    assert list(unwritten(params(**left_out), pipeline)) == []
    assert list(unwritten(params(), tmp_path / "dvc.yaml")) == []


def test_an_intruder_needs_four_held_out_windows_of_every_decile():
    def told(n: int) -> tuple[str, ...]:
        held_out = {"n_activating": n, "n_contrast": 10}
        return found(
            scorers={"odd": {"kind": "intruder", "client": "judge"}}, examples__held_out=held_out, examples__min_examples=60
        ).faults

    assert told(40) == ()
    assert told(39) == ("examples.held_out.n_activating: is 39; scorer 'odd' (intruder) needs at least 40",)


def test_a_sae_of_another_hookpoint_subject_or_length_is_told_before_its_gate_is_reached():
    made()
    saes = recorded("mine", prepend_bos=False, model_name="a/subject", hf_hook_name="model.layers.1", hook_side="output")
    assert found(saes=saes).faults == ()
    recorded("mine", prepend_bos=False, hf_hook_name="model.layers.0", model_name="another")
    named = found(saes=saes).faults
    assert len(named) == 2
    assert "names subject 'another'" in named[0] and "names hookpoint 'model.layers.0'" in named[1]
    recorded("mine", d_in=24, prepend_bos=False)
    assert found(saes=saes).faults == (
        "saes.mine.folder: reads activations of 24 numbers, 'resid-1' (output of 'model.layers.1') has 16;"
        " name the subject and the hookpoint that it was trained on",
    )


def test_what_is_the_same_of_several_saes_is_told_once_with_their_names():
    (one,), (other,) = (recorded(name, prepend_bos=False, context_size=16).values() for name in ("one", "other"))
    saes = {"one": one, "other": other, "third": {**one, "width": 64, "folder": "one"}}
    assert found(saes=saes).faults == ("tokens.context: is 32; SAEs 'one', 'other', 'third' trained on contexts of 16: lower it to that",)
    with pytest.raises(ParamsError) as error:
        params(saes=saes, examples__latents=[64])
    assert error.value.faults == ("examples.latents: 64 is no latent of SAEs 'one', 'other', 'third', which have 0 to 63",)


def test_weights_of_another_shape_than_their_configuration_says_are_told_without_being_read():
    saes = recorded("mine", prepend_bos=False)
    weights("mine", 16, 63)
    assert (
        found(saes=saes).faults[0].startswith("saes.mine.folder: mine/sae_weights.safetensors: W_enc has shape (16, 63), wanted (16, 64)")
    )


@pytest.mark.parametrize("path", [ROOT / "params.yaml", *sorted(ROOT.glob("examples/*/params.yaml"))], ids=lambda path: path.parent.name)
def test_params_that_ship_name_every_section_that_dvc_looks_for(path):
    assert list(unwritten(load_params(path), ROOT / "dvc.yaml")) == []
