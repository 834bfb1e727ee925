"""Neuronpedia's limits: each breach is named with its latent and field, all at once, and what keeps them passes."""

import copy
import json
from typing import Any

import pytest

from latentry.errors import ExchangeError
from latentry.exchange.neuronpedia_limits import breaches, breaches_of_files

GOOD: dict[str, Any] = {
    "modelId": "gpt2-small",
    "source": "6-res-jb",
    "features": [
        {
            "index": index,
            "density": 0.01,
            "topLogits": [{"token": " sea", "value": 1.5}],
            "bottomLogits": [],
            "explanations": [{"text": "words of the sea", "methodName": "np_max-act", "modelName": "gpt-4o-mini"}],
            "activations": [{"tokens": ["the", " sea", ""], "values": [0.0, 2, 0.0]}],
        }
        for index in (7, 8)
    ],
}
FIRST = ("features", 0)
ONE_TEXT = (*FIRST, "explanations", 0, "text")
ONE_ACTIVATION = (*FIRST, "activations", 0)


def changed(*path: Any, to: Any, base: Any = None) -> Any:
    """The good batch with one place set anew."""
    batch = copy.deepcopy(GOOD if base is None else base)
    inner = batch
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return batch


def told(batch: Any, **also: Any) -> list[tuple[int | None, str]]:
    return [(breach.latent, breach.field) for breach in breaches(batch, **also)]


def test_a_batch_within_every_limit_has_no_breach():
    largest = changed(*FIRST, "index", to=10_000_000)
    largest["features"][0] |= {"density": 1, "topLogits": [{"token": "x", "value": -1}] * 20}
    largest["features"][0]["activations"] = [{"tokens": ["x"] * 1024, "values": [0.5] * 1024}]
    largest["features"] += [{**GOOD["features"][0], "index": 100 + n} for n in range(126)]
    for batch in (GOOD, largest, changed(*ONE_TEXT, to="é" * 512), changed(*ONE_TEXT, to="🌊" * 256)):
        assert told(batch) == []


def test_what_may_be_left_out_may_be_left_out():
    assert told({**GOOD, "features": [{"index": 0, "activations": GOOD["features"][0]["activations"]}]}) == []


@pytest.mark.parametrize(
    ("path", "value", "latent", "field"),
    [
        (("modelId",), "GPT2-small", None, "modelId"),
        (("modelId",), "", None, "modelId"),
        (("modelId",), None, None, "modelId"),
        (("source",), "6-Res-jb", None, "source"),
        (("source",), "res-jb", None, "source"),
        (("source",), "6-", None, "source"),
        (("source",), "6-a/b", None, "source"),
        (("features",), [], None, "features"),
        (("features",), {}, None, "features"),
        (("features",), [{**GOOD["features"][0], "index": n} for n in range(129)], None, "features"),
        ((*FIRST, "index"), -1, -1, "index"),
        ((*FIRST, "index"), 10_000_001, 10_000_001, "index"),
        ((*FIRST, "index"), "7", None, "features[0].index"),
        ((*FIRST, "index"), True, None, "features[0].index"),
        ((*FIRST,), "seven", None, "features[0]"),
        ((*FIRST, "density"), 1.01, 7, "density"),
        ((*FIRST, "density"), -0.1, 7, "density"),
        ((*FIRST, "density"), float("nan"), 7, "density"),
        ((*FIRST, "topLogits"), [{"token": "x", "value": 1}] * 21, 7, "topLogits"),
        ((*FIRST, "bottomLogits"), [{"token": "x", "value": 1}] * 21, 7, "bottomLogits"),
        ((*FIRST, "topLogits", 0, "value"), float("inf"), 7, "topLogits[0].value"),
        ((*FIRST, "topLogits", 0, "value"), 10**400, 7, "topLogits[0].value"),
        ((*FIRST, "topLogits", 0, "token"), 5, 7, "topLogits[0].token"),
        (ONE_TEXT, "", 7, "explanations[0].text"),
        (ONE_TEXT, "x" * 513, 7, "explanations[0].text"),
        (ONE_TEXT, "🌊" * 257, 7, "explanations[0].text"),
        (ONE_TEXT, None, 7, "explanations[0].text"),
        ((*FIRST, "explanations", 0, "methodName"), "guesswork", 7, "explanations[0].methodName"),
        ((*FIRST, "explanations", 0, "modelName"), "my-model", 7, "explanations[0].modelName"),
        ((*FIRST, "explanations"), "x", 7, "explanations"),
        ((*FIRST, "activations"), [], 7, "activations"),
        ((*FIRST, "activations"), None, 7, "activations"),
        ((*ONE_ACTIVATION, "tokens"), [], 7, "activations[0].tokens"),
        ((*ONE_ACTIVATION, "tokens", 1), 3, 7, "activations[0].tokens[1]"),
        ((*ONE_ACTIVATION, "values"), [0.0, 1.0], 7, "activations[0].values"),
        ((*ONE_ACTIVATION, "values", 2), float("nan"), 7, "activations[0].values[2]"),
        ((*ONE_ACTIVATION, "values", 2), None, 7, "activations[0].values[2]"),
    ],
)
def test_each_broken_limit_is_named_with_its_latent_and_field(path, value, latent, field):
    assert (latent, field) in told(changed(*path, to=value))


def test_too_many_tokens_are_a_breach():
    batch = changed(*ONE_ACTIVATION, to={"tokens": ["x"] * 1025, "values": [0.0] * 1025})
    assert told(batch) == [(7, "activations[0].tokens")]


def test_all_breaches_are_told_at_once():
    batch = changed("modelId", to="A b")
    batch = changed(*ONE_TEXT, to="", base=batch)
    batch = changed("features", 1, "density", to=2, base=batch)
    assert told(batch) == [(None, "modelId"), (None, "modelId"), (7, "explanations[0].text"), (8, "density")]


def test_names_that_the_user_knows_better_pass():
    batch = changed(*FIRST, "explanations", 0, "modelName", to="my-model")
    assert told(batch, also_known=("my-model",)) == []


def test_an_index_may_stand_once_among_the_batches_of_a_source(tmp_path):
    other = {**GOOD, "source": "7-res-jb"}
    for name, batch in {"a": GOOD, "b": GOOD, "c": other}.items():
        (tmp_path / name).write_text(json.dumps(batch))
    found = list(breaches_of_files([tmp_path / name for name in "abc"]))
    assert found == [f"{tmp_path / 'b'}: 2 latents (7, 8): index: stands a second time, first in {tmp_path / 'a'}; once in a source"]


def test_one_line_tells_of_all_latents_of_which_the_same_is_wrong(tmp_path):
    batch = json.loads(json.dumps(GOOD))
    for feature in batch["features"]:
        feature["explanations"][0]["methodName"] = "mine"
    batch["features"][1]["density"] = 2
    (tmp_path / "batch").write_text(json.dumps(batch))
    assert [line.removeprefix(f"{tmp_path / 'batch'}: ").partition(";")[0] for line in breaches_of_files([tmp_path / "batch"])] == [
        "2 latents (7, 8): explanations[0].methodName: is 'mine'",
        "latent 8: density: is 2",
    ]


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "\xff"])
def test_a_file_that_is_no_json_is_told(tmp_path, text):
    (tmp_path / "batch").write_bytes(text.encode("latin-1"))
    with pytest.raises(ExchangeError, match="no JSON"):
        list(breaches_of_files([tmp_path / "batch"]))
