"""What params.yaml may not say, and what is said about it."""

from pathlib import Path

import pytest
import yaml

from latentry.errors import ParamsError
from latentry.params import Params, load_params, parse_params
from small_params import put, small_params


def faults_of(tree: object) -> tuple[str, ...]:
    with pytest.raises(ParamsError) as caught:
        parse_params(tree)
    return caught.value.faults


def faults_with(path: str, value: object) -> tuple[str, ...]:
    tree = small_params()
    put(tree, path, value)
    return faults_of(tree)


def only_fault(faults: tuple[str, ...]) -> str:
    assert len(faults) == 1, faults
    return faults[0]


def test_the_small_tree_is_valid_and_its_variants_have_their_own_settings():
    params = parse_params(small_params())
    assert params.saes["topk-64"].width == 64
    assert params.scorers["detection"].max_examples == 5
    assert params.explainers["lexical"].kind == "lexical"
    assert [source.kind for source in params.sources("subject")] == ["random"]


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("tokens.contxt", "context"),
        ("examples.held_out.n_activatin", "n_activating"),
        ("scorers.detection.max_exmples", "max_examples"),
        ("saes.topk-64.widht", "width"),
        ("saes.topk-64.train.epoch", "epochs"),
        ("subject.hookpoints.resid-1.sid", "side"),
        ("models.subject.sha265", "sha256"),
        ("run.clients.judge.timeout", "timeout_s"),
        ("trackin", "tracking"),
    ],
)
def test_an_unknown_key_is_told_with_its_path_and_the_nearest_name(path, named):
    fault = next(fault for fault in faults_with(path, 8) if fault.startswith(f"{path}: "))
    assert "unknown key" in fault
    assert f"did you mean {named!r}?" in fault


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", "zero"),
        ("seed", -1),
        ("tokens.context", "many"),
        ("tokens.context", 8.5),
        ("saes.topk-64.width", [64]),
        ("saes", ["topk-64"]),
        ("saes.topk-64", "topk"),
        ("models.subject.sources", 3),
        ("models.subject.sources", []),
        ("models.subject.sha256", "abc"),
        ("scorers.detection.max_examples", 0),
        ("examples.latents", "some"),
        ("max_failed_fraction", 1.5),
        ("run.clients.judge.concurrency", 0),
        ("activations.dtype", "float8"),
    ],
)
def test_a_value_of_the_wrong_type_or_range_is_told_with_its_path(path, value):
    assert any(fault.startswith(path) for fault in faults_with(path, value))


@pytest.mark.parametrize("path", ["activations.max_norm_multiple", "gate.max_fvu", "max_failed_fraction", "saes.topk-64.train.lr"])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_nan_and_infinity_are_faults(path, number):
    assert any(fault.startswith(path) for fault in faults_with(path, number))


def test_a_wrong_kind_is_answered_with_the_nearest_and_all_there_are():
    fault = only_fault(faults_with("scorers.detecton", {"client": "judge"}))
    assert fault.startswith("scorers.detecton.kind: there is no 'detecton'; did you mean 'detection'?")
    assert all(kind in fault for kind in ("embedding", "detection", "fuzzing"))


def test_a_sae_must_say_its_kind_although_scorers_need_not():
    tree = small_params()
    del tree["saes"]["topk-64"]["kind"]
    assert only_fault(faults_of(tree)).startswith("saes.topk-64.kind: is missing (there are: ")


@pytest.mark.parametrize(
    "section", ["models", "corpus", "tokens", "subject", "saes", "examples", "explainers", "scorers", "tracking", "seed"]
)
def test_a_missing_section_is_told_by_its_name(section):
    tree = small_params()
    del tree[section]
    assert f"{section}: is missing" in faults_of(tree)


def test_a_k_above_the_width_is_told_for_its_sae():
    fault = only_fault(faults_with("saes.topk-64.train.k", 65))
    assert fault.startswith("saes.topk-64")
    assert "65" in fault
    assert "64" in fault


@pytest.mark.parametrize(
    ("path", "value", "near"),
    [
        ("subject.model", "subjct", "subject"),
        ("saes.topk-64.hookpoint", "resid1", "resid-1"),
        ("explainers.default.client", "jduge", "judge"),
        ("scorers.detection.client", "jugde", "judge"),
        ("scorers.detection.contrast", "randon", "random"),
        ("scorers.embedding.model", "encodr", "encoder"),
        ("clients.judge.model", "subjekt", "subject"),
        ("run.clients.juge", {"batch": 2}, "judge"),
    ],
)
def test_a_name_that_stands_nowhere_else_is_answered_with_the_nearest(path, value, near):
    fault = only_fault(faults_with(path, value))
    assert fault.startswith(f"{path}: ")
    assert f"did you mean {near!r}?" in fault


@pytest.mark.parametrize(
    ("path", "value", "limit"),
    [
        ("examples.window", 33, 32),
        ("tokens.n_tokens", 31, 32),
        ("evaluation.ce_contexts", 9, 8),
        ("evaluation.contexts", 100, 100),
        ("examples.min_examples", 19, 20),
        ("scorers.detection.max_examples", 11, 10),
    ],
)
def test_a_number_that_does_not_fit_another_is_told_with_its_limit(path, value, limit):
    fault = next(fault for fault in faults_with(path, value) if fault.startswith(f"{path}: "))
    assert str(value) in fault
    assert str(limit) in fault


def test_the_judge_of_an_explainer_is_a_client_and_a_local_model_of_it_counts():
    best = {"kind": "best_of_k", "client": "judge", "judge": "jugde"}
    assert "did you mean 'judge'?" in only_fault(faults_with("explainers.best", best))
    params = parse_params(small_params(explainers__best={**best, "judge": "judge"}))
    assert params.local_models(params.explainers["best"]) == ["subject"]


def test_a_budget_in_dollars_needs_the_price_of_every_endpoint():
    endpoint = {"kind": "openai_compatible", "model": "any"}
    tree = small_params(clients__other=endpoint, run__budget={"usd": 5})
    assert only_fault(faults_of(tree)).startswith("run.clients.other.price: is missing")
    put(tree, "run.clients.other.price", {"prompt": 0.5, "reply": 1.5})
    assert parse_params(tree).run.budget.usd == 5


@pytest.mark.parametrize(
    ("path", "value"),
    [("run.budget.usd", 0), ("run.budget.calls", 0), ("run.budget.euro", 5), ("run.clients.judge.price", {"prompt": -1, "reply": 1})],
)
def test_a_budget_or_a_price_that_is_none_is_told(path, value):
    assert any(fault.startswith(path) for fault in faults_with(path, value))


def test_an_api_model_name_needs_no_entry_under_models():
    tree = small_params()
    tree["clients"]["judge"] = {"kind": "openai_compatible", "model": "served/model-7b"}
    assert parse_params(tree).clients["judge"].kind == "openai_compatible"


def test_a_digest_without_the_file_it_is_of_is_a_fault_and_not_ignored():
    fault = only_fault(faults_with("models.subject.sha256", "0" * 64))
    assert fault.startswith("models.subject: ")
    assert "weights" in fault


def test_faults_of_several_sections_are_all_told_at_once():
    tree = small_params()
    tree["tokens"]["contxt"] = 8
    tree["seed"] = "zero"
    tree["scorers"]["detection"]["max_exmples"] = 5
    tree["saes"]["topk-64"]["train"]["k"] = 65
    tree["saes"]["other"] = {"kind": "sae_lense"}
    tree["models"]["subject"]["sources"][0]["purpos"] = "language_model"
    del tree["tracking"]
    starts = ["tokens.contxt", "seed", "scorers.detection.max_exmples", "saes.topk-64", "saes.other.kind", "tracking"]
    starts.append("models.subject.sources.0.purpos")
    faults = faults_of(tree)
    assert all(any(fault.startswith(start) for fault in faults) for start in starts)


def test_names_that_stand_nowhere_are_all_told_at_once():
    tree = small_params(subject__model="x", scorers__detection__client="y", scorers__fuzzing__contrast="z")
    assert len(faults_of(tree)) == 3


def test_the_message_has_the_file_the_count_and_a_line_per_fault():
    with pytest.raises(ParamsError, match=r"^study\.yaml: 2 faults\n  - .*\n  - ") as caught:
        parse_params(small_params(subject__model="x", scorers__detection__client="y"), "study.yaml")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        "saes:\n  one: {kind: sae_lens}\n  one: {kind: sae_lens}\n",
        "saes: {one: {}, two: {}, one: {}}\n",
    ],
)
def test_two_saes_of_one_name_are_refused_although_yaml_would_keep_the_last(tmp_path, text):
    assert len(yaml.safe_load(text)["saes"]) < text.count("one") + text.count("two")
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(ParamsError, match=r"line \d: 'one' stands twice"):
        load_params(path)


def test_yaml_merge_keys_work_and_an_explicit_key_wins(tmp_path):
    tree = small_params()
    first = tree["saes"].pop("topk-64")
    path = tmp_path / "params.yaml"
    merged = f"\nsaes:\n  one: &one {yaml.safe_dump(first, default_flow_style=True)}\n  two:\n    <<: *one\n    width: 128\n"
    path.write_text(yaml.safe_dump({key: value for key, value in tree.items() if key != "saes"}) + merged)
    saes = load_params(path).saes
    assert (saes["one"].width, saes["two"].width) == (64, 128)
    assert saes["two"].train == saes["one"].train


@pytest.mark.parametrize(
    "text", ["a: [", "a: {{judge}: 1}", "a: {[1]: 2}", "- 1\n- 2", "", "just words", "\tx: 1", "a: !!python/name:os.system x"]
)
def test_what_is_no_tree_of_sections_is_a_fault_of_the_file(tmp_path, text):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(ParamsError, match=r"params\.yaml: 1 fault"):
        load_params(path)


def test_bytes_that_are_no_text_are_a_fault_of_the_file(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_bytes(b"seed: \xff\xfe")
    with pytest.raises(ParamsError):
        load_params(path)


def test_a_file_that_is_not_there_is_told_by_its_name(tmp_path):
    with pytest.raises(ParamsError, match=r"nowhere\.yaml.*\n.*is not there"):
        load_params(tmp_path / "nowhere.yaml")


def test_the_file_that_ships_is_valid():
    assert load_params(Path(__file__).parents[2] / "params.yaml").saes


def declared(params: Params) -> dict:
    return params.slice(*(name for name in Params.model_fields if name != "run"))


def test_what_is_under_run_is_in_no_other_slice():
    slow = parse_params(small_params())
    fast = parse_params(small_params(run__batch_tokens=7, run__threads=3, run__clients={"judge": {"batch": 99, "base_url": "http://a"}}))
    assert fast.run != slow.run
    assert declared(fast) == declared(slow)
    assert "http://a" not in str(declared(fast))


def test_a_slice_holds_defaults_and_variants_whole_and_only_what_was_asked():
    found = parse_params(small_params()).slice("saes.topk-64.train", "gate.max_fvu", "examples.contrasts")
    assert set(found) == {"saes.topk-64.train", "gate.max_fvu", "examples.contrasts"}
    assert found["gate.max_fvu"] == 0.9
    assert found["saes.topk-64.train"]["k"] == 4
    assert found["saes.topk-64.train"]["lr"] == 1e-3
    assert found["examples.contrasts"] == {"random": {"kind": "random"}}


def test_a_change_of_one_scorer_changes_its_slice_alone():
    before = parse_params(small_params()).slice("scorers.detection", "scorers.fuzzing", "saes", "examples")
    after = parse_params(small_params(scorers__detection__max_examples=4)).slice("scorers.detection", "scorers.fuzzing", "saes", "examples")
    assert {path for path in before if before[path] != after[path]} == {"scorers.detection"}


def test_a_client_without_an_entry_under_run_takes_the_defaults():
    params = parse_params(small_params(run__clients={"judge": {"batch": 3}}))
    assert params.run_of("judge").batch == 3
    assert params.run_of("nobody").batch == 16


def test_a_fault_in_a_fixed_section_hides_no_fault_between_sections():
    faults = faults_of(small_params(tokens__contxt=3, scorers__detection__client="jugde"))
    assert len(faults) == 2
    assert any(fault.startswith("tokens.contxt: unknown key; did you mean 'context'?") for fault in faults)
    assert any(fault.startswith("scorers.detection.client: 'jugde'") for fault in faults)


def test_two_cells_of_one_name_are_a_fault():
    tree = small_params()
    sae, scorer = tree["saes"]["topk-64"], tree["scorers"]["embedding"]
    tree["saes"] = {"a": sae, "a-b": sae}
    tree["scorers"] = {"b-c": {**scorer, "kind": "embedding"}, "c": {**scorer, "kind": "embedding"}}
    assert "'a-b-c'" in only_fault(faults_of(tree))


@pytest.mark.parametrize("latents", [[], [0, 64]])
def test_latents_that_no_sae_has_are_a_fault(latents):
    assert "examples.latents" in only_fault(faults_with("examples.latents", latents))


def test_an_unknown_name_on_the_command_line_is_told_with_the_nearest():
    with pytest.raises(ParamsError, match="did you mean 'topk-64'"):
        parse_params(small_params()).named("saes", "topk-46")


def test_the_models_that_a_scorer_runs_here_are_its_own_and_its_clients():
    params = parse_params(small_params())
    assert params.local_models(params.scorers["embedding"]) == ["encoder"]
    assert params.local_models(params.scorers["detection"]) == [params.clients["judge"].model]


def test_a_missing_section_hides_no_fault_between_the_others():
    tree = small_params()
    put(tree, "saes.topk-64.hookpoint", "nowhere")
    del tree["scorers"]
    faults = faults_of(tree)
    assert "scorers: is missing" in faults
    assert any(fault.startswith("saes.topk-64.hookpoint: 'nowhere' is not under") for fault in faults)


def test_no_explainer_may_have_the_name_of_what_is_scored_without_one():
    assert faults_with("explainers.none", {"kind": "lexical"}) == (
        "explainers.none: the name stands for what is scored without an explanation; rename the entry",
    )


def test_adaptive_judging_without_a_width_is_told_with_its_path():
    (fault,) = faults_with("scorers.detection.adaptive", {})
    assert fault.startswith("scorers.detection.adaptive: ")
    assert "max_width" in fault


@pytest.mark.parametrize(
    ("client", "said"),
    [
        ({"kind": "openai_compatible", "model": "m"}, "chat endpoint"),
        ({"kind": "transformers", "model": "judge"}, "chat: false"),
    ],
)
def test_a_scorer_that_reads_plain_text_is_not_given_a_chat_client(client, said):
    scorer = {"kind": "surprisal", "client": "reader", "contrast": "random"}
    with pytest.raises(ParamsError) as error:
        parse_params(small_params(clients__reader=client, scorers__read=scorer))
    assert any(fault.startswith("scorers.read.client: 'reader'") and said in fault for fault in error.value.faults)
    parse_params(small_params(clients__reader={"kind": "openai_compatible", "model": "m", "api": "completions"}, scorers__read=scorer))
